//! patch: JSON patch (RFC 6902), merge patch (RFC 7396), server-side apply and, for built-in kinds, strategic merge patch.

use bytes::Bytes;
use http::StatusCode;
use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::negotiation::media_type;
use super::query::FieldValidation;
use super::request::{ObjectRequest, to_version};
use super::response::Reply;
use super::write::decide_update;
use super::{body, strategic_merge};
use crate::admission::Endpoint;
use crate::cause::Cause;
use crate::depth::{self, MAX_DEPTH};
use crate::meta;
use crate::resource::Strategy;
use crate::status_error::StatusError;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// The media type of server-side apply.
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// Maximum number of operations in a JSON patch, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum size of all values that a JSON patch copies or moves, as kube-apiserver's `JSONPatchMaxCopyBytes`: each copy can double an
/// object.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// A decoded patch.
pub(super) enum PatchBody {
    Json(Patch),
    Merge(Value),
    Strategic(Strategy, Value),
}

/// PATCH on an object or a subresource.
pub(super) async fn apply(
    request: &ObjectRequest,
    endpoint: Endpoint,
    bytes: Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    if media_type(content_type) == APPLY {
        return super::apply::apply(request, endpoint, &bytes).await;
    }
    let patch = decode_request(request, &bytes, content_type)?;
    let key = request.key(&request.at.name);
    let (resource, at, warnings) = (request.resource.clone(), key.clone(), request.warnings.clone());
    let validation = request.query.field_validation;
    let duplicates = body::duplicates(&bytes, content_type, validation);
    let writer = request.writer(endpoint);
    let stored = request.write(key, move |state| {
        let old = state
            .get(&at)
            .ok_or_else(|| StatusError::not_found(&resource, &at.name))?;
        let before = to_version(&resource, old);
        let patched = patch.apply(&before)?;
        // Pruned fields were reported when the object was written; only the patch can add new ones.
        let validation = if patched == *before && duplicates.is_empty() {
            FieldValidation::Ignore
        } else {
            validation
        };
        let mut new = body::decode_patched(&resource, patched, duplicates.clone(), validation, &warnings)?;
        check_identity(&new, old)?;
        if meta::resource_version(&new).is_empty() {
            let version = old["metadata"]["resourceVersion"].clone();
            meta::set(&mut new, "resourceVersion", version);
        }
        decide_update(&resource, new, old, endpoint, Some(&writer))
    });
    Ok(Reply::Object(StatusCode::OK, stored.await?))
}

/// Decodes the patch of a request that is not an apply.
pub(super) fn decode_request(
    request: &ObjectRequest,
    bytes: &Bytes,
    content_type: &str,
) -> Result<PatchBody, StatusError> {
    if request.query.force.is_some() {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(StatusError::invalid_options("PatchOptions", cause));
    }
    decode(request.resource.strategy, bytes, content_type)
}

/// Checks that a patch changes neither name nor namespace.
pub(super) fn check_identity(new: &Value, old: &Value) -> Result<(), StatusError> {
    if meta::name(new) != meta::name(old) {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            meta::name(new),
            meta::name(old)
        )));
    }
    if meta::namespace(new) != meta::namespace(old) {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

fn decode(strategy: Strategy, bytes: &Bytes, content_type: &str) -> Result<PatchBody, StatusError> {
    let object = || match serde_json::from_slice(bytes).map_err(|error| decode_error(&error))? {
        patch @ Value::Object(_) => Ok(patch),
        _ => Err(StatusError::bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        )),
    };
    // kube-apiserver's merge metadata (struct tags of Go types) exists for built-in kinds only.
    let accepted: &[&str] = if strategy == Strategy::Custom {
        &[JSON, MERGE, APPLY]
    } else {
        &[JSON, MERGE, STRATEGIC, APPLY]
    };
    match media_type(content_type) {
        JSON => {
            let patch = operations(bytes)?;
            if patch.0.len() > MAX_OPERATIONS {
                return Err(StatusError::too_many_operations(MAX_OPERATIONS, patch.0.len()));
            }
            Ok(PatchBody::Json(patch))
        }
        MERGE => object().map(PatchBody::Merge),
        STRATEGIC if strategy != Strategy::Custom => Ok(PatchBody::Strategic(strategy, object()?)),
        _ => Err(StatusError::unsupported_media_type("", accepted)),
    }
}

