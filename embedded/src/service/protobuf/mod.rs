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
    ACCESS_REVIEW, CLUSTER_ROLE, ROLE, ROLE_BINDING, RULES_REVIEW, SELF_REVIEW, TOKEN_REQUEST,
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
        "SelfSubjectAccessReview" | "SubjectAccessReview" => ACCESS_REVIEW,
        "SelfSubjectRulesReview" => RULES_REVIEW,
        "TokenRequest" => TOKEN_REQUEST,
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A field of bytes shorter than 128.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        body_of("v1", kind, raw)
    }

    fn body_of(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let head = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [
            MAGIC.to_vec(),
            bytes(1, &head),
            bytes(2, raw),
            bytes(3, b""),
            bytes(4, b""),
        ]
        .concat()
    }

    #[test]
    fn a_lease_is_decoded_with_microseconds() {
        // 2026-01-01T00:00:00Z and 5 microseconds.
        let time = [8, 0x80, 0xf2, 0xd6, 0xca, 0x06, 16, 0x88, 0x27];
        let spec = [bytes(1, b"me"), vec![2 << 3, 15], bytes(4, &time)].concat();
        let raw = [bytes(1, &bytes(1, b"lock")), bytes(2, &spec)].concat();
        let object = decode(&body("Lease", &raw)).unwrap();
        let spec = json!({ "holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000005Z" });
        assert_eq!(object["spec"], spec);
    }

    #[test]
    fn a_secret_is_decoded() {
        let metadata = [
            bytes(1, b"a"),
            bytes(8, b""),
            bytes(11, &[bytes(1, b"k"), bytes(2, b"v")].concat()),
        ]
        .concat();
        let entry = [bytes(1, b"x"), bytes(2, b"\x00\xff")].concat();
        let raw = [
            bytes(1, &metadata),
            bytes(2, &entry),
            bytes(3, b"Opaque"),
            vec![5 << 3, 1],
        ]
        .concat();
        assert_eq!(
            decode(&body("Secret", &raw)).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true, "data": {"x": "AP8="},
                "metadata": {"name": "a", "creationTimestamp": null, "labels": {"k": "v"}},
            })
        );
    }

    #[test]
    fn an_event_of_either_group_is_decoded_as_one_of_the_core_group() {
        let page = [
            bytes(1, b"Page"),
            bytes(2, b"default"),
            bytes(3, b"a"),
            bytes(7, b""),
        ]
        .concat();
        // 2026-01-01T00:00:00Z and 5 microseconds; Go encodes the zero time as an empty message.
        let time = [8, 0x80, 0xf2, 0xd6, 0xca, 0x06, 16, 0x88, 0x27];
        let core = [
            bytes(2, &page),
            bytes(3, b"Published"),
            bytes(4, b"The text"),
            bytes(5, &bytes(1, b"")),
            bytes(6, b""),
            vec![8 << 3, 0],
            bytes(9, b"Normal"),
            bytes(10, &time),
            bytes(11, &[vec![1 << 3, 2], bytes(2, &time)].concat()),
            bytes(12, b""),
            bytes(14, b"example"),
            bytes(15, b""),
        ]
        .concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "Event", "reason": "Published", "message": "The text", "type": "Normal",
            "involvedObject": {"kind": "Page", "namespace": "default", "name": "a"}, "source": {}, "firstTimestamp": null,
            "eventTime": "2026-01-01T00:00:00.000005Z", "reportingComponent": "example", "reportingInstance": "",
            "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000005Z"},
        });
        assert_eq!(decode(&body("Event", &core)).unwrap(), expected);
        let newer = [
            bytes(2, &time),
            bytes(3, &[vec![1 << 3, 2], bytes(2, &time)].concat()),
            bytes(4, b"example"),
            bytes(5, b""),
            bytes(6, b""),
            bytes(7, b"Published"),
            bytes(8, &page),
            bytes(10, b"The text"),
            bytes(11, b"Normal"),
            bytes(12, &bytes(1, b"")),
            bytes(13, b""),
            vec![15 << 3, 0],
        ]
        .concat();
        let decoded = decode(&body_of("events.k8s.io/v1", "Event", &newer)).unwrap();
        assert_eq!(decoded, expected);
    }

    #[test]
    fn a_binding_and_the_request_of_a_token_are_decoded() {
        let subject = [
            bytes(1, b"User"),
            bytes(2, b"g"),
            bytes(3, b"jane"),
            bytes(4, b""),
        ]
        .concat();
        let role = [bytes(1, b"g"), bytes(2, b"Role"), bytes(3, b"r")].concat();
        let raw = [bytes(1, &bytes(1, b"b")), bytes(2, &subject), bytes(3, &role)].concat();
        let object = decode(&body("RoleBinding", &raw)).unwrap();
        assert_eq!(
            object["subjects"],
            json!([{ "kind": "User", "apiGroup": "g", "name": "jane", "namespace": "" }])
        );
        assert_eq!(
            object["roleRef"],
            json!({ "apiGroup": "g", "kind": "Role", "name": "r" })
        );
        let spec = [bytes(1, b"vault"), vec![4 << 3, 0x84, 0x07]].concat();
        let raw = [bytes(1, b""), bytes(2, &spec), bytes(3, b"")].concat();
        let object = decode(&body("TokenRequest", &raw)).unwrap();
        assert_eq!(
            object["spec"],
            json!({ "audiences": ["vault"], "expirationSeconds": 900 })
        );
    }

    #[test]
    fn unknown_kinds_and_fields_are_rejected() {
        assert_eq!(decode(&body("Pod", b"")), Err(ProtobufError::Kind("Pod".into())));
        let error = ProtobufError::Field {
            kind: "Secret".into(),
            number: 9,
        };
        assert_eq!(decode(&body("Secret", &bytes(9, b"x"))), Err(error));
        assert!(matches!(decode(b"{}"), Err(ProtobufError::Malformed(_))));
        assert!(matches!(
            decode(&body("Secret", &[10, 99])),
            Err(ProtobufError::Malformed(_))
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(raw in proptest::collection::vec(any::<u8>(), 0..60)) {
            drop(decode(&[MAGIC, &raw].concat()));
            drop(decode(&body("ServiceAccount", &raw)));
        }
    }
}
