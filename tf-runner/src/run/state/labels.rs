//! The labels of the Secret with the state. Terraform finds a state of the kubernetes backend by its labels and writes it by its
//! name: if the labels of the backend differ from those of the Secret, already `init` replaces the state by an empty one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;

use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;

/// The CLI that finds states by labels. OpenTofu finds them by name.
const SELECTING_CLI: &str = "terraform";

/// Fails if the CLI would not find the state in its Secret, before the CLI is started.
pub(crate) async fn check(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    let Some(secret) = &bundle.state_check.secret else {
        return Ok(());
    };
    if cli.tool.name != SELECTING_CLI {
        return Ok(());
    }
    let api = context.api::<Secret>();
    let found = context.retry(|| api.get_metadata_opt(&secret.name)).await;
    let Some(found) = found.map_err(RunError::api("read the labels of the state"))? else {
        return Ok(());
    };
    let missing = missing(&secret.labels, &found.metadata.labels.unwrap_or_default());
    if missing.is_empty() {
        return Ok(());
    }
    Err(RunError::StateLabels {
        secret: secret.name.clone(),
        missing: missing.join(" "),
    })
}

/// Returns the labels that the Secret does not have.
fn missing(desired: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> Vec<String> {
    let missing = desired
        .iter()
        .filter(|(label, value)| found.get(*label) != Some(value));
    missing.map(|(label, value)| format!("{label}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_if_it_has_all_labels() {
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = pairs.iter();
            pairs
                .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
                .collect()
        };
        let found = labels(&[("team", "network"), ("tfstate", "true")]);
        assert!(missing(&labels(&[]), &found).is_empty());
        assert!(missing(&labels(&[("team", "network")]), &found).is_empty());
        let desired = labels(&[("team", "storage"), ("tier", "one")]);
        assert_eq!(missing(&desired, &found), ["team=storage", "tier=one"]);
    }
}
