//! Two stores on one backend, as two processes on one repository.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, Weak};

use serde_json::json;

use super::*;
use crate::meta;
use crate::store::backend::{Foreign, Job, Record};
use crate::store::error::StoreError;
use crate::store::watch_cache::ChangeType;

/// Name of an object that cannot be stored.
const READ_ONLY: &str = "read-only";
/// First part of the names of objects whose commit is refused.
const TOO_LARGE: &str = "too-large";
/// Name of an object that changes the kinds.
const DEFINITION: &str = "definition";

/// A process's view of a log that other processes append to.
#[derive(Debug, Default)]
struct Shared {
    log: Arc<Mutex<Vec<Record>>>,
    /// Number of records that this process knows.
    known: usize,
    /// Rejects every batch.
    outpaced: bool,
    probe: Arc<Probe>,
}

/// What a download observes.
#[derive(Debug, Default)]
struct Probe {
    store: OnceLock<Weak<Store>>,
    is_unlocked: OnceLock<bool>,
}

impl Backend for Shared {
    fn blocks(&self) -> bool {
        false
    }

    fn is_shared(&self, key: &Key) -> bool {
        key.resource == "configmaps"
    }

    fn changes_kinds(&self, key: &Key) -> bool {
        key.name == DEFINITION
    }

    fn check(&self, key: &Key, _: ChangeType) -> Result<(), StoreError> {
        if key.name != READ_ONLY {
            return Ok(());
        }
        Err(unwritable(format!("{key} is read-only")))
    }

    fn commit(&mut self, records: &mut Vec<Record>) -> Result<(), CommitError> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() != self.known || self.outpaced {
            return Err(CommitError::Rejected("another process was first".to_owned()));
        }
        let keys = records.iter().map(|record| &record.key);
        let refused = keys.filter(|key| key.name.starts_with(TOO_LARGE));
        let refused: Vec<_> = refused
            .map(|key| (key.clone(), unwritable(format!("{key} is too large"))))
            .collect();
        if !refused.is_empty() {
            return Err(CommitError::Refused(refused));
        }
        log.extend_from_slice(records);
        self.known = log.len();
        Ok(())
    }

    fn download(&self) -> Option<Job> {
        let probe = Arc::clone(&self.probe);
        Some(Box::new(move || {
            let store = probe.store.get().and_then(Weak::upgrade);
            let is_unlocked = store.is_some_and(|store| store.backend.try_lock().is_ok());
            probe.is_unlocked.set(is_unlocked).unwrap();
            Ok(())
        }))
    }

    fn foreign(&mut self, _: Instant) -> Result<Foreign, StoreError> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let new = log[self.known..].to_vec();
        self.known = log.len();
        Ok(Foreign {
            records: new,
            ..Foreign::default()
        })
    }
}

fn unwritable(reason: String) -> StoreError {
    StoreError::Git {
        repository: "objects.git".to_owned(),
        branch: "main".to_owned(),
        reason,
    }
}

fn stores() -> (Store, Store, Arc<Mutex<Vec<Record>>>) {
    let log = Arc::default();
    let store = || {
        let shared = Shared {
            log: Arc::clone(&log),
            ..Shared::default()
        };
        Store::new(State::default(), Box::new(shared))
    };
    (store(), store(), log)
}

fn key() -> Key {
    Key::new("configmaps", "default", "counter")
}

/// Adds one to the counter.
fn increment(store: &Store) -> Outcome {
    store.write_now(&key(), |view| {
        let count = view
            .get(&key())
            .map_or(0, |object| object["count"].as_u64().unwrap());
        Ok(Write::Put(
            json!({"metadata": {"name": "counter"}, "count": count + 1}),
        ))
    })
}

#[test]
fn a_rejected_write_decides_again_from_the_newest_state() {
    let (first, second, log) = stores();
    increment(&first).unwrap();
    let decisions = AtomicUsize::new(0);
    let object = second
        .write_now(&key(), |view| {
            decisions.fetch_add(1, Ordering::SeqCst);
            let seen = view.get(&key()).map(|object| object["count"].clone());
            Ok(Write::Put(json!({"metadata": {"name": "counter"}, "seen": seen})))
        })
        .unwrap();
    assert_eq!(
        decisions.load(Ordering::SeqCst),
        2,
        "the first decision was rejected"
    );
    assert_eq!(object["seen"], 1, "the second one sees the other process");
    assert_eq!(meta::resource_version(&object), "3");
    let revisions: Vec<u64> = log.lock().unwrap().iter().map(|record| record.revision).collect();
    assert_eq!(revisions, [2, 3], "no revision is assigned twice");
    assert_eq!(
        second.read().changes_since(1).unwrap().len(),
        2,
        "watches see both"
    );
}

