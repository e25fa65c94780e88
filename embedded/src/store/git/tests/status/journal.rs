//! A journal that others move or merge, and one that this process cannot move.

use super::super::{foreign, remote};
use super::*;

/// Moves the journal as the push of a person.
fn move_journal(environment: &Environment, to: Option<git2::Oid>) {
    let known = heads(environment);
    let branch = environment.branch().with_journal();
    let new = Heads { journal: to, ..known };
    branch.advance_heads(known, new).unwrap().unwrap();
}

/// The deadline of an attempt that is not to reach it.
fn end() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

/// Locks the journal, as a process that was killed leaves it. Returns the path of the lock.
fn lock_journal(environment: &Environment) -> PathBuf {
    let lock = environment.repository().join("refs/heads/main-status.lock");
    std::fs::write(&lock, "").unwrap();
    lock
}

#[test]
fn a_journal_that_is_moved_back_is_restored() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    for is_remote in [false, true] {
        let open = if is_remote { open_remote } else { open };
        let store = open(&environment, &format!("a-{is_remote}"));
        let earlier = heads(&environment);
        put(&store, "b", if is_remote { "two" } else { "one" }, "1").unwrap();
        status(&store, "Ready");
        let (before, revision) = (widget(&store), store.read().revision());
        let known = heads(&environment);
        // The second one is a push of the branch to its journal.
        for commit in [earlier.journal, known.branch] {
            move_journal(&environment, commit);
            store.poll();
            assert_eq!(heads(&environment), known);
            assert_eq!(widget(&store), before);
            assert!(store.read().changes_since(revision).unwrap().is_empty());
        }
        move_journal(&environment, earlier.journal);
        status(&store, "Failed");
        assert_same_in_a_new_process(&environment, &store);
    }
}

#[test]
fn a_merge_into_the_journal_is_no_commit_of_the_branch() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    let branch = environment.branch().with_journal();
    let known = heads(&environment);
    let text = read_status(&environment).unwrap().replace("Ready", "Edited");
    let edits = Edits::from([(STATUS_PATH.to_owned(), Some(text))]);
    let write = |parent, second, message| branch.write_entry(parent, second, &edits, message, 0).unwrap();
    let side = write(known.journal, None, "by hand\n");
    let merge = write(known.journal, Some(side), "Merge branch 'side'\n");
    move_journal(&environment, Some(merge));
    store.poll();
    let object = widget(&store).unwrap();
    assert_eq!(
        (&object["spec"]["size"], &object["status"]["phase"]),
        (&1.into(), &"Edited".into())
    );
    assert_eq!(heads(&environment).journal, Some(merge));
    status(&store, "Failed");
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_journal_that_begins_again_removes_no_object_until_it_has_the_branch() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    put(&store, "b", "one", "1").unwrap();
    status(&store, "Ready");
    let (before, others) = (widget(&store).unwrap(), objects(&store));
    let branch = environment.branch().with_journal();
    // A rebase loses the commits with two parents.
    let rebased = branch.write_entry(None, None, &Edits::new(), "rebased\n", 0);
    move_journal(&environment, Some(rebased.unwrap()));
    let lock = lock_journal(&environment);
    store.poll();
    assert_eq!(widget(&store), Some(before.clone()));
    assert_eq!(objects(&store), others);
    std::fs::remove_file(&lock).unwrap();
    store.poll();
    let after = widget(&store).unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(
        (&after["spec"], &after["status"]),
        (&before["spec"], &Value::Null)
    );
    status(&store, "Failed");
    let new = open(&environment, "b");
    assert_eq!(widget(&new), widget(&store));
}

#[test]
fn versions_rise_if_the_journal_begins_again_while_it_is_read() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let (mut git, _) = Git::open(environment.options("a"), &[widgets()]).unwrap();
    let other = open(&environment, "b");
    for phase in ["One", "Two", "Three"] {
        status(&other, phase);
    }
    let read = git.follow_journal(end()).unwrap();
    let newest = read.records.last().unwrap().revision;
    let branch = environment.branch().with_journal();
    let rebased = branch.write_entry(None, None, &Edits::new(), "rebased\n", 0);
    move_journal(&environment, Some(rebased.unwrap()));
    // In the same poll, so that nothing is published yet.
    let replaced = git.follow_journal(end()).unwrap();
    assert!(replaced.rewritten && !replaced.records.is_empty());
    assert!(replaced.records.iter().all(|record| record.revision > newest));
}