/// Decodes a list of operations. An unknown operation fails like one that does not apply.
fn operations(bytes: &Bytes) -> Result<Patch, StatusError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| decode_error(&error))?;
    match &value {
        Value::Array(list) if list.iter().all(Value::is_object) => {
            serde_json::from_value(value).map_err(|_| StatusError::patch_does_not_apply())
        }
        _ => Err(StatusError::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        )),
    }
}

fn decode_error(error: &serde_json::Error) -> StatusError {
    let reason = if error.is_eof() {
        "unexpected end of JSON input".into()
    } else {
        error.to_string()
    };
    StatusError::bad_request(format!("error decoding patch: {reason}"))
}

impl PatchBody {
    /// Returns the patched object.
    pub(super) fn apply(&self, object: &Value) -> Result<Value, StatusError> {
        let mut patched = object.clone();
        match self {
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Strategic(strategy, patch) => strategic_merge::apply(*strategy, &mut patched, patch)
                .map_err(|error| StatusError::bad_request(error.to_string()))?,
            Self::Json(patch) => apply_operations(&mut patched, patch)?,
        }
        Ok(patched)
    }
}

/// Applies operations in order. As in Go's library, a test for null also passes for an absent field, by which clients require
/// its absence, and the replacement of a field that its object lacks adds the field.
fn apply_operations(object: &mut Value, patch: &Patch) -> Result<(), StatusError> {
    let mut copied = 0_usize;
    for operation in &patch.0 {
        let (value, is_copy) = written_value(object, operation);
        if let Some(value) = value {
            let levels = MAX_DEPTH.checked_sub(operation.path().as_str().matches('/').count());
            if !levels.is_some_and(|levels| depth::is_within(value, levels)) {
                return Err(StatusError::patch_does_not_apply());
            }
            if is_copy {
                copied = copied.saturating_add(value.to_string().len());
            }
        }
        if copied > MAX_COPIED_BYTES {
            return Err(StatusError::patch_does_not_apply());
        }
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        if let PatchOperation::Replace(replace) = operation
            && let Some((parent, field)) = replace.path.split_back()
            && let Some(Value::Object(fields)) = object.pointer_mut(parent.as_str())
        {
            fields.insert(field.decoded().into_owned(), replace.value.clone());
            continue;
        }
        json_patch::patch(object, std::slice::from_ref(operation))
            .map_err(|_| StatusError::patch_does_not_apply())?;
    }
    Ok(())
}

/// Returns the value that an operation writes, if there is one, and whether it comes from the object.
fn written_value<'a>(object: &'a Value, operation: &'a PatchOperation) -> (Option<&'a Value>, bool) {
    match operation {
        PatchOperation::Add(add) => (Some(&add.value), false),
        PatchOperation::Replace(replace) => (Some(&replace.value), false),
        PatchOperation::Copy(copy) => (object.pointer(copy.from.as_str()), true),
        PatchOperation::Move(from) => (object.pointer(from.from.as_str()), true),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => (None, false),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_copies_of_a_patch_are_limited() {
        let copies = |count: usize| {
            let copies: Vec<Value> = (0..count)
                .map(|number| json!({"op": "copy", "from": "/data/a", "path": format!("/data/b{number}")}))
                .collect();
            let patch: Patch = serde_json::from_value(copies.into()).unwrap();
            let mut object = json!({"data": {"a": "x".repeat(1 << 20)}});
            apply_operations(&mut object, &patch)
        };
        assert_eq!(copies(2), Ok(()));
        assert_eq!(copies(4), Err(StatusError::patch_does_not_apply()));
    }

    #[test]
    fn a_patch_makes_no_deep_object() {
        let of = |operations: Value| {
            let patch: Patch = serde_json::from_value(operations).unwrap();
            apply_operations(&mut json!({"a": {}}), &patch)
        };
        // Each copy doubles the depth.
        let copies = |count: u32| {
            let copy =
                |number| json!({"op": "copy", "from": "/a", "path": "/a".repeat(2_usize.pow(number) + 1)});
            of((0..count).map(copy).collect())
        };
        assert_eq!(copies(3), Ok(()));
        assert_eq!(copies(8), Err(StatusError::patch_does_not_apply()));
        let moves = (0..200).flat_map(|_| {
            [
                json!({"op": "add", "path": "/b", "value": {}}),
                json!({"op": "move", "from": "/a", "path": "/b/a"}),
                json!({"op": "move", "from": "/b", "path": "/a"}),
            ]
        });
        assert_eq!(of(moves.collect()), Err(StatusError::patch_does_not_apply()));
    }
}
