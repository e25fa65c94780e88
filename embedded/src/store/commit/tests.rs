//! Commits that several writes share, on a file whose disk a test can make wait or fail.

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::json;
use tokio::task::JoinHandle;

use super::*;
use crate::store::file::faulty::{Faults, faulty};
use crate::store::inspect;

const LIMIT: Duration = Duration::from_secs(20);

struct World {
    dir: tempfile::TempDir,
    store: Arc<Store>,
    faults: Arc<Faults>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (file, state, faults) = faulty(&dir.path().join("objects.redb"));
        let store = Arc::new(Store::new(state, Some(file)));
        Self { dir, store, faults }
    }

    fn send(&self, name: &'static str, decide: Decide<'static>) -> JoinHandle<Outcome> {
        let store = self.store.clone();
        tokio::spawn(async move { store.write(key(name), decide).await })
    }

    /// Waits until something holds that other threads bring about.
    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while !holds(self) {
            assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
            tokio::task::yield_now().await;
        }
    }

    /// Closes the gate and sends one write, which gets as far as that, and others that queue behind it in this order.
    async fn behind<const N: usize>(
        &self,
        writes: [(&'static str, Decide<'static>); N],
    ) -> (JoinHandle<Outcome>, Vec<JoinHandle<Outcome>>) {
        self.faults.gate.close();
        let before = self.syncs();
        let first = self.send("first", create("first"));
        self.until("a sync begins", |world| world.syncs() > before).await;
        let mut sent = Vec::new();
        for (name, decide) in writes {
            sent.push(self.send(name, decide));
            self.until("the write waits", |world| world.store.queue().len() == sent.len())
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

    /// What a restart would find.
    async fn stored(self) -> Vec<String> {
        // A thread that found nothing to do any more may still hold the store.
        self.until("threads end", |world| Arc::strong_count(&world.store) == 1)
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

/// A write that creates the object, or is refused where it exists.
fn create(name: &'static str) -> Decide<'static> {
    Box::new(move |view| match view.get(&key(name)) {
        Some(_) => Err(StatusError::bad_request("exists")),
        None => Ok(Write::Put(object(name))),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_wait_share_a_commit_and_are_shown_after_it() {
    let world = World::new();
    let before = world.syncs();
    outcome(world.send("alone", create("alone"))).await.unwrap();
    let of_one = world.syncs() - before;
    let names = ["a", "b", "c", "d", "e", "f"];
    let before = world.syncs();
    let (first, writes) = world.behind(names.map(|name| (name, create(name)))).await;
    assert_eq!(world.names(), ["alone"], "nothing is shown before it is stored");
    world.faults.gate.open();
    outcome(first).await.unwrap();
    for (number, write) in writes.into_iter().enumerate() {
        let object = outcome(write).await.unwrap();
        assert_eq!(meta::resource_version(&object), (4 + number).to_string());
    }
    let taken = world.syncs() - before;
    assert!(taken <= 2 * of_one, "{taken} syncs, {of_one} for one write");
    assert_eq!(world.store.read().changes_since(1).unwrap().len(), 8);
    assert_eq!(
        world.stored().await,
        ["a", "alone", "b", "c", "d", "e", "f", "first"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_sees_those_before_it_and_fails_alone() {
    let world = World::new();
    let remove: Decide<'static> = Box::new(|view| match view.get(&key("a")) {
        Some(held) => Ok(Write::Remove(Value::clone(held))),
        None => Err(StatusError::bad_request("absent")),
    });
    let faulty: Decide<'static> = Box::new(|_| panic!("a fault of this write"));
    let (first, writes) = world
        .behind([
            ("a", create("a")),
            ("a", create("a")),
            ("b", faulty),
            ("a", remove),
            ("a", create("a")),
        ])
        .await;
    world.faults.gate.open();
    outcome(first).await.unwrap();
    let mut results = Vec::new();
    for write in writes {
        results.push(match outcome(write).await {
            Ok(object) => meta::resource_version(&object).to_owned(),
            Err(error) => error.message().to_owned(),
        });
    }
    assert_eq!(results, ["3", "exists", "the write ended early", "4", "5"]);
    assert_eq!(world.stored().await, ["a", "first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_fails_fails_all_of_it_and_shows_nothing() {
    let world = World::new();
    let (first, writes) = world
        .behind([
            ("first", create("first")),
            ("a", create("a")),
            ("a", create("a")),
            ("b", create("b")),
        ])
        .await;
    // The commit of the first has been written, and is synced once the gate is open; the next cannot be written.
    world.faults.write.store(true, Ordering::SeqCst);
    world.faults.gate.open();
    let first = outcome(first).await;
    let mut messages = Vec::new();
    for write in writes {
        messages.push(outcome(write).await.unwrap_err().message().to_owned());
    }
    let kept: &[&str] = if first.is_ok() { &["first"] } else { &[] };
    assert!(
        messages[1..]
            .iter()
            .all(|message| message.contains("objects.redb")),
        "each says that the store failed, whatever it saw: {messages:?}"
    );
    assert_eq!(world.names(), kept);
    world.faults.write.store(false, Ordering::SeqCst);
    if let Some(file) = &mut *world.store.writer.lock().unwrap() {
        // As after a pause. What turns out to be in the file is shown.
        world.store.publish(file.reopen().unwrap());
    }
    let mut expected = world.names();
    outcome(world.send("c", create("c"))).await.unwrap();
    expected.insert(0, "c".to_owned());
    assert_eq!(world.names(), expected);
    assert_eq!(world.store.read().revision(), 1 + expected.len() as u64);
    assert_eq!(world.stored().await, expected);
}
