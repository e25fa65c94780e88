//! Request bodies: bounded, decoded from JSON or YAML, and checked to be of the kind that the path says.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use super::{
    StatusError,
    call::Warnings,
    duplicate,
    negotiate::media_type,
    protobuf::{self, ProtobufError},
    query::FieldValidation,
};
use crate::{
    admit,
    resource::{Family, Resource},
};

/// As kube-apiserver.
const LIMIT: usize = 3 * 1024 * 1024;

/// Bytes of a body that an error quotes.
const QUOTED: usize = 30;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// What every object can be sent in.
const ACCEPTED: [&str; 2] = ["application/json", "application/yaml"];

/// Reads a body to its end.
pub(super) async fn read<B>(body: B) -> Result<Bytes, StatusError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    // `Limited` boxes the body's error; a text is all that is wanted of it.
    let body = body.map_err(|error| std::io::Error::other(error.to_string()));
    match Limited::new(Box::pin(body), LIMIT).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(StatusError::too_large(LIMIT)),
        Err(error) => Err(StatusError::bad_request(format!(
            "unable to read the request body: {error}"
        ))),
    }
}

/// A body as a value, from JSON or YAML.
pub(super) fn value(bytes: &[u8], content_type: &str) -> Result<Value, StatusError> {
    decode(bytes, content_type).map_err(|error| match error {
        Undecodable::Text(why) => {
            StatusError::bad_request(format!("the object provided is unrecognized: {why}"))
        }
        Undecodable::Refused(error) => error,
    })
}

/// A body that is no value.
enum Undecodable {
    /// What the parser says.
    Text(String),
    Refused(StatusError),
}

fn decode(bytes: &[u8], content_type: &str) -> Result<Value, Undecodable> {
    let refused = match media_type(content_type) {
        "" | "application/json" => return serde_json::from_slice(bytes).map_err(|error| no_json(&error)),
        "application/yaml" => return serde_yaml_ng::from_slice(bytes).map_err(|error| no_json(&error)),
        "application/vnd.kubernetes.protobuf" => match protobuf::decode(bytes) {
            Ok(value) => return Ok(value),
            Err(error @ ProtobufError::Malformed(_)) => StatusError::bad_request(error.to_string()),
            Err(error) => StatusError::unsupported_media_type(&format!("{error}: "), &ACCEPTED),
        },
        _ => StatusError::unsupported_media_type("", &ACCEPTED),
    };
    Err(Undecodable::Refused(refused))
}

fn no_json(error: &dyn std::fmt::Display) -> Undecodable {
    Undecodable::Text(format!("couldn't get version/kind; json parse error: {error}"))
}

/// 400 for a body that does not decode as an object of the kind. `shown` is the part of it that the message quotes.
fn unrecognized(resource: &Resource, why: &str, shown: &str) -> StatusError {
    StatusError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({shown})",
        resource.kind
    ))
}

/// The beginning of a body, as kube-apiserver quotes it: as text where it looks like JSON, else in hexadecimal digits.
fn beginning(bytes: &[u8]) -> String {
    let front = bytes.get(..QUOTED).unwrap_or(bytes);
    let more = if front.len() < bytes.len() { " ..." } else { "" };
    match front {
        [] => "<empty>".to_owned(),
        [b'{', ..] => format!("{}{more}", String::from_utf8_lossy(front)),
        _ => format!("{}{more}", hex::encode(front)),
    }
}

/// Texts about the fields that a JSON body gives more than once.
pub(super) fn repeated(bytes: &[u8], content_type: &str, validation: FieldValidation) -> Vec<String> {
    if validation == FieldValidation::Ignore || !matches!(media_type(content_type), "" | JSON | MERGE) {
        return Vec::new();
    }
    let paths = duplicate::fields(bytes);
    paths
        .iter()
        .map(|path| format!("duplicate field {path:?}"))
        .collect()
}

/// An object of `resource` out of a request body: its kind checked, formed, unknown fields treated as asked.
pub(super) fn object(
    resource: &Resource,
    bytes: &[u8],
    content_type: &str,
    validation: FieldValidation,
    warnings: &Warnings,
) -> Result<Value, StatusError> {
    let decoded = decode(bytes, content_type).map_err(|error| match error {
        Undecodable::Text(why) => unrecognized(resource, &why, &beginning(bytes)),
        Undecodable::Refused(error) => error,
    });
    let mut object = decoded?;
    check_kind(resource, &mut object, &beginning(bytes))?;
    let refused = |why: String| {
        StatusError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: {why}",
            resource.version,
            kind = resource.kind,
        ))
    };
    let dropped = admit::form(resource, &mut object).map_err(refused)?;
    let faults = repeated(bytes, content_type, validation);
    match strict_error(faults, &dropped, validation, warnings) {
        Some(why) => Err(refused(why)),
        None => Ok(object),
    }
}

/// The same of a patch's result, whose faults are worded differently. `faults` are those of the patch itself.
pub(super) fn patched(
    resource: &Resource,
    mut object: Value,
    faults: Vec<String>,
    validation: FieldValidation,
    warnings: &Warnings,
) -> Result<Value, StatusError> {
    let whole = object.clone();
    check_kind(resource, &mut object, &whole.to_string())
        .map_err(|error| StatusError::invalid_patch(&whole, error.message()))?;
    let formed = admit::form(resource, &mut object);
    let dropped = formed.map_err(|why| StatusError::invalid_patch(&whole, &why))?;
    match strict_error(faults, &dropped, validation, warnings) {
        Some(why) => Err(StatusError::invalid_patch(&whole, &why)),
        None => Ok(object),
    }
}

/// What a strict request is told about repeated and dropped fields; a lenient one is warned.
fn strict_error(
    repeated: Vec<String>,
    dropped: &[String],
    validation: FieldValidation,
    warnings: &Warnings,
) -> Option<String> {
    let mut texts = repeated;
    texts.extend(dropped.iter().map(|path| format!("unknown field {path:?}")));
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

/// `shown` is what an error quotes of the body.
fn check_kind(resource: &Resource, object: &mut Value, shown: &str) -> Result<(), StatusError> {
    let Some(fields) = object.as_object_mut() else {
        let why = "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct";
        return Err(unrecognized(resource, why, shown));
    };
    let wanted = resource.api_version();
    if resource.family != Family::Custom {
        // Go's typed decoder fills in what the path already says.
        fields
            .entry("apiVersion")
            .or_insert_with(|| wanted.clone().into());
        fields
            .entry("kind")
            .or_insert_with(|| resource.kind.clone().into());
    }
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{object}'");
        return Err(unrecognized(resource, &why, shown));
    }
    if version != wanted {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted})"
        )));
    }
    if kind != resource.kind && resource.family == Family::Custom {
        let name = crate::meta::name(object);
        return Err(StatusError::other_kind(resource, name, &kind));
    }
    if kind != resource.kind {
        return Err(StatusError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: converting ({version}, Kind={kind}) to ({wanted}, Kind={}): unknown conversion",
            resource.version, resource.kind, resource.kind
        )));
    }
    Ok(())
}
