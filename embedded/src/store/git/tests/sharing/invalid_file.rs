//! Leases whose file is not valid in a process: it may be valid in others, or the edit of a user.

use super::*;
use crate::store::git::history::Problem;

const NO_DURATION: &str =
    "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: a}\nspec: {leaseDurationSeconds: 0}\n";

/// Files at the path of the Lease that are not valid, with the reasons.
fn invalid_files() -> [(&'static str, String); 4] {
    [
        (OF_ANOTHER, "the file is of another object".to_owned()),
        (NO_DURATION, "spec.leaseDurationSeconds".to_owned()),
        ("text\n", "it is not read as this object".to_owned()),
        ("a: [\n", yaml::parse("a: [\n").unwrap_err()),
    ]
}

/// Checks that a write was refused because of a file.
fn check_conflict(error: &StatusError, file: &str, reason: &str) {
    assert_eq!((error.code(), error.reason()), (409, "Conflict"));
    let message = error.message();
    assert!(message.contains(file) && message.contains(reason), "{message}");
}

/// Checks that the Lease cannot be taken because of its file.
fn check_refused(store: &Store, file: &str, reason: &str) {
    check_conflict(&take(store, "first").unwrap_err(), file, reason);
    assert_eq!(lease(store), None);
}

#[test]
fn a_lease_is_not_created_over_a_file_that_is_not_valid() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = sharing(&environment, "a");
    let file = format!("{LEASE_PATH} of main-status");
    for (text, reason) in invalid_files() {
        commit_to_journal(&environment, LEASE_PATH, text);
        store.poll();
        check_refused(&store, &file, &reason);
        check_refused(&sharing(&environment, "b"), &file, &reason);
        assert_eq!(read_journal(&environment, LEASE_PATH).as_deref(), Some(text));
    }
    let repaired = NO_DURATION.replace("leaseDurationSeconds: 0", "holderIdentity: second");
    commit_to_journal(&environment, LEASE_PATH, &repaired);
    store.poll();
    release(&store);
    take(&store, "first").unwrap();
}

/// Updates the Lease.
fn renew(store: &Store, holder: &str) -> Result<Arc<Value>, StatusError> {
    store.write_now(&lease_key(), |view| {
        let lease = view.get(&lease_key()).map(|lease| Value::clone(lease));
        let mut lease = lease.ok_or_else(|| StatusError::internal("absent"))?;
        lease["spec"]["holderIdentity"] = holder.into();
        Ok(Write::Put(lease))
    })
}

/// Checks that the Lease cannot be updated because of its file.
fn check_update_refused(store: &Store, file: &str, reason: &str) {
    let before = lease(store);
    check_conflict(&renew(store, "second").unwrap_err(), file, reason);
    assert!(before.is_some());
    assert_eq!(lease(store), before);
}

#[test]
fn an_update_does_not_replace_a_file_that_became_invalid() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = sharing(&environment, "a");
    take(&store, "first").unwrap();
    let valid = read_journal(&environment, LEASE_PATH).unwrap();
    let file = format!("{LEASE_PATH} of main-status");
    for (text, reason) in invalid_files() {
        commit_to_journal(&environment, LEASE_PATH, text);
        store.poll();
        check_update_refused(&store, &file, &reason);
        check_update_refused(&sharing(&environment, "b"), &file, &reason);
        assert_eq!(read_journal(&environment, LEASE_PATH).as_deref(), Some(text));
    }
    commit_to_journal(&environment, LEASE_PATH, &valid);
    store.poll();
    renew(&store, "second").unwrap();
    assert_eq!(holder(&store).as_deref(), Some("second"));
}

#[test]
fn with_the_status_in_files_an_update_does_not_replace_an_invalid_document() {
    let environment = Environment::with(StatusLocation::File);
    environment.commit([("lease.yaml", Some(&*NO_DURATION.replace('0', "15")))]);
    let store = sharing(&environment, "a");
    renew(&store, "first").unwrap();
    for (text, reason) in [
        (NO_DURATION, "spec.leaseDurationSeconds"),
        ("a: [\n", "not valid here"),
    ] {
        environment.commit([("lease.yaml", Some(text))]);
        store.poll();
        check_update_refused(&store, "lease.yaml of main", reason);
        assert_eq!(environment.read("lease.yaml").as_deref(), Some(text));
    }
}

#[test]
fn a_process_that_has_not_read_an_invalid_file_does_not_replace_it() {
    for exists in [false, true] {
        let environment = Environment::new();
        environment.commit([("mine.yaml", Some(BY_HAND))]);
        let store = sharing(&environment, "a");
        let mut check: fn(&Store, &str, &str) = check_refused;
        if exists {
            take(&store, "first").unwrap();
            check = check_update_refused;
        }
        commit_to_journal(&environment, LEASE_PATH, NO_DURATION);
        // Its first attempt is rejected, because the journal has moved.
        check(&store, LEASE_PATH, "spec.leaseDurationSeconds");
        assert_eq!(
            read_journal(&environment, LEASE_PATH).as_deref(),
            Some(NO_DURATION)
        );
    }
}

#[test]
fn an_object_that_is_absent_because_of_its_file_is_known() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = sharing(&environment, "a");
    let invalid = |store: &Store| store.read().invalid_objects().clone();
    for text in [NO_DURATION, "a: [\n"] {
        commit_to_journal(&environment, LEASE_PATH, text);
        store.poll();
        assert_eq!(invalid(&store), BTreeSet::from([lease_key()]), "{text}");
        let restarted = sharing(&environment, "b");
        assert_eq!(invalid(&restarted), BTreeSet::from([lease_key()]), "{text}");
    }
    commit_to_journal(&environment, LEASE_PATH, &NO_DURATION.replace('0', "15"));
    store.poll();
    assert!(lease(&store).is_some());
    assert!(invalid(&store).is_empty());
    commit_to_journal(&environment, LEASE_PATH, NO_DURATION);
    store.poll();
    assert!(
        invalid(&store).is_empty(),
        "the object is there, as it was before"
    );
}

#[test]
fn with_the_status_in_files_a_lease_is_not_created_over_an_invalid_document() {
    let environment = Environment::with(StatusLocation::File);
    environment.commit([("lease.yaml", Some(NO_DURATION))]);
    let store = sharing(&environment, "a");
    check_refused(&store, "lease.yaml of main", "spec.leaseDurationSeconds");
    assert_eq!(environment.read("lease.yaml").as_deref(), Some(NO_DURATION));
    environment.commit([("lease.yaml", None)]);
    store.poll();
    take(&store, "first").unwrap();
}

#[test]
fn a_start_logs_an_invalid_file_of_the_journal() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = sharing(&environment, "a");
    commit_to_journal(&environment, LEASE_PATH, NO_DURATION);
    store.poll();
    let options = GitOptions {
        shared: BTreeSet::from([SharedKind::Leases]),
        ..environment.options("b")
    };
    let git = Git::open(options, &[]).unwrap().0;
    let present = git.history.present_problems(&git.kinds);
    let [Problem::Invalid { path, .. }] = present.as_slice() else {
        panic!("{present:?}")
    };
    assert_eq!(path, LEASE_PATH);
}
