//! Kubernetes' protobuf, as far as clients send it: `kubectl create`, OpenTofu's kubernetes backend (its Lease), and the typed
//! clients of client-go and controller-runtime encode built-in kinds in it and read JSON.
//!
//! A body is `k8s\0` and a `runtime.Unknown` with the kind and the encoded object. The decoder uses tables of field numbers
//! (`generated.proto` of k8s.io/api) and rejects fields and kinds without an entry.

mod authorization;
mod tables;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::authorization::{
    ACCESS_REVIEW, CLUSTER_ROLE, ROLE, ROLE_BINDING, RULES_REVIEW, SCALE, SELF_REVIEW, TOKEN_REQUEST,
    TOKEN_REVIEW,
};
use self::tables::{
    CONFIG_MAP, DELETE_OPTIONS, EVENT, EVENT_OF_EVENTS_V1, Field, FieldType, LEASE, NAMESPACE, SECRET,
    SERVICE_ACCOUNT, UNKNOWN,
};
use super::event;

const MAGIC: &[u8] = b"k8s\0";

/// The error of a body that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtobufError {
    /// The bytes are not protobuf of this kind.
    #[error("malformed protobuf: {0}")]
    Malformed(&'static str),
    /// The kind has no table.
    #[error("protobuf of kind {0:?} is not supported by this server")]
    Kind(String),
    /// The field is not in its table.
    #[error("protobuf field {number} of {kind} is not supported by this server")]
    Field {
        /// Kind of the message.
        kind: String,
        /// Field number.
        number: u64,
    },
}

/// Decodes a body to the JSON of its object. An Event of `events.k8s.io` becomes one of the core group, as which it is stored.
pub(super) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or(ProtobufError::Malformed("missing prefix"))?;
    let head = message("runtime.Unknown", UNKNOWN, envelope)?;
    let text = |field: &str| head["typeMeta"][field].as_str().unwrap_or("").to_owned();
    let (mut version, kind) = (text("apiVersion"), text("kind"));
    let table = match kind.as_str() {
        "Secret" => SECRET,
        "ConfigMap" => CONFIG_MAP,
        "Namespace" => NAMESPACE,
        "Lease" => LEASE,
        "Event" if version == event::VERSION => {
            "v1".clone_into(&mut version);
            EVENT_OF_EVENTS_V1
        }
        "Event" => EVENT,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "DeleteOptions" => DELETE_OPTIONS,
        "Role" => ROLE,
        "ClusterRole" => CLUSTER_ROLE,
        "RoleBinding" | "ClusterRoleBinding" => ROLE_BINDING,
        "SelfSubjectReview" => SELF_REVIEW,
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => ACCESS_REVIEW,
        "SelfSubjectRulesReview" => RULES_REVIEW,
        "TokenRequest" => TOKEN_REQUEST,
        "TokenReview" => TOKEN_REVIEW,
        "Scale" => SCALE,
        _ => return Err(ProtobufError::Kind(kind)),
    };
    let mut raw: &[u8] = &[];
    let mut rest = Reader(envelope);
    while let Some((number, content)) = rest.field()? {
        if let (2, WireValue::Bytes(bytes)) = (number, content) {
            raw = bytes;
        }
    }
    let mut object = message(&kind, table, raw)?;
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    Ok(object)
}

fn message(kind: &str, table: &[Field], bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut fields = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.field()? {
        let entry = table.iter().find(|(field, _, _)| *field == number);
        let (_, name, field_type) = entry.ok_or_else(|| ProtobufError::Field {
            kind: kind.into(),
            number,
        })?;
        insert_field(&mut fields, name, *field_type, content)?;
    }
    Ok(Value::Object(fields))
}

fn insert_field(
    fields: &mut Map<String, Value>,
    name: &str,
    field_type: FieldType,
    content: WireValue<'_>,
) -> Result<(), ProtobufError> {
    let value = match (field_type, content) {
        (FieldType::Ignored, _)
        | (FieldType::OptionalString, WireValue::Bytes([]))
        | (FieldType::OptionalInteger, WireValue::Varint(0)) => return Ok(()),
        (FieldType::String | FieldType::OptionalString | FieldType::Strings, WireValue::Bytes(bytes)) => {
            utf8(bytes)?.into()
        }
        (FieldType::Bool, WireValue::Varint(number)) => (number != 0).into(),
        (FieldType::Integer | FieldType::OptionalInteger, WireValue::Varint(number)) => {
            number.cast_signed().into()
        }
        (FieldType::Time, WireValue::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
        (FieldType::MicroTime, WireValue::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%S%.6fZ")?,
        (FieldType::Message(table) | FieldType::Messages(table), WireValue::Bytes(bytes)) => {
            message(name, table, bytes)?
        }
        (FieldType::StringMap | FieldType::BytesMap, WireValue::Bytes(bytes)) => {
            let (key, value) = map_entry(bytes)?;
            let value = if matches!(field_type, FieldType::BytesMap) {
                STANDARD.encode(value)
            } else {
                utf8(value)?.into()
            };
            if let Value::Object(map) = fields.entry(name).or_insert_with(|| json!({})) {
                map.insert(key, value.into());
            }
            return Ok(());
        }
        _ => return Err(ProtobufError::Malformed("wrong wire type of a field")),
    };
    if matches!(field_type, FieldType::Strings | FieldType::Messages(_)) {
        if let Value::Array(list) = fields.entry(name).or_insert_with(|| json!([])) {
            list.push(value);
        }
    } else {
        fields.insert(name.into(), value);
    }
    Ok(())
}

fn utf8(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::Malformed("a string is not UTF-8"))
}

/// Returns key and value of a map entry.
fn map_entry(bytes: &[u8]) -> Result<(String, &[u8]), ProtobufError> {
    let (mut key, mut value): (String, &[u8]) = (String::new(), &[]);
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.field()? {
        match (number, content) {
            (1, WireValue::Bytes(bytes)) => key = utf8(bytes)?.into(),
            (2, WireValue::Bytes(bytes)) => value = bytes,
            _ => return Err(ProtobufError::Malformed("unknown field in a map entry")),
        }
    }
    Ok((key, value))
}

/// Returns a time in this format; the zero time, which Go encodes as an empty message, is null.
fn time(bytes: &[u8], format: &str) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanoseconds) = (None, 0);
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.field()? {
        match (number, content) {
            (1, WireValue::Varint(number)) => seconds = Some(number.cast_signed()),
            (2, WireValue::Varint(number)) => nanoseconds = i32::try_from(number).unwrap_or(0),
            _ => {}
        }
    }
    let Some(seconds) = seconds else {
        return Ok(Value::Null);
    };
    let time = Timestamp::new(seconds, nanoseconds)
        .map_err(|_| ProtobufError::Malformed("a time is out of range"))?;
    Ok(time.strftime(format).to_string().into())
}

/// A field value by wire type; Kubernetes does not use those of fixed width.
#[derive(Clone, Copy, Debug)]
enum WireValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// Reads the fields of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn field(&mut self) -> Result<Option<(u64, WireValue<'a>)>, ProtobufError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                let (bytes, rest) = self
                    .0
                    .split_at_checked(length)
                    .ok_or(ProtobufError::Malformed("truncated"))?;
                self.0 = rest;
                WireValue::Bytes(bytes)
            }
            _ => return Err(ProtobufError::Malformed("unknown wire type")),
        };
        Ok(Some((tag >> 3, content)))
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0_u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self
                .0
                .split_first()
                .ok_or(ProtobufError::Malformed("truncated"))?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Malformed("a varint is too long"))
    }
}

#[cfg(test)]
mod tests;
