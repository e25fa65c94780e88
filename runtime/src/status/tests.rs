//! Tests of the writer with a fake API that stores one object and detects conflicts.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

use super::*;
use crate::sync::lock;

/// Serves get and merge patch of one object, with optimistic locking.
#[derive(Default)]
struct World {
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

impl World {
    fn holding(object: Value) -> Arc<Self> {
        Arc::new(Self {
            object: Mutex::new(object),
            ..Self::default()
        })
    }

    fn change(&self, patch: &Value) {
        let mut object = lock(&self.object);
        json_merge(&mut object, patch);
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
        let world = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let world = Arc::clone(&world);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (status, content) = world.answer(&parts.method, &body);
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

fn json_merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            json_merge(&mut target[key], value);
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
    let world = World::holding(namespace());
    let written = apply(&world.api(), &world.seen(), &["Ready"], |_| wanted("well"))
        .await
        .unwrap();
    assert!(matches!(written, Applied::Written(_)));
    let patch = json!({"metadata": {}, "status": {"phase": null, "conditions": [
        {"type": "Ready", "status": "True", "message": "well"}, {"type": "Theirs", "status": "True"}]}});
    assert_eq!(*lock(&world.patches), [patch]);
    let again = apply(&world.api(), &world.seen(), &["Ready"], |_| wanted("well"))
        .await
        .unwrap();
    assert!(matches!(again, Applied::Unchanged(_)));
    assert_eq!(lock(&world.patches).len(), 1);
}

#[tokio::test]
async fn a_conflict_rereads_and_retains_the_other_write() {
    let world = World::holding(namespace());
    let theirs = json!({"status": {"conditions": [{"type": "Theirs", "status": "False"}, {"type": "New", "status": "True"}]}});
    lock(&world.meddle).push(theirs);
    let computed = Mutex::new(0);
    let (api, seen) = (world.api(), world.seen());
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
    let world = World::holding(namespace());
    for n in 0..10 {
        lock(&world.meddle).push(json!({"metadata": {"labels": {"n": n.to_string()}}}));
    }
    let error = apply(&world.api(), &world.seen(), &["Ready"], |_| wanted("well"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write status of Namespace a: 5 conflicts in a row"
    );
}

#[tokio::test]
async fn a_deleted_or_replaced_object_is_not_written() {
    let world = World::holding(namespace());
    let seen = world.seen();
    *lock(&world.object) = Value::Null;
    assert_eq!(
        apply(&world.api(), &seen, &["Ready"], |_| wanted("x"))
            .await
            .unwrap(),
        Applied::Gone
    );
    *lock(&world.object) = json!({"metadata": {"name": "a", "uid": "2", "resourceVersion": "9"}});
    assert_eq!(
        apply(&world.api(), &seen, &["Ready"], |_| wanted("x"))
            .await
            .unwrap(),
        Applied::Gone
    );
    assert!(lock(&world.patches).is_empty());
}

#[tokio::test]
async fn a_finalizer_is_added_once_and_removed_without_touching_others() {
    let mut object = namespace();
    object["metadata"]["finalizers"] = json!(["theirs"]);
    let world = World::holding(object);
    crate::finalizer::ensure(&world.api(), &world.seen(), "ours")
        .await
        .unwrap();
    assert!(crate::finalizer::is_present(&world.seen(), "ours"));
    let again = crate::finalizer::ensure(&world.api(), &world.seen(), "ours")
        .await
        .unwrap();
    assert!(matches!(again, Applied::Unchanged(_)));
    lock(&world.meddle).push(json!({"metadata": {"finalizers": ["theirs", "ours", "third"]}}));
    crate::finalizer::remove(&world.api(), &world.seen(), "ours")
        .await
        .unwrap();
    assert_eq!(world.seen().metadata.finalizers.unwrap(), ["theirs", "third"]);
    let mut deleting = world.seen();
    deleting.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        jiff::Timestamp::UNIX_EPOCH,
    ));
    let refused = crate::finalizer::ensure(&world.api(), &deleting, "ours")
        .await
        .unwrap();
    assert!(
        matches!(refused, Applied::Unchanged(_)),
        "the API forbids new finalizers then"
    );
}
