//! Request bodies: limited in size, decoded from JSON, YAML or protobuf, and checked against the kind of the path.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde_json::{Map, Value};

use super::duplicate_fields;
use super::negotiation::media_type;
use super::protobuf::{self, ProtobufError};
use super::query::FieldValidation;
use super::request::{ObjectRequest, Warnings};
use crate::resource::{Resource, Strategy};
use crate::status_error::StatusError;
use crate::{admission, meta, yaml};

/// Maximum size of a body in bytes, as in kube-apiserver.
const MAX_BYTES: usize = 3 * 1024 * 1024;

/// Bytes of a body that an error message quotes.
const EXCERPT_BYTES: usize = 30;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const YAML: &str = "application/yaml";

/// Media types of every kind.
const MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];

/// Reads a whole body.
pub(super) async fn read<B>(body: B) -> Result<Bytes, StatusError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    // `Limited` boxes the body's error, of which only the text is needed.
    let body = body.map_err(|error| std::io::Error::other(error.to_string()));
    match Limited::new(Box::pin(body), MAX_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(StatusError::too_large(MAX_BYTES))
        }
        Err(error) => Err(StatusError::bad_request(format!(
            "unable to read the request body: {error}"
        ))),
    }
}

/// Decodes a body.
pub(super) fn value(bytes: &[u8], content_type: &str) -> Result<Value, StatusError> {
    decode(bytes, content_type).map_err(|error| match error {
        DecodeError::Parse(reason) => {
            StatusError::bad_request(format!("the object provided is unrecognized: {reason}"))
        }
        DecodeError::Status(error) => error,
    })
}

/// The error of a body that cannot be decoded.
enum DecodeError {
    /// Message of the parser.
    Parse(String),
    Status(StatusError),
}

fn decode(bytes: &[u8], content_type: &str) -> Result<Value, DecodeError> {
    let bad_request = match media_type(content_type) {
        "" | "application/json" => return serde_json::from_slice(bytes).map_err(|error| parse_error(&error)),
        "application/yaml" => return yaml::parse(bytes).map_err(|error| parse_error(&error)),
        "application/vnd.kubernetes.protobuf" => match protobuf::decode(bytes) {
            Ok(value) => return Ok(value),
            Err(error @ ProtobufError::Malformed(_)) => StatusError::bad_request(error.to_string()),
            Err(error) => StatusError::unsupported_media_type(&format!("{error}: "), &MEDIA_TYPES),
        },
        _ => StatusError::unsupported_media_type("", &MEDIA_TYPES),
    };
    Err(DecodeError::Status(bad_request))
}

fn parse_error(error: &dyn std::fmt::Display) -> DecodeError {
    DecodeError::Parse(format!("couldn't get version/kind; json parse error: {error}"))
}

/// Returns 400 for a body that does not decode as an object of the kind. The message quotes `excerpt`.
fn unrecognized(resource: &Resource, reason: &str, excerpt: &str) -> StatusError {
    StatusError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {reason} ({excerpt})",
        resource.kind
    ))
}

/// Returns the beginning of a body as kube-apiserver quotes it: as text if it looks like JSON, otherwise hexadecimal.
fn excerpt_of(bytes: &[u8]) -> String {
    let front = bytes.get(..EXCERPT_BYTES).unwrap_or(bytes);
    let more = if front.len() < bytes.len() { " ..." } else { "" };
    match front {
        [] => "<empty>".to_owned(),
        [b'{', ..] => format!("{}{more}", String::from_utf8_lossy(front)),
        _ => format!("{}{more}", hex::encode(front)),
    }
}

