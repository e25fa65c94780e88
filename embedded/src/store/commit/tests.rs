//! Shared commits, on a disk that a test can block or make fail.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;

use super::*;
use crate::meta;
use crate::store::file::fault_injection::{Faults, faulty_file};
use crate::store::inspect;

const LIMIT: Duration = Duration::from_secs(20);

struct TestEnvironment {
    dir: tempfile::TempDir,
    store: Arc<Store>,
    faults: Arc<Faults>,
}

impl TestEnvironment {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (file, state, faults) = faulty_file(&dir.path().join("objects.redb"));
        let store = Arc::new(Store::new(state, Box::new(file)));
        Self { dir, store, faults }
    }

    fn send(&self, name: &'static str, decide: Decide<'static>) -> JoinHandle<Outcome> {
        let store = self.store.clone();
        tokio::spawn(async move { store.write(key(name), decide).await })
    }

    /// Waits for a condition that other threads bring about.
    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while !holds(self) {
            assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
            tokio::task::yield_now().await;
        }
    }

    /// Blocks the disk, sends one write that reaches it, and others that queue behind it in this order.
    async fn send_queued<const N: usize>(
        &self,
        writes: [(&'static str, Decide<'static>); N],
    ) -> (JoinHandle<Outcome>, Vec<JoinHandle<Outcome>>) {
        self.faults.gate.close();
        let before = self.syncs();
        let first = self.send("first", create("first"));
        self.until("a sync begins", |environment| environment.syncs() > before)
            .await;
        let mut sent = Vec::new();
        for (name, decide) in writes {
            sent.push(self.send(name, decide));
            self.until("the write waits", |environment| {
                environment.store.queue().len() == sent.len()
            })
            .await;
        }
        (first, sent)
    }

    fn syncs(&self) -> usize {
        self.faults.syncs.load(Ordering::SeqCst)
    }

    fn names(&self) -> Vec<String> {
        let objects = self.store.read().list("secrets", "default");
        objects
            .iter()
            .map(|object| meta::name(object).to_owned())
            .collect()
    }

    /// Returns the names that a restart finds.
    async fn stored(self) -> Vec<String> {
        // A thread without remaining work may still hold the store.
        self.until("threads end", |environment| {
            Arc::strong_count(&environment.store) == 1
        })
        .await;
        let Self { dir, store, .. } = self;
        drop(store);
        let objects = inspect(&dir.path().join("objects.redb")).unwrap().objects;
        objects
            .iter()
            .map(|object| meta::name(object).to_owned())
            .collect()
    }
}

fn key(name: &str) -> Key {
    Key::new("secrets", "default", name)
}

