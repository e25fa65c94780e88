//! get and list.

use http::StatusCode;

use super::request::ObjectRequest;
use super::response::Reply;
use crate::cause::Cause;
use crate::selector::Selector;
use crate::status_error::StatusError;
use crate::store::State;

/// Gets one object.
pub(super) fn get(request: &ObjectRequest) -> Result<Reply, StatusError> {
    let state = request.api.store.read();
    if !request.query.resource_version.is_empty() {
        let version = parse_version(&request.query.resource_version);
        check_reached(&state, version.map_err(StatusError::bad_request)?)?;
    }
    let object = state.get(&request.key(&request.at.name));
    let object = object.ok_or_else(|| StatusError::not_found(&request.resource, &request.at.name))?;
    Ok(Reply::Object(StatusCode::OK, object.clone()))
}

/// Lists the objects that match the selectors, at one version.
///
/// `limit` is ignored, which the API allows: the list has no `continue` token.
pub(super) fn list(request: &ObjectRequest) -> Result<Reply, StatusError> {
    if !request.query.continue_token.is_empty() {
        return Err(StatusError::bad_request(
            "continue key is not valid: this server does not chunk lists",
        ));
    }
    let selector = selector(request)?;
    let state = request.api.store.read();
    check_resource_version(request, &state)?;
    let mut objects = state.list(&request.resource.group_resource(), &request.at.namespace);
    let revision = state.revision();
    drop(state);
    objects.retain(|object| selector.matches(object));
    Ok(Reply::List(objects, revision))
}

/// Returns the selectors of a request.
pub(super) fn selector(request: &ObjectRequest) -> Result<Selector, StatusError> {
    let selector = Selector::parse(
        &request.resource,
        &request.at.namespace,
        &request.query.label_selector,
        &request.query.field_selector,
    )?;
    Ok(if request.at.name.is_empty() {
        selector
    } else {
        selector.with_name(&request.at.name)
    })
}

/// Checks the requested version: only the newest one can be listed, but only `Exact` rejects an older one.
fn check_resource_version(request: &ObjectRequest, state: &State) -> Result<(), StatusError> {
    let query = &request.query;
    let matching = query.resource_version_match.as_str();
    if query.resource_version.is_empty() {
        let reason = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        return if matching.is_empty() {
            Ok(())
        } else {
            Err(match_forbidden(reason))
        };
    }
    let requested = parse_version(&query.resource_version)
        .map_err(|reason| StatusError::bad_request(format!("invalid resource version: {reason}")))?;
    match matching {
        "Exact" if requested == 0 => Err(match_forbidden(
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )),
        "Exact" if requested < state.revision() => Err(StatusError::expired(
            "The resourceVersion for the provided list is too old.",
        )),
        "" | "NotOlderThan" | "Exact" => check_reached(state, requested),
        other => Err(StatusError::invalid_list_options(Cause::not_supported(
            "resourceVersionMatch",
            other,
            &["Exact", "NotOlderThan", ""],
        ))),
    }
}

pub(super) fn match_forbidden(reason: &str) -> StatusError {
    StatusError::invalid_list_options(Cause::forbidden("resourceVersionMatch", reason))
}

/// Rejects a version that the store has not reached.
pub(super) fn check_reached(state: &State, requested: u64) -> Result<(), StatusError> {
    let current = state.revision();
    if requested > current {
        return Err(StatusError::resource_version_too_large(requested, current));
    }
    Ok(())
}

/// Parses a `resourceVersion`.
pub(super) fn parse_version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}
