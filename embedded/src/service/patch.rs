//! patch: JSON patch (RFC 6902), merge patch (RFC 7396) and, for built-in kinds, strategic merge patch.

use bytes::Bytes;
use http::StatusCode;
use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::{
    Call, Reply, StatusError, body, call::present, negotiate::media_type, query::FieldValidation, strategic,
    write::update,
};
use crate::{admit::Part, meta, resource::Family};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// As kube-apiserver: more operations are refused before any is tried.
const OPERATIONS: usize = 10_000;

/// A decoded patch.
enum Change {
    Json(Patch),
    Merge(Value),
    Strategic(Family, Value),
}

/// PATCH on an object or a subresource.
pub(super) async fn apply(
    call: &Call,
    part: Part,
    bytes: Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let change = decode(call.resource.family, &bytes, content_type)?;
    let key = call.key(&call.at.name);
    let (resource, at, warnings) = (call.resource.clone(), key.clone(), call.warnings.clone());
    let validation = call.query.field_validation;
    let repeated = body::repeated(&bytes, content_type, validation);
    let stored = call.commit(key, move |state| {
        let old = state
            .get(&at)
            .ok_or_else(|| StatusError::not_found(&resource, &at.name))?;
        let before = present(&resource, old);
        let patched = change.apply(&before)?;
        // What the schema drops has been warned about when it was written; here only the patch can be new.
        let validation = if patched == *before && repeated.is_empty() {
            FieldValidation::Ignore
        } else {
            validation
        };
        let mut new = body::patched(&resource, patched, repeated, validation, &warnings)?;
        check_identity(&new, old)?;
        if meta::resource_version(&new).is_empty() {
            meta::set(
                &mut new,
                "resourceVersion",
                old["metadata"]["resourceVersion"].clone(),
            );
        }
        update(&resource, new, old, part)
    });
    Ok(Reply::Object(StatusCode::OK, stored.await?))
}

fn check_identity(new: &Value, old: &Value) -> Result<(), StatusError> {
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

fn decode(family: Family, bytes: &Bytes, content_type: &str) -> Result<Change, StatusError> {
    let object = || match serde_json::from_slice(bytes).map_err(|error| unreadable(&error))? {
        patch @ Value::Object(_) => Ok(patch),
        _ => Err(StatusError::bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        )),
    };
    // Go has the tags that say how lists merge for built-in kinds only.
    let accepted: &[&str] = if family == Family::Custom {
        &[JSON, MERGE]
    } else {
        &[JSON, MERGE, STRATEGIC]
    };
    match media_type(content_type) {
        JSON => {
            let patch = operations(bytes)?;
            if patch.0.len() > OPERATIONS {
                return Err(StatusError::too_many_operations(OPERATIONS, patch.0.len()));
            }
            Ok(Change::Json(patch))
        }
        MERGE => object().map(Change::Merge),
        STRATEGIC if family != Family::Custom => Ok(Change::Strategic(family, object()?)),
        APPLY => Err(StatusError::unsupported_media_type(
            "server-side apply is not supported by this server: ",
            accepted,
        )),
        _ => Err(StatusError::unsupported_media_type("", accepted)),
    }
}

/// A list of operations. One that does not exist fails like one that does not apply.
fn operations(bytes: &Bytes) -> Result<Patch, StatusError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
    match &value {
        Value::Array(list) if list.iter().all(Value::is_object) => {
            serde_json::from_value(value).map_err(|_| StatusError::patch_does_not_apply())
        }
        _ => Err(StatusError::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        )),
    }
}

fn unreadable(error: &serde_json::Error) -> StatusError {
    let why = if error.is_eof() {
        "unexpected end of JSON input".into()
    } else {
        error.to_string()
    };
    StatusError::bad_request(format!("error decoding patch: {why}"))
}

impl Change {
    fn apply(self, object: &Value) -> Result<Value, StatusError> {
        let mut patched = object.clone();
        match self {
            Self::Merge(patch) => json_patch::merge(&mut patched, &patch),
            Self::Strategic(family, patch) => strategic::apply(family, &mut patched, &patch)
                .map_err(|error| StatusError::bad_request(error.to_string()))?,
            Self::Json(patch) => operate(&mut patched, patch)?,
        }
        Ok(patched)
    }
}

/// Applies operations in order. As in Go's library, a test for null also passes where there is nothing: that is how
/// clients insist on a field's absence.
fn operate(object: &mut Value, patch: Patch) -> Result<(), StatusError> {
    for operation in patch.0 {
        if let PatchOperation::Test(test) = &operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(object, &[operation]).map_err(|_| StatusError::patch_does_not_apply())?;
    }
    Ok(())
}
