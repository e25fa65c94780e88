//! Watches on a store in memory.

use http::Request;

use super::*;
use crate::requester::Requester;
use crate::service::{Api, route};
use crate::store::{Key, Store, Write};

fn api() -> Arc<Api> {
    let (store, registry) = (Arc::new(Store::memory()), Arc::new(Registry::builtin()));
    Arc::new(Api::new(store, registry, Vec::new()))
}

fn put(api: &Api, name: &str) -> Arc<Value> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
        "data": {"a": "x".repeat(1 << 10)}});
    let key = Key::new("configmaps", "default", name);
    api.store
        .write_now(&key, |_| Ok(Write::Put(object.clone())))
        .unwrap()
}

fn watch(api: &Arc<Api>) -> Watch {
    let path = "/api/v1/namespaces/default/configmaps";
    let route::Target::Objects(at) = route::parse_path(path) else {
        panic!("{path}")
    };
    let (parts, ()) = Request::get(format!("{path}?watch=1"))
        .body(())
        .unwrap()
        .into_parts();
    let requester = Arc::new(Requester::administrator());
    open(&api.object_request(&parts, at, "", requester).unwrap()).unwrap()
}

#[tokio::test]
async fn an_unread_watch_holds_no_copies() {
    let api = api();
    let objects: Vec<Arc<Value>> = (0..500)
        .map(|number| put(&api, &format!("m{number:03}")))
        .collect();
    let mut unread = watch(&api);
    assert_eq!(unread.pending.len(), objects.len());
    for (event, object) in unread.pending.iter().zip(&objects) {
        assert!(matches!(event, WatchEvent::Existing(shared) if Arc::ptr_eq(shared, object)));
    }
    unread.pending.clear();
    for number in 0..500 {
        put(&api, &format!("m{number:03}"));
    }
    unread.read_changes();
    assert_eq!(
        unread.pending.len(),
        BATCH_SIZE,
        "the next batch is read when these are sent"
    );
}

#[tokio::test]
async fn a_change_is_encoded_once_for_all_watches() {
    let api = api();
    let (mut one, mut other) = (watch(&api), watch(&api));
    put(&api, "a");
    let (encode_event, same) = (one.next().await.unwrap(), other.next().await.unwrap());
    assert_eq!(encode_event, same);
    let event: Value = serde_json::from_slice(&encode_event).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["name"]),
        (&json!("ADDED"), &json!("a"))
    );
    let change = api.store.read().changes_since(1).unwrap().remove(0);
    let json = change.json().clone();
    assert_eq!(json.as_ptr(), change.json().as_ptr());
}

#[tokio::test]
async fn a_client_whose_timeout_ends_in_a_replay_lists_again() {
    let api = api();
    let mut old = watch(&api);
    let (_sender, replay) = mpsc::channel(1);
    old.replay = Some(replay);
    old.deadline = Instant::now();
    let event: Value = serde_json::from_slice(&old.next().await.unwrap()).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert!(old.next().await.is_none());
}
