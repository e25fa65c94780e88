//! The rules of `resourceVersionMatch` and `sendInitialEvents`, as apimachinery's `ValidateListOptions`. Pure.

use super::query::Query;
use crate::cause::Cause;
use crate::status_error::StatusError;

const MATCH: &str = "resourceVersionMatch";
const INITIAL_EVENTS: &str = "sendInitialEvents";
const AT_LEAST: &str = "NotOlderThan";
/// `resourceVersionMatch` of a list at one version.
pub(super) const EXACT: &str = "Exact";

/// Checks the options of a list or a watch.
pub(super) fn check(query: &Query) -> Result<(), StatusError> {
    let causes = if query.watch {
        watch_causes(query)
    } else {
        list_causes(query)
    };
    if causes.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid_list_options(&causes))
    }
}

fn list_causes(query: &Query) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut forbid = |reason: &str| causes.push(Cause::forbidden(MATCH, reason));
    let matching = query.resource_version_match.as_str();
    if !matching.is_empty() {
        if query.resource_version.is_empty() {
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !query.continue_token.is_empty() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if matching == EXACT && query.resource_version == "0" {
            forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        if !matches!(matching, EXACT | AT_LEAST) {
            causes.push(Cause::not_supported(MATCH, matching, &[EXACT, AT_LEAST, ""]));
        }
    }
    if query.send_initial_events.is_some() {
        causes.push(Cause::forbidden(
            INITIAL_EVENTS,
            "sendInitialEvents is forbidden for list",
        ));
    }
    causes
}

fn watch_causes(query: &Query) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut forbid = |reason: &str| causes.push(Cause::forbidden(MATCH, reason));
    let matching = query.resource_version_match.as_str();
    let has_initial_events = query.send_initial_events.is_some();
    if has_initial_events && matching != AT_LEAST {
        forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if matching.is_empty() {
        return causes;
    }
    if !has_initial_events {
        forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    }
    if !query.continue_token.is_empty() {
        forbid("resourceVersionMatch is forbidden when continue is provided");
    }
    if matching != AT_LEAST {
        causes.push(Cause::not_supported(MATCH, matching, &[AT_LEAST]));
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_a_cause() {
        for (query, causes) in [
            ("limit=5&continue=x", 0),
            ("resourceVersion=7&resourceVersionMatch=Exact&limit=5", 0),
            ("resourceVersionMatch=Exact", 1),
            ("resourceVersionMatch=Exact&continue=x", 2),
            ("resourceVersion=0&resourceVersionMatch=Exact", 1),
            ("resourceVersion=7&resourceVersionMatch=Newest", 1),
            ("sendInitialEvents=false", 1),
            ("watch=1", 0),
            (
                "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                0,
            ),
            ("watch=1&sendInitialEvents=false", 1),
            ("watch=1&resourceVersionMatch=NotOlderThan", 1),
            ("watch=1&resourceVersionMatch=Exact", 2),
        ] {
            let error = check(&Query::parse(query, "").unwrap()).err();
            let details = error.map(|error| error.to_value()["details"]["causes"].clone());
            let found = details.and_then(|list| list.as_array().map(Vec::len));
            assert_eq!(found.unwrap_or(0), causes, "{query}");
        }
    }
}
