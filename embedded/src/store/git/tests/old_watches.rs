//! Watches from revisions before the watch cache, which a replay of the journal continues.

mod ends;
mod property;

use super::definitions::{DEFINITION, TOOL, TOOLS};
use super::foreign::rewrite;
use super::*;
use crate::store::{Change, Replayed};

/// Changes in the watch cache.
const WINDOW: usize = 4;
/// Longest time for a step of a watch.
const DEADLINE: Duration = Duration::from_secs(20);
/// Name of the object whose creation is the last change.
const LAST: &str = "last";

/// A change that a watch has received.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    revision: u64,
    kind: ChangeType,
    name: String,
    before: Option<Value>,
    object: Value,
}

impl Seen {
    fn of(change: &Change) -> Self {
        Self {
            revision: change.revision,
            kind: change.kind,
            name: change.key.name.clone(),
            before: change.before.as_ref().map(|object| Value::clone(object)),
            object: Value::clone(&change.object),
        }
    }

    /// Returns type, name, and the entry `one` before and after the change.
    fn entry(&self) -> (ChangeType, &str, Value, Value) {
        let one = |object: &Value| object["data"]["one"].clone();
        let before = self.before.as_ref().map(one).unwrap_or_default();
        (self.kind, &self.name, before, one(&self.object))
    }
}

fn open(environment: &Environment, process: &str) -> Arc<Store> {
    Arc::new(environment.store(process).with_watch_window(WINDOW))
}

/// Reads the changes of a resource after a revision as a watch of the API does, up to the one of the last object. `None` stands for 410.
async fn watch(store: &Arc<Store>, resource: &str, since: u64) -> Option<Vec<Seen>> {
    let mut revisions = store.subscribe();
    let (mut seen, mut revision) = (Vec::<Seen>::new(), since);
    while seen.last().is_none_or(|seen| seen.name != LAST) {
        revisions.borrow_and_update();
        let changes = store.read().changes_of(resource, revision);
        match changes {
            Ok(changes) if changes.is_empty() => {
                let next = tokio::time::timeout(DEADLINE, revisions.changed());
                next.await.unwrap().unwrap();
            }
            Ok(changes) => {
                for change in changes {
                    revision = change.revision;
                    if change.key.resource == resource {
                        seen.push(Seen::of(&change));
                    }
                }
            }
            Err(_) => revision = replay(store, resource, revision, &mut seen).await?,
        }
    }
    Some(seen)
}

/// Reads a replay, and returns the revision of its end.
async fn replay(store: &Arc<Store>, resource: &str, since: u64, seen: &mut Vec<Seen>) -> Option<u64> {
    let mut replayed = store.replay(resource, since)?;
    loop {
        match tokio::time::timeout(DEADLINE, replayed.recv()).await.unwrap()? {
            Replayed::Change(change) => seen.push(Seen::of(&change)),
            Replayed::UpTo(revision) => return Some(revision),
        }
    }
}

/// Writes as many changes as the watch cache has, of which the last one ends the watches.
fn fill_window(store: &Store) {
    for number in 0..WINDOW {
        put(store, "other", "one", &number.to_string()).unwrap();
    }
    put(store, LAST, "one", "1").unwrap();
}

fn remove(store: &Store, name: &str) {
    let removed = store.write_now(&key(name), |view| {
        let last = view.get(&key(name)).map(|object| Value::clone(object));
        last.map(Write::Remove)
            .ok_or_else(|| StatusError::internal("absent"))
    });
    removed.unwrap();
}

