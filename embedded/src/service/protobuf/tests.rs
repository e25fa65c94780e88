//! Bodies of each kind, and bodies that are malformed.

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
fn a_token_review_and_a_scale_are_decoded() {
    let version = "authentication.k8s.io/v1";
    let spec = [bytes(1, b"x.y.z"), bytes(2, b"vault")].concat();
    let raw = [bytes(1, b""), bytes(2, &spec), bytes(3, &bytes(2, b""))].concat();
    let review = decode(&body_of(version, "TokenReview", &raw)).unwrap();
    let expected = json!({
        "apiVersion": version, "kind": "TokenReview", "metadata": {}, "spec": {"token": "x.y.z", "audiences": ["vault"]},
    });
    assert_eq!(review, expected);
    let raw = [
        bytes(1, &bytes(1, b"a")),
        bytes(2, &[1 << 3, 3]),
        bytes(3, &[1 << 3, 2]),
    ]
    .concat();
    let scale = decode(&body_of("autoscaling/v1", "Scale", &raw)).unwrap();
    let expected = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 3},
    });
    assert_eq!(scale, expected);
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
