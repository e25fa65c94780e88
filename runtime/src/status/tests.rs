//! Tests of the difference, and of the writer with a fake API that stores one object and detects conflicts.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};
use kube::Client;
use kube::client::Body;
use proptest::prelude::*;
use tower::BoxError;

use super::*;
use crate::sync::lock;

/// Serves get and merge patch of one object, with optimistic locking.
#[derive(Default)]
struct FakeApi {
    object: Mutex<Value>,
    /// Called before each patch, to act as another writer.
    meddle: Mutex<Vec<Value>>,
    patches: Mutex<Vec<Value>>,
}

fn refusal(code: u16) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Conflict" };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": reason});
    (code, status)
}

impl FakeApi {
    fn holding(object: Value) -> Arc<Self> {
        Arc::new(Self {
            object: Mutex::new(object),
            ..Self::default()
        })
    }

    fn change(&self, patch: &Value) {
        let mut object = lock(&self.object);
        merge(&mut object, patch);
        let version: u64 = object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }

    fn answer(&self, method: &Method, body: &[u8]) -> (u16, Value) {
        if lock(&self.object).is_null() {
            return refusal(404);
        }
        if *method == Method::GET {
            return (200, lock(&self.object).clone());
        }
        let meddled = lock(&self.meddle).pop();
        if let Some(patch) = meddled {
            self.change(&patch);
        }
        let mut patch: Value = serde_json::from_slice(body).unwrap();
        let version = patch["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion")
            .unwrap();
        if version != lock(&self.object)["metadata"]["resourceVersion"] {
            return refusal(409);
        }
        lock(&self.patches).push(patch.clone());
        self.change(&patch);
        (200, lock(&self.object).clone())
    }

    fn api(self: &Arc<Self>) -> Api<Namespace> {
        let fake = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = Arc::clone(&fake);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (status, content) = fake.answer(&parts.method, &body);
                let mut response = Response::new(Full::new(bytes::Bytes::from(content.to_string())));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok::<_, BoxError>(response)
            }
        });
        Api::all(Client::new(service, "default"))
    }

    fn seen(&self) -> Namespace {
        serde_json::from_value(lock(&self.object).clone()).unwrap()
    }
}

/// RFC 7396, section 2.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn condition(type_: &str, message: &str) -> NamespaceCondition {
    NamespaceCondition {
        type_: type_.into(),
        status: "True".into(),
        message: Some(message.into()),
        ..NamespaceCondition::default()
    }
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "uid": "1", "resourceVersion": "7"},
           "status": {"phase": "Active", "conditions": [{"type": "Theirs", "status": "True"}]}})
}

fn wanted(message: &str) -> NamespaceStatus {
    NamespaceStatus {
        conditions: Some(vec![condition("Ready", message)]),
        phase: None,
    }
}

#[tokio::test]
async fn one_patch_contains_the_difference_and_no_patch_follows_without_one() {
    let fake = FakeApi::holding(namespace());
    let written = apply(&fake.api(), &fake.seen(), &["Ready"], |_| wanted("well"))
        .await
        .unwrap();
    assert!(matches!(written, Applied::Written(_)));
    let patch = json!({"metadata": {}, "status": {"phase": null, "conditions": [
        {"type": "Ready", "status": "True", "message": "well"}, {"type": "Theirs", "status": "True"}]}});
    assert_eq!(*lock(&fake.patches), [patch]);
    let again = apply(&fake.api(), &fake.seen(), &["Ready"], |_| wanted("well"))
        .await
        .unwrap();
    assert!(matches!(again, Applied::Unchanged(_)));
    assert_eq!(lock(&fake.patches).len(), 1);
}

#[tokio::test]
async fn a_conflict_rereads_and_retains_the_other_write() {
    let fake = FakeApi::holding(namespace());
    let theirs = json!({"status": {"conditions": [{"type": "Theirs", "status": "False"}, {"type": "New", "status": "True"}]}});
    lock(&fake.meddle).push(theirs);
    let computed = Mutex::new(0);
    let (api, seen) = (fake.api(), fake.seen());
    let written = apply(&api, &seen, &["Ready"], |_| {
        *lock(&computed) += 1;
        wanted("well")
    });
    let conditions = written
        .await
        .unwrap()
        .object()
        .unwrap()
        .status
        .unwrap()
        .conditions
        .unwrap();
    let types: Vec<_> = conditions
        .iter()
        .map(|c| format!("{}={}", c.type_, c.status))
        .collect();
    assert_eq!(types, ["Ready=True", "Theirs=False", "New=True"]);
    assert_eq!(*lock(&computed), 2);
}