/// Returns a message for each duplicate field of a body, and for each unknown field of an operation of a JSON patch.
pub(super) fn duplicates(bytes: &[u8], content_type: &str, validation: FieldValidation) -> Vec<String> {
    if validation == FieldValidation::Ignore {
        return Vec::new();
    }
    match media_type(content_type) {
        "" | JSON | MERGE | STRATEGIC => duplicate_errors(bytes),
        JSON_PATCH => {
            let errors = duplicate_errors(bytes).into_iter().chain(unknown_errors(bytes));
            errors.map(|error| format!("json patch {error}")).collect()
        }
        YAML => {
            // Unlike JSON's, this type rejects duplicates.
            let parsed = yaml::parse::<serde_yaml_ng::Value>(bytes);
            parsed.err().map(|error| error.to_string()).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn duplicate_errors(bytes: &[u8]) -> Vec<String> {
    let paths = duplicate_fields::find(bytes);
    paths
        .iter()
        .map(|path| format!("duplicate field {path:?}"))
        .collect()
}

/// Returns a message for each field that no operation of a JSON patch has.
fn unknown_errors(bytes: &[u8]) -> Vec<String> {
    let operations: Vec<Map<String, Value>> = serde_json::from_slice(bytes).unwrap_or_default();
    let fields = operations.iter().enumerate().flat_map(|(at, operation)| {
        let unknown = operation
            .keys()
            .filter(|name| !matches!(name.as_str(), "op" | "path" | "from" | "value"));
        unknown.map(move |name| format!("unknown field \"[{at}].{name}\""))
    });
    fields.collect()
}

/// Decodes the object of a request: checks its kind, normalizes it and handles unknown fields as requested.
pub(super) fn decode_object(
    request: &ObjectRequest,
    bytes: &[u8],
    content_type: &str,
) -> Result<Value, StatusError> {
    let (resource, validation) = (&*request.resource, request.query.field_validation);
    let decoded = decode(bytes, content_type).map_err(|error| match error {
        DecodeError::Parse(reason) => unrecognized(resource, &reason, &excerpt_of(bytes)),
        DecodeError::Status(error) => error,
    });
    let mut object = decoded?;
    check_kind(resource, &mut object, &excerpt_of(bytes))?;
    let bad_request = |reason: String| {
        let (kind, version) = (&resource.kind, &resource.version);
        StatusError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {reason}"
        ))
    };
    let unknown = admission::normalize(resource, &mut object).map_err(bad_request)?;
    let duplicates = duplicates(bytes, content_type, validation);
    match strict_error(duplicates, &unknown, validation, &request.warnings) {
        Some(reason) => Err(bad_request(reason)),
        None => Ok(object),
    }
}

/// Like [`decode_object`] for the result of a patch, whose errors differ. `duplicates` are those of the patch.
pub(super) fn decode_patched(
    resource: &Resource,
    mut object: Value,
    duplicates: Vec<String>,
    validation: FieldValidation,
    warnings: &Warnings,
) -> Result<Value, StatusError> {
    let whole = object.clone();
    check_kind(resource, &mut object, &whole.to_string())
        .map_err(|error| StatusError::invalid_patch(&whole, error.message()))?;
    let normalized = admission::normalize(resource, &mut object);
    let unknown = normalized.map_err(|reason| StatusError::invalid_patch(&whole, &reason))?;
    match strict_error(duplicates, &unknown, validation, warnings) {
        Some(reason) => Err(StatusError::invalid_patch(&whole, &reason)),
        None => Ok(object),
    }
}

/// Returns the error for duplicate and unknown fields if validation is strict; adds warnings if it is lenient.
fn strict_error(
    duplicates: Vec<String>,
    unknown: &[String],
    validation: FieldValidation,
    warnings: &Warnings,
) -> Option<String> {
    let mut texts = duplicates;
    texts.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
    match validation {
        FieldValidation::Ignore => None,
        FieldValidation::Warn => {
            for text in texts {
                warnings.push(text);
            }
            None
        }
        FieldValidation::Strict if texts.is_empty() => None,
        FieldValidation::Strict => Some(format!("strict decoding error: {}", texts.join(", "))),
    }
}

/// Checks apiVersion and kind. Errors quote `excerpt`.
fn check_kind(resource: &Resource, object: &mut Value, excerpt: &str) -> Result<(), StatusError> {
    let Some(fields) = object.as_object_mut() else {
        let reason = "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct";
        return Err(unrecognized(resource, reason, excerpt));
    };
    let expected = resource.api_version();
    if resource.strategy != Strategy::Custom {
        // Go's typed decoder takes absent fields from the path.
        fields
            .entry("apiVersion")
            .or_insert_with(|| expected.clone().into());
        fields
            .entry("kind")
            .or_insert_with(|| resource.kind.clone().into());
    }
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() {
        let reason = format!("Object 'Kind' is missing in '{object}'");
        return Err(unrecognized(resource, &reason, excerpt));
    }
    if version != expected {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if kind != resource.kind && resource.strategy == Strategy::Custom {
        let name = meta::name(object);
        return Err(StatusError::wrong_kind(resource, name, &kind));
    }
    if kind != resource.kind {
        return Err(StatusError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: converting ({version}, Kind={kind}) to ({expected}, Kind={}): unknown conversion",
            resource.version, resource.kind, resource.kind
        )));
    }
    Ok(())
}
