//! Watches that get 410, and replays that end before their end.

use super::super::resume::begin_journal_again;
use super::*;
use crate::store::git::resume::replay_journal;

/// Changes that do not fit between a replay and its watch.
const MANY: usize = 64;

fn put_many(store: &Store) {
    for number in 0..MANY {
        put(store, "a", "one", &number.to_string()).unwrap();
    }
}

#[tokio::test]
async fn a_rewritten_journal_ends_watches_from_before_it() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = open(&environment, "a");
    put(&store, "a", "one", "1").unwrap();
    let revision = store.read().revision();
    begin_journal_again(&environment);
    store.poll();
    fill_window(&store);
    assert_eq!(watch(&store, "configmaps", revision).await, None);
}

#[tokio::test]
async fn other_inputs_end_watches_from_before_them() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = open(&environment, "a");
    let revision = store.read().revision();
    put(&store, "a", "one", "1").unwrap();
    drop(store);
    let crds = [super::super::status::widgets()];
    let store = Store::git(environment.options("a"), &crds).unwrap();
    let store = Arc::new(store.with_watch_window(WINDOW));
    let start = store.read().revision();
    fill_window(&store);
    assert_eq!(watch(&store, "configmaps", revision).await, None);
    let seen = watch(&store, "configmaps", start).await.unwrap();
    assert_eq!(seen.len(), WINDOW + 1);
}

#[tokio::test]
async fn a_new_state_directory_ends_watches_from_before_it() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = open(&environment, "a");
    let first = store.read().revision();
    put(&store, "a", "one", "1").unwrap();
    let mut other = open(&environment, "b");
    let start = other.read().revision();
    fill_window(&store);
    other.poll();
    for _ in 0..2 {
        assert_eq!(watch(&other, "configmaps", first).await, None);
        let seen = watch(&other, "configmaps", start).await.unwrap();
        assert_eq!(seen.len(), WINDOW + 1);
        drop(other);
        other = open(&environment, "b");
    }
}

#[tokio::test]
async fn without_a_history_a_watch_ends_with_the_window() {
    let environment = Environment::with(StatusLocation::File);
    let store = open(&environment, "a");
    let revision = store.read().revision();
    fill_window(&store);
    assert_eq!(watch(&store, "configmaps", revision).await, None);
    let memory = Arc::new(Store::memory().with_watch_window(WINDOW));
    let revision = memory.read().revision();
    fill_window(&memory);
    assert_eq!(watch(&memory, "configmaps", revision).await, None);
}

#[tokio::test]
async fn a_watch_of_namespaces_or_definitions_ends_with_the_window() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = open(&environment, "a");
    let revision = store.read().revision();
    fill_window(&store);
    for resource in ["namespaces", "customresourcedefinitions.apiextensions.k8s.io"] {
        assert_eq!(watch(&store, resource, revision).await, None, "{resource}");
    }
}

#[tokio::test]
async fn a_watch_that_ends_frees_the_next_replay() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = open(&environment, "a");
    let first = store.read().revision();
    put_many(&store);
    put(&store, LAST, "one", "1").unwrap();
    let mut unread = store.replay("configmaps", first).unwrap();
    let received = tokio::time::timeout(DEADLINE, unread.recv()).await.unwrap();
    assert!(matches!(received, Some(Replayed::Change(_))));
    let next = store.replay("configmaps", first).unwrap();
    drop(unread);
    drop(next);
    let seen = watch(&store, "configmaps", first).await.unwrap();
    assert_eq!(seen.len(), MANY + 1);
}

#[tokio::test]
async fn a_watch_that_does_not_read_in_time_ends() {
    let environment = Environment::with(StatusLocation::Branch);
    let mut store = environment.store("a").with_watch_window(WINDOW);
    store.replays.max_duration = Duration::ZERO;
    let store = Arc::new(store);
    let first = store.read().revision();
    put_many(&store);
    let mut unread = store.replay("configmaps", first).unwrap();
    let closed = async {
        while unread.sender_strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, closed).await.unwrap();
    while let Some(replayed) = unread.recv().await {
        assert!(matches!(replayed, Replayed::Change(_)), "it has no end");
    }
}

#[tokio::test]
async fn a_watch_that_waits_too_long_for_the_replays_of_others_ends() {
    let environment = Environment::with(StatusLocation::Branch);
    let mut store = environment.store("a").with_watch_window(WINDOW);
    store.replays.max_duration = Duration::ZERO;
    let store = Arc::new(store);
    let first = store.read().revision();
    fill_window(&store);
    let _running = store.replays.permits.clone().try_acquire_owned().unwrap();
    assert_eq!(watch(&store, "configmaps", first).await, None);
}

#[test]
fn a_journal_above_the_limit_is_not_replayed() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    put(&store, "a", "one", "2").unwrap();
    let branch = environment.branch().with_journal();
    let journal = branch.heads().unwrap().journal;
    let commits = branch.chain(None, journal.unwrap()).unwrap().unwrap().len();
    let read = |max_commits: usize| {
        let mut history = History::new(BTreeMap::new());
        let mut kinds = Kinds::new(&[]).unwrap();
        let outcome = replay_journal(&branch, &mut kinds, &mut history, journal, max_commits);
        outcome.map(|()| history.objects.len())
    };
    assert_eq!(read(commits).unwrap(), 1);
    let error = read(commits - 1).unwrap_err();
    assert!(error.message().contains("the limit is"), "{}", error.message());
}