#[tokio::test]
async fn endless_conflicts_end() {
    let fake = FakeApi::holding(namespace());
    for n in 0..10 {
        lock(&fake.meddle).push(json!({"metadata": {"labels": {"n": n.to_string()}}}));
    }
    let error = apply(&fake.api(), &fake.seen(), &["Ready"], |_| wanted("well"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write status of Namespace a: 5 conflicts in a row"
    );
}

#[tokio::test]
async fn a_deleted_or_replaced_object_is_not_written() {
    let fake = FakeApi::holding(namespace());
    let seen = fake.seen();
    *lock(&fake.object) = Value::Null;
    assert_eq!(
        apply(&fake.api(), &seen, &["Ready"], |_| wanted("x"))
            .await
            .unwrap(),
        Applied::Gone
    );
    *lock(&fake.object) = json!({"metadata": {"name": "a", "uid": "2", "resourceVersion": "9"}});
    assert_eq!(
        apply(&fake.api(), &seen, &["Ready"], |_| wanted("x"))
            .await
            .unwrap(),
        Applied::Gone
    );
    assert!(lock(&fake.patches).is_empty());
}

#[tokio::test]
async fn a_finalizer_is_added_once_and_removed_without_touching_others() {
    let mut object = namespace();
    object["metadata"]["finalizers"] = json!(["theirs"]);
    let fake = FakeApi::holding(object);
    crate::finalizer::ensure(&fake.api(), &fake.seen(), "ours")
        .await
        .unwrap();
    assert!(crate::finalizer::is_present(&fake.seen(), "ours"));
    let again = crate::finalizer::ensure(&fake.api(), &fake.seen(), "ours")
        .await
        .unwrap();
    assert!(matches!(again, Applied::Unchanged(_)));
    lock(&fake.meddle).push(json!({"metadata": {"finalizers": ["theirs", "ours", "third"]}}));
    crate::finalizer::remove(&fake.api(), &fake.seen(), "ours")
        .await
        .unwrap();
    assert_eq!(fake.seen().metadata.finalizers.unwrap(), ["theirs", "third"]);
    let mut deleting = fake.seen();
    deleting.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        jiff::Timestamp::UNIX_EPOCH,
    ));
    let refused = crate::finalizer::ensure(&fake.api(), &deleting, "ours")
        .await
        .unwrap();
    assert!(
        matches!(refused, Applied::Unchanged(_)),
        "the API forbids new finalizers then"
    );
}

#[test]
fn removed_keys_are_null_and_equal_keys_are_absent() {
    let before = json!({"a": 1, "b": {"x": 1, "y": 2}, "list": [1, 2], "same": "s"});
    let after = json!({"b": {"x": 1, "y": 3}, "list": [2], "same": "s", "new": {"deep": {"er": null}}});
    assert_eq!(
        difference(&before, &after),
        Some(json!({"a": null, "b": {"y": 3}, "list": [2], "new": {"deep": {}}}))
    );
    assert_eq!(difference(&after, &after), None);
    assert_eq!(difference(&Value::Null, &json!({})), Some(json!({})));
    assert_eq!(difference(&json!({"a": null}), &json!({})), None);
}

#[test]
fn foreign_conditions_are_retained() {
    let before = json!({"conditions": [
        {"type": "Ready", "status": "True"}, {"type": "Theirs", "status": "True"}, {"type": "Gone", "status": "True"},
    ]});
    let mut after =
        json!({"conditions": [{"type": "Ready", "status": "False"}, {"type": "Theirs", "status": "False"}]});
    retain_foreign_conditions(&before, &mut after, &["Ready", "Gone"]);
    assert_eq!(
        after,
        json!({"conditions": [{"type": "Ready", "status": "False"}, {"type": "Theirs", "status": "True"}]})
    );
    let mut nothing = Value::Null;
    retain_foreign_conditions(&before, &mut nothing, &["Ready", "Gone"]);
    assert_eq!(
        nothing,
        json!({"conditions": [{"type": "Theirs", "status": "True"}]})
    );
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4).prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Removes null members of objects; leaves lists unchanged.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(k, v)| (k.clone(), without_nulls(v)))
                .collect(),
        ),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn the_patch_transforms_before_to_after(before in json_value(), after in json_value()) {
        let mut result = before.clone();
        if let Some(patch) = difference(&before, &after) {
            merge(&mut result, &patch);
        }
        prop_assert_eq!(without_nulls(&result), without_nulls(&after));
    }
}