#[test]
fn versions_rise_if_the_journal_begins_again_before_a_restart() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    for phase in ["One", "Two", "Three"] {
        status(&store, phase);
    }
    let branch = environment.branch().with_journal();
    let rebased = branch.write_entry(None, None, &Edits::new(), "rebased\n", 0);
    move_journal(&environment, Some(rebased.unwrap()));
    let before = store.read().revision();
    store.poll();
    let served = store.read().revision();
    assert!(served > before, "the status is gone");
    drop(store);
    let store = open(&environment, "a");
    assert!(store.read().revision() >= served);
    status(&store, "Four");
    let version: u64 = meta::resource_version(&widget(&store).unwrap()).parse().unwrap();
    assert!(version > served);
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_journal_that_cannot_be_moved_is_named_after_the_deadline() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let (mut git, _) = Git::open(environment.options("a"), &[widgets()]).unwrap();
    environment.commit([("mine.yaml", None)]);
    let lock = lock_journal(&environment);
    for (end, attempts) in [(Instant::now(), "in 1 attempt:"), (end(), "in 8 attempts:")] {
        assert!(git.follow_journal(end).unwrap().records.is_empty());
        let reason = git.rejection(branch::ELSEWHERE.to_owned());
        for part in [
            "refs/heads/main-status has not",
            "of refs/heads/main ",
            attempts,
            "main-status.lock",
        ] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        assert_eq!(git.rejection("locked".to_owned()), "locked");
    }
    std::fs::remove_file(lock).unwrap();
    assert_eq!(git.follow_journal(end()).unwrap().records.len(), 1);
    assert_eq!(git.not_taken_over, None);
}

#[test]
fn each_commit_of_a_long_journal_counts() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    for number in 0..40 {
        status(&store, &format!("phase {number}"));
        put(&store, "b", "one", &number.to_string()).unwrap();
        match number {
            10 => environment.commit([("mine.yaml", Some(WIDGET.replace("size: 1", "size: 2").as_str()))]),
            20 => foreign::rewrite(&environment, [("mine.yaml", WIDGET.to_owned())]),
            _ => continue,
        }
        store.poll();
    }
    assert_eq!(widget(&store).unwrap()["status"]["phase"], "phase 39");
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn an_object_that_is_created_again_before_the_whole_history_is_read_has_its_own_uid() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let (mut git, _) = Git::open(environment.options("a"), &[widgets()]).unwrap();
    let other = open(&environment, "b");
    let uid = |object: &Value| meta::uid(object).to_owned();
    let before = uid(&widget(&other).unwrap());
    remove(&other);
    set(&other, "spec", &json!({"size": 1})).unwrap();
    // As after an error of the disk.
    git.stale = true;
    assert!(git.follow_journal(end()).unwrap().rewritten);
    let object = git
        .history
        .objects
        .get(&Key::new(WIDGETS, "default", "a"))
        .unwrap();
    assert_eq!(uid(object), uid(&widget(&other).unwrap()));
    assert_ne!(uid(object), before);
}

#[test]
fn an_object_that_is_created_again_on_an_earlier_commit_has_its_own_uid() {
    let environment = Environment::new();
    environment.commit([("other.yaml", Some(BY_HAND))]);
    let store = open(&environment, "a");
    let base = foreign::head(&environment);
    let mut uids: Vec<String> = Vec::new();
    for is_pushed in [false, false, true] {
        if is_pushed {
            environment.commit([("mine.yaml", Some(WIDGET))]);
            store.poll();
        } else {
            set(&store, "spec", &json!({"size": 1})).unwrap();
        }
        let uid = meta::uid(&widget(&store).unwrap()).to_owned();
        assert!(!uids.contains(&uid), "{uid} of {uids:?}");
        uids.push(uid);
        assert_same_in_a_new_process(&environment, &store);
        let head = foreign::head(&environment);
        assert!(environment.branch().advance(Some(head), base).unwrap());
        store.poll();
        assert_eq!(widget(&store), None);
    }
}

