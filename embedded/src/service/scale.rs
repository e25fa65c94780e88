//! The `scale` subresource of custom resources: `kubectl scale`. A Scale is a view of the object, in which clients can write only the
//! desired number of replicas.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::negotiation::media_type;
use super::request::{ObjectRequest, to_version};
use super::response::Reply;
use super::write::{check_name, check_own_namespace, decide_update};
use super::{apply, body, patch, read, verb};
use crate::admission::{self, Endpoint};
use crate::meta;
use crate::resource::{SCALE_API_VERSION, SCALE_KIND, ScalePaths, desired_replicas, preconditions};
use crate::status_error::StatusError;

/// The subresource.
pub(super) const SUBRESOURCE: &str = "scale";

/// The desired number of replicas in the Scale of an object without one, as upstream: a patch that leaves it is refused.
const UNSET: i32 = i32::MIN;

/// Handles a request for the Scale of an object.
pub(super) async fn execute(
    request: &ObjectRequest,
    paths: &ScalePaths,
    method: &Method,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    match *method {
        Method::GET | Method::HEAD => to_scale(request, paths, read::get(request)?),
        Method::PUT => update(request, paths, bytes, content_type).await,
        Method::PATCH if media_type(content_type) == patch::APPLY => apply_scale(request, paths, bytes).await,
        Method::PATCH => {
            let patch = patch::decode_request(request, bytes, content_type)?;
            write(request, paths, move |scale| {
                let patched = patch.apply(scale)?;
                check_type(&patched)?;
                patch::check_identity(&patched, scale)?;
                match desired_replicas(&patched) {
                    Ok(_) => Ok(patched),
                    Err(reason) => Err(StatusError::invalid_patch(&patched, &reason)),
                }
            })
            .await
        }
        _ => Err(request.method_not_allowed(verb(method, true))),
    }
}

/// Replaces the object in a reply by its Scale.
fn to_scale(request: &ObjectRequest, paths: &ScalePaths, reply: Reply) -> Result<Reply, StatusError> {
    let Reply::Object(code, object) = reply else {
        return Ok(reply);
    };
    let object = request.to_requested_version(&object);
    let (scale, has_replicas) = paths.scale_of(&object).map_err(StatusError::unreadable_scale)?;
    if !has_replicas {
        return Err(StatusError::no_replicas(paths.spec_replicas()));
    }
    Ok(Reply::Plain(code, scale))
}

/// PUT on the Scale.
async fn update(
    request: &ObjectRequest,
    paths: &ScalePaths,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let scale = body::value(bytes, content_type)?;
    check_type(&scale)?;
    desired_replicas(&scale).map_err(|reason| {
        StatusError::bad_request(format!(
            "{SCALE_KIND} in version \"v1\" cannot be handled as a {SCALE_KIND}: {reason}"
        ))
    })?;
    check_name(request, &scale)?;
    check_own_namespace(request, &scale)?;
    write(request, paths, move |_| Ok(scale.clone())).await
}

/// Applies a configuration of the Scale: the same configuration of the object, at this subresource.
async fn apply_scale(
    request: &ObjectRequest,
    paths: &ScalePaths,
    bytes: &Bytes,
) -> Result<Reply, StatusError> {
    let scale = apply::decode(bytes)?;
    check_type(&scale)?;
    let mut config = json!({
        "apiVersion": request.resource.api_version(), "kind": request.resource.kind, "metadata": scale["metadata"],
    });
    if meta::name(&config).is_empty() {
        meta::set(&mut config, "name", request.at.name.as_str().into());
    }
    let replicas = desired_replicas(&scale).map_err(StatusError::bad_request)?;
    if !scale["spec"]["replicas"].is_null() {
        let set = paths.set_replicas(&mut config, replicas);
        set.map_err(StatusError::bad_request)?;
    }
    let config = Bytes::from(config.to_string());
    let reply = apply::apply(request, Endpoint::Scale, &config).await?;
    to_scale(request, paths, reply)
}

/// Writes the desired number of replicas of the Scale that `change` returns.
async fn write<F>(request: &ObjectRequest, paths: &ScalePaths, change: F) -> Result<Reply, StatusError>
where
    F: Fn(&Value) -> Result<Value, StatusError> + Send + 'static,
{
    let key = request.key(&request.at.name);
    let (resource, at) = (request.resource.clone(), key.clone());
    let (writer, of_kind) = (request.writer(Endpoint::Scale), paths.clone());
    let stored = request.write(key, move |state| {
        let old = state
            .get(&at)
            .ok_or_else(|| StatusError::not_found(&resource, &at.name))?;
        let before = to_version(&resource, old);
        let (mut scale, has_replicas) = of_kind.scale_of(&before).map_err(StatusError::unreadable_scale)?;
        if !has_replicas {
            scale["spec"]["replicas"] = UNSET.into();
        }
        let scale = change(&scale)?;
        let replicas = desired_replicas(&scale).map_err(StatusError::bad_request)?;
        if replicas == UNSET {
            return Err(StatusError::bad_request(format!(
                "the spec replicas field {:?} cannot be empty",
                of_kind.spec_replicas()
            )));
        }
        let mut new = Value::clone(&before);
        let set = of_kind.set_replicas(&mut new, replicas);
        set.map_err(StatusError::unreadable_scale)?;
        admission::normalize(&resource, &mut new).map_err(StatusError::bad_request)?;
        for (field, given) in preconditions(&scale) {
            if !given.is_empty() {
                meta::set(&mut new, field, given.into());
            }
        }
        decide_update(&resource, new, old, Endpoint::Scale, Some(&writer))
    });
    let reply = Reply::Object(StatusCode::OK, stored.await?);
    to_scale(request, paths, reply)
}

/// Checks apiVersion and kind. Absent ones are those of a Scale.
fn check_type(scale: &Value) -> Result<(), StatusError> {
    let text = |field: &str, absent: &'static str| scale[field].as_str().unwrap_or(absent).to_owned();
    let (version, kind) = (text("apiVersion", SCALE_API_VERSION), text("kind", SCALE_KIND));
    if version != SCALE_API_VERSION {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({SCALE_API_VERSION})"
        )));
    }
    if kind != SCALE_KIND {
        return Err(StatusError::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {SCALE_KIND}"
        )));
    }
    Ok(())
}