#[test]
fn no_write_of_two_processes_is_lost() {
    const WRITES: u64 = 200;
    let (first, second, log) = stores();
    std::thread::scope(|scope| {
        for store in [&first, &first, &second, &second] {
            scope.spawn(move || {
                for _ in 0..WRITES {
                    // A client repeats a write that was outpaced.
                    assert!(
                        (0..1000).any(|_| increment(store).is_ok()),
                        "a write is stored in the end"
                    );
                }
            });
        }
    });
    let log = log.lock().unwrap();
    let counts: Vec<u64> = log
        .iter()
        .map(|record| record.object["count"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, (1..=4 * WRITES).collect::<Vec<_>>());
    assert!(
        log.windows(2).all(|pair| pair[0].revision < pair[1].revision),
        "revisions are in the order of the writes"
    );
}

#[test]
fn a_write_that_is_always_outpaced_fails_with_409() {
    let shared = Shared {
        outpaced: true,
        ..Shared::default()
    };
    let store = Store::new(State::default(), Box::new(shared));
    let error = increment(&store).unwrap_err();
    assert_eq!(error.code(), 409, "{}", error.message());
    assert!(store.read().get(&key()).is_none(), "nothing is published");
}

#[test]
fn a_write_that_decides_otherwise_after_a_rejection_joins_no_batch_of_another_place() {
    let (first, second, log) = stores();
    increment(&first).unwrap();
    // It creates a Secret once it sees the object of the other process.
    let secret = Key::new("secrets", "default", "a");
    let (dependent, mut unchanged) =
        Transaction::new(secret, Origin::default(), |view| match view.get(&key()) {
            Some(_) => Ok(Write::Put(json!({"metadata": {"name": "a"}}))),
            None => Ok(Write::Unchanged(Arc::default())),
        });
    let other = Key::new("configmaps", "default", "other");
    let (shared, mut stored) = Transaction::new(other, Origin::default(), |_| {
        Ok(Write::Put(json!({"metadata": {"name": "other"}})))
    });
    second.queue().extend([dependent, shared]);
    second.commit_waiting();
    second.commit_waiting();
    unchanged.try_recv().unwrap().unwrap();
    stored.try_recv().unwrap().unwrap();
    let log = log.lock().unwrap();
    let resources: Vec<&str> = log.iter().map(|record| record.key.resource.as_str()).collect();
    assert_eq!(resources, ["configmaps", "configmaps"], "no Secret is shared");
}

#[test]
fn a_change_of_the_kinds_is_a_commit_of_its_own() {
    let backend = Shared::default();
    let named = |name: &str| Key::new("configmaps", "default", name);
    let joins = |batch: &[&str], name: &str| {
        let batch: HashSet<Key> = batch.iter().map(|name| named(name)).collect();
        can_join(&backend, &batch, &named(name))
    };
    assert!(joins(&["a"], "b"));
    assert!(joins(&[], DEFINITION));
    assert!(
        !joins(&["a"], DEFINITION),
        "its writes are decided with the old kinds"
    );
    assert!(!joins(&[DEFINITION], "a"), "it is decided with the new kinds");
}

#[test]
fn a_write_that_cannot_be_stored_fails_alone() {
    let (store, _, log) = stores();
    let put = |name: &str| {
        let object = json!({"metadata": {"name": name}});
        let key = Key::new("configmaps", "default", name);
        Transaction::new(key, Origin::default(), move |_| Ok(Write::Put(object.clone())))
    };
    let (refused, mut error) = put(READ_ONLY);
    let (good, mut stored) = put("good");
    store.queue().extend([refused, good]);
    store.commit_waiting();
    let error = error.try_recv().unwrap().unwrap_err();
    assert!(error.message().contains("is read-only"), "{}", error.message());
    stored.try_recv().unwrap().unwrap();
    assert_eq!(log.lock().unwrap().len(), 1);
}

#[test]
fn a_commit_that_is_refused_for_one_write_has_the_others() {
    let (first, second, log) = stores();
    // So that the first attempt of the batch is rejected.
    increment(&first).unwrap();
    let put = |name: &'static str| {
        let of = Key::new("configmaps", "default", name);
        let too_large = Key::new("configmaps", "default", TOO_LARGE);
        Transaction::new(of, Origin::default(), move |view| {
            let seen = view.get(&too_large).is_some();
            Ok(Write::Put(json!({"metadata": {"name": name}, "seen": seen})))
        })
    };
    let names = ["before", TOO_LARGE, "after"];
    let (transactions, outcomes): (Vec<_>, Vec<_>) = names.into_iter().map(put).unzip();
    second.queue().extend(transactions);
    second.commit_waiting();
    let mut answers = outcomes
        .into_iter()
        .map(|mut outcome| outcome.try_recv().unwrap());
    let [before, refused, after] = [(); 3].map(|()| answers.next().unwrap());
    assert_eq!(before.unwrap()["seen"], false);
    let error = refused.unwrap_err();
    assert!(error.message().contains("is too large"), "{}", error.message());
    assert_eq!(
        after.unwrap()["seen"],
        false,
        "it decided without the refused write"
    );
    let log = log.lock().unwrap();
    let names: Vec<&str> = log.iter().map(|record| record.key.name.as_str()).collect();
    assert_eq!(names, ["counter", "before", "after"]);
    let revisions: Vec<u64> = log.iter().map(|record| record.revision).collect();
    assert_eq!(revisions, [2, 3, 4]);
}