#[test]
fn a_rewrite_to_a_new_commit_leaves_the_uids_of_later_objects() {
    let environment = Environment::new();
    environment.commit([("other.yaml", Some(BY_HAND))]);
    let store = open(&environment, "a");
    foreign::rewrite(&environment, [("other.yaml", BY_HAND.replace("\"1\"", "\"2\""))]);
    store.poll();
    let parent = foreign::head(&environment);
    set(&store, "spec", &json!({"size": 1})).unwrap();
    let uid = admit::uid(&Key::new(WIDGETS, "default", "a"), Some(parent), 0).to_string();
    assert_eq!(meta::uid(&widget(&store).unwrap()), uid);
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_return_to_an_earlier_commit_leaves_the_uids_of_other_objects() {
    let environment = Environment::new();
    environment.commit([("other.yaml", Some(BY_HAND))]);
    let store = open(&environment, "a");
    let base = foreign::head(&environment);
    put(&store, "b", "one", "1").unwrap();
    let head = foreign::head(&environment);
    assert!(environment.branch().advance(Some(head), base).unwrap());
    store.poll();
    assert_eq!(object(&store, "b"), None);
    set(&store, "spec", &json!({"size": 1})).unwrap();
    let uid = admit::uid(&Key::new(WIDGETS, "default", "a"), Some(base), 0).to_string();
    assert_eq!(
        meta::uid(&widget(&store).unwrap()),
        uid,
        "it was not created there"
    );
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_watch_does_not_resume_on_a_journal_that_was_removed_between_two_runs() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    put(&store, "b", "one", "1").unwrap();
    // The file on this machine has the newest revision.
    let lease = Key::new("leases.coordination.k8s.io", "default", "a");
    let write = |_: &crate::store::TransactionView<'_>| Ok(Write::Put(json!({"metadata": {"name": "a"}})));
    store.write_now(&lease, write).unwrap();
    let revision = store.read().revision();
    drop(store);
    let store = open(&environment, "a");
    assert!(
        store.read().changes_since(revision).is_ok(),
        "nothing has changed"
    );
    drop(store);
    let repository = git2::Repository::open_bare(environment.repository()).unwrap();
    let mut journal = repository.find_reference("refs/heads/main-status").unwrap();
    journal.delete().unwrap();
    let store = open(&environment, "a");
    assert_eq!(widget(&store).unwrap()["status"], Value::Null);
    assert!(store.read().changes_since(revision).is_err());
    status(&store, "Ready");
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn objects_keep_the_identity_that_only_a_removed_journal_knew() {
    let mut environment = Environment::new();
    environment.commit([("other.yaml", Some(BY_HAND))]);
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    let identity = |store: &Store| {
        let metadata = widget(store).unwrap()["metadata"].clone();
        (metadata["uid"].clone(), metadata["creationTimestamp"].clone())
    };
    let before = identity(&store);
    foreign::rewrite(&environment, [("mine.yaml", WIDGET.to_owned())]);
    store.poll();
    assert_eq!(identity(&store), before);
    drop(store);
    let repository = git2::Repository::open_bare(environment.repository()).unwrap();
    for status in [StatusLocation::Branch, StatusLocation::File] {
        let mut journal = repository.find_reference("refs/heads/main-status").unwrap();
        journal.delete().unwrap();
        environment.status = status;
        for start in ["first", "second"] {
            assert_eq!(identity(&open(&environment, "a")), before, "{status:?}, {start}");
        }
    }
}

#[test]
fn a_start_without_a_journal_fails_while_it_is_locked() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let lock = lock_journal(&environment);
    let start = || Store::git(environment.options("a"), &[widgets()]);
    let error = start().unwrap_err().to_string();
    assert!(error.contains("main-status.lock"), "{error}");
    std::fs::remove_file(&lock).unwrap();
    assert!(widget(&start().unwrap()).is_some());
}

#[test]
fn a_look_that_shows_the_journal_before_its_branch_is_repeated() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let first = open_remote(&environment, "a");
    let options = remote::options(&environment, "b");
    let (mut git, _) = Git::open(options.clone(), &[widgets()]).unwrap();
    let before = heads(&environment).branch;
    set(&first, "spec", &json!({"size": 2})).unwrap();
    git.remote.as_ref().unwrap().fetch(&git.branch).unwrap();
    // As if the branch had been read before the push, and the journal after it.
    let pushed = heads(&environment).branch;
    assert!(git.branch.advance(pushed, before.unwrap()).unwrap());
    // A push without a branch would fail: the one that the settings name does not exist.
    let clone = git2::Repository::open_bare(&options.repository).unwrap();
    clone.set_head("refs/heads/absent").unwrap();
    let foreign = git.follow(end()).unwrap();
    assert_eq!(foreign.records.len(), 1);
    assert_eq!(git.health(), StorageHealth::Writable);
    assert_eq!(git.branch.heads().unwrap(), heads(&environment));
}