fn object(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

async fn outcome(write: JoinHandle<Outcome>) -> Outcome {
    tokio::time::timeout(LIMIT, write).await.unwrap().unwrap()
}

/// Creates the object; an existing one is an error.
fn create(name: &'static str) -> Decide<'static> {
    Box::new(move |view| match view.get(&key(name)) {
        Some(_) => Err(StatusError::bad_request("exists")),
        None => Ok(Write::Put(object(name))),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_writes_share_a_commit_and_are_published_after_it() {
    let environment = TestEnvironment::new();
    let before = environment.syncs();
    outcome(environment.send("alone", create("alone"))).await.unwrap();
    let of_one = environment.syncs() - before;
    let names = ["a", "b", "c", "d", "e", "f"];
    let before = environment.syncs();
    let (first, writes) = environment
        .send_queued(names.map(|name| (name, create(name))))
        .await;
    assert_eq!(
        environment.names(),
        ["alone"],
        "nothing is published before it is stored"
    );
    environment.faults.gate.open();
    outcome(first).await.unwrap();
    for (number, write) in writes.into_iter().enumerate() {
        let object = outcome(write).await.unwrap();
        assert_eq!(meta::resource_version(&object), (4 + number).to_string());
    }
    let taken = environment.syncs() - before;
    assert!(taken <= 2 * of_one, "{taken} syncs, {of_one} for one write");
    assert_eq!(environment.store.read().changes_since(1).unwrap().len(), 8);
    assert_eq!(
        environment.stored().await,
        ["a", "alone", "b", "c", "d", "e", "f", "first"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_alone_takes_one_or_two_syncs() {
    let environment = TestEnvironment::new();
    outcome(environment.send("first", create("first"))).await.unwrap();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let before = environment.syncs();
        outcome(environment.send(name, create(name))).await.unwrap();
        // The second one makes a larger file durable before its content names the new length.
        let taken = environment.syncs() - before;
        assert!((1..=2).contains(&taken), "{taken} syncs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_sees_earlier_writes_and_fails_alone() {
    let environment = TestEnvironment::new();
    let remove: Decide<'static> = Box::new(|view| match view.get(&key("a")) {
        Some(object) => Ok(Write::Remove(Value::clone(object))),
        None => Err(StatusError::bad_request("absent")),
    });
    let faulty: Decide<'static> = Box::new(|_| panic!("a fault of this write"));
    let (first, writes) = environment
        .send_queued([
            ("a", create("a")),
            ("a", create("a")),
            ("b", faulty),
            ("a", remove),
            ("a", create("a")),
        ])
        .await;
    environment.faults.gate.open();
    outcome(first).await.unwrap();
    let mut results = Vec::new();
    for write in writes {
        results.push(match outcome(write).await {
            Ok(object) => meta::resource_version(&object).to_owned(),
            Err(error) => error.message().to_owned(),
        });
    }
    assert_eq!(results, ["3", "exists", "the write was aborted", "4", "5"]);
    assert_eq!(environment.stored().await, ["a", "first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_commit_fails_all_its_writes_and_publishes_nothing() {
    let environment = TestEnvironment::new();
    let (first, writes) = environment
        .send_queued([
            ("first", create("first")),
            ("a", create("a")),
            ("a", create("a")),
            ("b", create("b")),
        ])
        .await;
    // The first commit is written, and will be synced when the gate opens. The next one cannot be written.
    environment.faults.write.store(true, Ordering::SeqCst);
    environment.faults.gate.open();
    let first = outcome(first).await;
    let mut messages = Vec::new();
    for write in writes {
        messages.push(outcome(write).await.unwrap_err().message().to_owned());
    }
    let stored_names: &[&str] = if first.is_ok() { &["first"] } else { &[] };
    assert!(
        messages[1..]
            .iter()
            .all(|message| message.contains("objects.redb")),
        "each message names the store file: {messages:?}"
    );
    assert_eq!(environment.names(), stored_names);
    environment.faults.write.store(false, Ordering::SeqCst);
    if let Some(file) = environment.store.backend.lock().unwrap().as_file() {
        // As after the reopen interval. Records that turn out to be stored are published.
        environment.store.publish(file.reopen().unwrap());
    }
    let mut expected = environment.names();
    outcome(environment.send("c", create("c"))).await.unwrap();
    expected.insert(0, "c".to_owned());
    assert_eq!(environment.names(), expected);
    assert_eq!(environment.store.read().revision(), 1 + expected.len() as u64);
    assert_eq!(environment.stored().await, expected);
}

#[test]
fn an_object_that_a_write_makes_too_large_is_not_stored() {
    let store = Store::memory();
    let at = Key::new("widgets.example.dev", "default", "a");
    let write = |bytes: usize| {
        let object = json!({"metadata": {"name": "a"}, "note": "x".repeat(bytes)});
        store.write_now(&at, |_| Ok(Write::Put(object.clone())))
    };
    write(1 << 20).unwrap();
    let error = write(2 << 20).unwrap_err();
    assert_eq!((error.code(), error.reason()), (500, ""));
    assert_eq!(error.message(), "etcdserver: request is too large");
    let stored = store.read().get(&at).cloned().unwrap();
    assert_eq!(stored["note"].as_str().map(str::len), Some(1 << 20));
    write(1 << 10).unwrap();
}
