//! get and list.

use http::StatusCode;

use super::page;
use super::request::ObjectRequest;
use super::response::Reply;
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
pub(super) fn list(request: &ObjectRequest) -> Result<Reply, StatusError> {
    page::read(request).map(Reply::List)
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