/// Returns a commit of a write that cannot be stored, of another one, and of one that can.
fn refused_commit(store: &Store, decisions: &Arc<AtomicUsize>) -> (Vec<Transaction<'static>>, Commit) {
    let names = [TOO_LARGE, "too-large-as-well", "good"];
    let mut writes = names.map(|name| {
        let decisions = Arc::clone(decisions);
        let (write, _) = Transaction::new(
            Key::new("configmaps", "default", name),
            Origin::default(),
            move |_| {
                decisions.fetch_add(1, Ordering::SeqCst);
                Ok(Write::Put(json!({"metadata": {"name": name}})))
            },
        );
        Some(write)
    });
    let mut waiting = writes.iter_mut();
    let mut backend = store.backend.lock().unwrap();
    store.take(&mut **backend, false, |_| waiting.next().and_then(Option::take))
}

#[test]
fn writes_that_cannot_be_stored_leave_the_commit_together() {
    let (store, _, log) = stores();
    let decisions = Arc::default();
    let (transactions, commit) = refused_commit(&store, &decisions);
    let mut backend = store.backend.lock().unwrap();
    let end = Instant::now() + RETRY_LIMIT;
    let (_, stored) = store.store_all(&mut **backend, false, &transactions, commit, end);
    assert!(stored.is_ok());
    assert_eq!(log.lock().unwrap().len(), 1);
    assert_eq!(decisions.load(Ordering::SeqCst), 4, "the good one decides twice");
}

#[test]
fn a_commit_with_refused_writes_is_not_repeated_after_the_deadline() {
    let (store, _, log) = stores();
    let decisions = Arc::default();
    let (transactions, commit) = refused_commit(&store, &decisions);
    let mut backend = store.backend.lock().unwrap();
    let (_, stored) = store.store_all(&mut **backend, false, &transactions, commit, Instant::now());
    let failure = stored.unwrap_err();
    let codes = transactions
        .iter()
        .map(|write| failure.to_status(&write.key).code());
    assert!(codes.eq([500_u16, 500, 409]), "the good one can be tried again");
    assert_eq!(decisions.load(Ordering::SeqCst), 3);
    assert!(log.lock().unwrap().is_empty());
}

#[test]
fn a_poll_downloads_without_the_lock_of_the_backend() {
    let shared = Shared::default();
    let probe = Arc::clone(&shared.probe);
    let store = Arc::new(Store::new(State::default(), Box::new(shared)));
    probe.store.set(Arc::downgrade(&store)).unwrap();
    store.poll();
    assert_eq!(probe.is_unlocked.get(), Some(&true), "writes go on");
}
