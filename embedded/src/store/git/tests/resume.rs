//! Watches that resume from a version before a restart.

use super::foreign::rewrite;
use super::*;
use crate::store::Expired;

/// A change: its type, its object, and the entry `one` before and after it.
type Seen = (ChangeType, String, Value, Value);

/// Returns the changes of the ConfigMaps after a revision.
fn changes(store: &Store, revision: u64) -> Result<Vec<Seen>, Expired> {
    let changes = store.read().changes_of("configmaps", revision)?;
    let seen = changes.iter().map(|change| {
        let before = change.before.as_ref().map(|object| object["data"]["one"].clone());
        (
            change.kind,
            change.key.name.clone(),
            before.unwrap_or_default(),
            change.object["data"]["one"].clone(),
        )
    });
    Ok(seen.collect())
}

/// Writes the first object, and restarts. Returns the revision before the other changes: one of this process, and two of a user, of which
/// the second one comes while no process runs.
fn restart(environment: &Environment) -> (Store, u64) {
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    let revision = store.read().revision();
    put(&store, "a", "one", "2").unwrap();
    environment.commit([("mine.yaml", Some(BY_HAND.replace("name: a", "name: b").as_str()))]);
    store.poll();
    drop(store);
    environment.commit([("mine.yaml", None)]);
    (environment.store("a"), revision)
}

#[test]
fn a_watch_resumes_from_a_version_before_a_restart() {
    let environment = Environment::with(StatusLocation::Branch);
    let (store, revision) = restart(&environment);
    let expected = [
        (ChangeType::Put, "a".to_owned(), json!("1"), json!("2")),
        (ChangeType::Put, "b".to_owned(), Value::Null, json!("1")),
        (ChangeType::Remove, "b".to_owned(), json!("1"), json!("1")),
    ];
    assert_eq!(changes(&store, revision).unwrap(), expected);
    put(&store, "a", "one", "3").unwrap();
    let seen = changes(&store, revision).unwrap();
    assert_eq!(seen[..3], expected);
    assert_eq!(seen.len(), 4, "and goes on");
    let state = store.read();
    assert_eq!(state.list_at("configmaps", "", revision).unwrap().len(), 1);
    state.changes_since(revision).unwrap_err();
    // Changes of these before the start are not known, or not all of them.
    for resource in [
        "secrets",
        "namespaces",
        "customresourcedefinitions.apiextensions.k8s.io",
    ] {
        state.changes_of(resource, revision).unwrap_err();
    }
}

#[test]
fn versions_from_before_the_state_directory_are_expired() {
    let environment = Environment::with(StatusLocation::Branch);
    let (first, revision) = restart(&environment);
    let store = environment.store("b");
    changes(&store, revision).unwrap_err();
    let newest = store.read().revision();
    put(&first, "a", "one", "3").unwrap();
    store.poll();
    drop(store);
    let store = environment.store("b");
    assert_eq!(changes(&store, newest).unwrap().len(), 1);
    changes(&store, newest - 1).unwrap_err();
}

#[test]
fn versions_from_before_a_start_with_other_inputs_are_expired() {
    let environment = Environment::with(StatusLocation::Branch);
    let (store, mut revision) = restart(&environment);
    drop(store);
    let moved = GitOptions {
        subdir: "live/core".to_owned(),
        ..environment.options("a")
    };
    let none: &[CustomResourceDefinition] = &[];
    let crds: &[CustomResourceDefinition] = &[super::status::widgets()];
    for (start, options, crds) in [
        ("with another definition", environment.options("a"), crds),
        ("with another directory", moved, crds),
        ("with the first inputs", environment.options("a"), none),
    ] {
        let open = || Store::git(options.clone(), crds).unwrap();
        let store = open();
        assert!(changes(&store, revision).is_err(), "{start}");
        revision = store.read().revision();
        drop(store);
        let store = open();
        assert_eq!(store.read().revision(), revision, "{start}, again");
        assert!(changes(&store, revision).unwrap().is_empty(), "{start}, again");
    }
}

#[test]
fn versions_that_do_not_follow_from_the_journal_are_expired() {
    let environment = Environment::with(StatusLocation::File);
    let (store, revision) = restart(&environment);
    changes(&store, revision).unwrap_err();
    let environment = Environment::with(StatusLocation::Branch);
    let (store, revision) = restart(&environment);
    store.poll();
    drop(store);
    let repository = git2::Repository::open_bare(environment.repository()).unwrap();
    let mut journal = repository.find_reference("refs/heads/main-status").unwrap();
    journal.delete().unwrap();
    for start in ["without the journal", "with another one"] {
        let store = environment.store("a");
        assert!(changes(&store, revision).is_err(), "{start}");
        store.poll();
    }
}

/// Begins the journal again, as another process does it after its loss.
pub(super) fn begin_journal_again(environment: &Environment) {
    let branch = environment.branch().with_journal();
    let known = branch.heads().unwrap();
    let message = message::take_over(known.branch.unwrap());
    let other = branch
        .write_entry(None, known.branch, &Edits::new(), &message, 7)
        .unwrap();
    let new = Heads {
        journal: Some(other),
        ..known
    };
    branch.advance_heads(known, new).unwrap().unwrap();
}

#[test]
fn versions_from_before_a_rewritten_journal_are_expired() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    let revision = store.read().revision();
    begin_journal_again(&environment);
    store.poll();
    put(&store, "a", "one", "2").unwrap();
    store.poll();
    drop(store);
    changes(&environment.store("a"), revision).unwrap_err();
}

#[test]
fn a_watch_does_not_resume_on_a_history_that_was_rewritten_between_two_runs() {
    let environment = Environment::with(StatusLocation::File);
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    let revision = store.read().revision();
    drop(store);
    // The new history has as many commits, and so the same versions.
    rewrite(&environment, [("mine.yaml", BY_HAND.replace("\"1\"", "\"2\""))]);
    let store = environment.store("a");
    assert_eq!(object(&store, "a").unwrap()["data"]["one"], "2");
    changes(&store, revision).unwrap_err();
    let (before, revision) = (objects(&store), store.read().revision());
    drop(store);
    let store = environment.store("a");
    assert_eq!(objects(&store), before, "their versions are stored");
    assert!(store.read().revision() >= revision);
}

#[test]
fn versions_of_a_store_in_the_local_file_are_expired() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = Store::file(&environment.options("a").local).unwrap();
    put(&store, "a", "one", "1").unwrap();
    let revision = store.read().revision();
    drop(store);
    let store = environment.store("a");
    assert_eq!(object(&store, "a"), None, "it is not in the repository");
    changes(&store, revision).unwrap_err();
    let new = environment.store("b").read().revision();
    assert!(changes(&environment.store("c"), new).unwrap().is_empty());
}