#[tokio::test]
async fn a_watch_from_the_first_revision_has_all_changes_in_their_order() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = open(&environment, "a");
    let first = store.read().revision();
    put(&store, "a", "one", "1").unwrap();
    put(&store, "a", "one", "2").unwrap();
    let middle = store.read().revision();
    let by_hand = BY_HAND.replace("name: a", "name: b");
    environment.commit([("mine.yaml", Some(by_hand.as_str()))]);
    store.poll();
    environment.commit([("mine.yaml", None)]);
    store.poll();
    remove(&store, "a");
    put(&store, "a", "one", "3").unwrap();
    fill_window(&store);
    store.read().changes_of("configmaps", middle).unwrap_err();

    let seen = watch(&store, "configmaps", first).await.unwrap();
    let (put, removed, none) = (ChangeType::Put, ChangeType::Remove, Value::Null);
    let expected = [
        (put, "a", none.clone(), json!("1")),
        (put, "a", json!("1"), json!("2")),
        (put, "b", none.clone(), json!("1")),
        (removed, "b", json!("1"), json!("1")),
        (removed, "a", json!("2"), json!("2")),
        (put, "a", none, json!("3")),
    ];
    assert_eq!(seen[..6].iter().map(Seen::entry).collect::<Vec<_>>(), expected);
    assert_eq!(seen.len(), expected.len() + WINDOW + 1);
    assert!(seen.is_sorted_by(|one, next| one.revision < next.revision));
    for seen in &seen {
        assert_eq!(meta::resource_version(&seen.object), seen.revision.to_string());
    }
    assert_ne!(
        meta::uid(&seen[0].object),
        meta::uid(&seen[5].object),
        "it was created again"
    );
    assert_eq!(watch(&store, "configmaps", middle).await.unwrap(), seen[2..]);
}

#[tokio::test]
async fn objects_on_this_machine_do_not_end_a_watch_of_the_repository() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = open(&environment, "a");
    put(&store, "a", "one", "1").unwrap();
    let secret = Key::new("secrets", "default", "a");
    for _ in 0..=WINDOW {
        let write =
            |_: &crate::store::TransactionView<'_>| Ok(Write::Put(json!({"metadata": {"name": "a"}})));
        store.write_now(&secret, write).unwrap();
    }
    let between = store.read().revision();
    fill_window(&store);
    // The version of a Secret is between those of the repository.
    let seen = watch(&store, "configmaps", between).await.unwrap();
    assert_eq!(seen.len(), WINDOW + 1);
    assert_eq!(watch(&store, "secrets", between).await, None);
}

#[tokio::test]
async fn a_force_push_is_a_change_of_an_old_watch() {
    let environment = Environment::with(StatusLocation::Branch);
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = open(&environment, "a");
    let first = store.read().revision();
    put(&store, "b", "one", "1").unwrap();
    rewrite(&environment, [("mine.yaml", BY_HAND.replace("\"1\"", "\"9\""))]);
    store.poll();
    fill_window(&store);
    let seen = watch(&store, "configmaps", first).await.unwrap();
    let expected = [
        (ChangeType::Put, "b", Value::Null, json!("1")),
        (ChangeType::Put, "a", json!("1"), json!("9")),
        (ChangeType::Remove, "b", json!("1"), json!("1")),
    ];
    assert_eq!(seen[..3].iter().map(Seen::entry).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn an_old_watch_follows_the_definition_of_its_kind() {
    let environment = Environment::with(StatusLocation::Branch);
    environment.commit([("crd.yaml", Some(DEFINITION))]);
    let store = open(&environment, "a");
    let first = store.read().revision();
    let last = TOOL.replace("{name: a}", "{name: last}");
    for (path, text) in [
        ("a.yaml", Some(TOOL)),
        ("crd.yaml", None),
        ("crd.yaml", Some(DEFINITION)),
        ("last.yaml", Some(last.as_str())),
    ] {
        environment.commit([(path, text)]);
        store.poll();
    }
    fill_window(&store);
    let seen = watch(&store, TOOLS, first).await.unwrap();
    let changes: Vec<_> = seen.iter().map(|seen| (seen.kind, seen.name.as_str())).collect();
    let (put, removed) = (ChangeType::Put, ChangeType::Remove);
    assert_eq!(changes, [(put, "a"), (removed, "a"), (put, "a"), (put, LAST)]);
    assert_eq!(meta::uid(&seen[0].object), meta::uid(&seen[2].object));
    assert_eq!(seen[2].before, None);
}
