//! get and list.

use http::StatusCode;

use super::{Call, Cause, Reply, StatusError};
use crate::{selector::Selector, store::State};

/// One object.
pub(super) fn get(call: &Call) -> Result<Reply, StatusError> {
    let state = call.api.store.read();
    if !call.query.resource_version.is_empty() {
        reached(
            &state,
            version(&call.query.resource_version).map_err(StatusError::bad_request)?,
        )?;
    }
    let object = state.get(&call.key(&call.at.name));
    let object = object.ok_or_else(|| StatusError::not_found(&call.resource, &call.at.name))?;
    Ok(Reply::Object(StatusCode::OK, object.clone()))
}

/// All objects that the selectors let through, at one version.
///
/// `limit` asks for at most so many if the server chunks; this one does not, and says so by giving no `continue`.
pub(super) fn list(call: &Call) -> Result<Reply, StatusError> {
    if !call.query.continue_token.is_empty() {
        return Err(StatusError::bad_request(
            "continue key is not valid: this server does not chunk lists",
        ));
    }
    let selector = selector(call)?;
    let state = call.api.store.read();
    check_version(call, &state)?;
    let mut objects = state.list(&call.resource.id(), &call.at.namespace);
    let revision = state.revision();
    drop(state);
    objects.retain(|object| selector.matches(object));
    Ok(Reply::List(objects, revision))
}

/// The selectors of a request.
pub(super) fn selector(call: &Call) -> Result<Selector, StatusError> {
    let selector = Selector::parse(
        &call.resource,
        &call.at.namespace,
        &call.query.labels,
        &call.query.fields,
    )?;
    Ok(if call.at.name.is_empty() {
        selector
    } else {
        selector.and_name(&call.at.name)
    })
}

/// Only the newest version can be listed. Older is what `Exact` alone insists on.
fn check_version(call: &Call, state: &State) -> Result<(), StatusError> {
    let query = &call.query;
    let matching = query.resource_version_match.as_str();
    if query.resource_version.is_empty() {
        return match matching {
            "" => Ok(()),
            _ => Err(forbidden_match(
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            )),
        };
    }
    let asked = version(&query.resource_version)
        .map_err(|why| StatusError::bad_request(format!("invalid resource version: {why}")))?;
    match matching {
        "Exact" if asked == 0 => Err(forbidden_match(
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )),
        "Exact" if asked < state.revision() => Err(StatusError::gone(
            "The resourceVersion for the provided list is too old.",
        )),
        "" | "NotOlderThan" | "Exact" => reached(state, asked),
        other => Err(StatusError::invalid_list_options(Cause::not_supported(
            "resourceVersionMatch",
            other,
            &["Exact", "NotOlderThan", ""],
        ))),
    }
}

fn forbidden_match(why: &str) -> StatusError {
    StatusError::invalid_list_options(Cause::forbidden("resourceVersionMatch", why))
}

/// A version in the future is refused at once: it cannot come from this store.
pub(super) fn reached(state: &State, asked: u64) -> Result<(), StatusError> {
    if asked > state.revision() {
        return Err(StatusError::version_too_large(asked, state.revision()));
    }
    Ok(())
}

/// A `resourceVersion` as a number.
pub(super) fn version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}
