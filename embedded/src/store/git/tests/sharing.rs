//! Leases, Events and runs in the repository.

mod invalid_file;

use super::foreign::head;
use super::*;
use crate::store::Expired;

const LEASES: &str = "leases.coordination.k8s.io";
const LEASE_PATH: &str = "leases.coordination.k8s.io/default/a.yaml";
const OF_ANOTHER: &str = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: b}\n";

/// Opens a process that shares Leases.
fn sharing(environment: &Environment, process: &str) -> Store {
    let options = GitOptions {
        shared: BTreeSet::from([SharedKind::Leases]),
        ..environment.options(process)
    };
    Store::git(options, &[]).unwrap()
}

fn lease_key() -> Key {
    Key::new(LEASES, "default", "a")
}

fn lease(store: &Store) -> Option<Value> {
    store.read().get(&lease_key()).map(|object| Value::clone(object))
}

fn holder(store: &Store) -> Option<String> {
    lease(store).map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap().to_owned())
}

/// Takes the Lease if it has no other holder.
fn take(store: &Store, candidate: &str) -> Result<Arc<Value>, StatusError> {
    store.write_now(&lease_key(), |view| match view.get(&lease_key()) {
        Some(held) if held["spec"]["holderIdentity"] == candidate => Ok(Write::Unchanged(held.clone())),
        Some(_) => Err(StatusError::internal("another candidate has it")),
        None => Ok(Write::Put(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "a", "namespace": "default"}, "spec": {"holderIdentity": candidate},
        }))),
    })
}

fn release(store: &Store) {
    let removed = store.write_now(&lease_key(), |view| {
        let last = view.get(&lease_key()).map(|object| Value::clone(object));
        last.map(Write::Remove)
            .ok_or_else(|| StatusError::internal("absent"))
    });
    removed.unwrap();
}

fn heads(environment: &Environment) -> Heads {
    environment.branch().with_journal().heads().unwrap()
}

/// Returns a file of the journal.
fn read_journal(environment: &Environment, path: &str) -> Option<String> {
    let branch = environment.branch();
    let text = branch.read(heads(environment).journal?, path).unwrap();
    text.map(Result::unwrap)
}

/// Commits to the journal as a user.
fn commit_to_journal(environment: &Environment, path: &str, text: &str) {
    let branch = environment.branch().with_journal();
    let known = branch.heads().unwrap();
    let edits = Edits::from([(path.to_owned(), Some(text.to_owned()))]);
    let id = branch
        .write_entry(known.journal, None, &edits, "by hand\n", 1_700_000_000)
        .unwrap();
    let new = Heads {
        journal: Some(id),
        ..known
    };
    branch.advance_heads(known, new).unwrap().unwrap();
}

#[test]
fn one_of_two_processes_takes_a_shared_lease() {
    let environment = Environment::new();
    let [first, second] = ["a", "b"].map(|process| sharing(&environment, process));
    take(&first, "first").unwrap();
    // Its write is rejected, and decides again with the Lease of the other process.
    take(&second, "second").unwrap_err();
    assert_eq!(holder(&second).as_deref(), Some("first"));
    assert_eq!(lease(&second), lease(&first));
    release(&first);
    // A refusal writes nothing, so it alone does not read the repository again.
    second.poll();
    take(&second, "second").unwrap();
    first.poll();
    assert_eq!(lease(&first), lease(&second));
    assert_eq!(lease(&sharing(&environment, "c")), lease(&first));
}

#[test]
fn a_shared_lease_is_in_the_journal_alone() {
    let environment = Environment::new();
    let store = sharing(&environment, "a");
    take(&store, "first").unwrap();
    assert_eq!(
        read_journal(&environment, LEASE_PATH).unwrap(),
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: a\n  namespace: default\n\
         spec:\n  holderIdentity: first\n"
    );
    assert_eq!(environment.commits(), 1, "the first write creates the branch");
    put(&store, "a", "one", "1").unwrap();
    let before = heads(&environment);
    release(&store);
    assert_eq!(heads(&environment).branch, before.branch);
    assert_eq!(read_journal(&environment, LEASE_PATH), None);
    let restarted = sharing(&environment, "b");
    assert_eq!(lease(&restarted), None);
    assert_eq!(objects(&restarted), objects(&store));
}

#[test]
fn a_lease_that_is_created_again_has_another_uid() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = sharing(&environment, "a");
    let mut uids = BTreeSet::new();
    for _ in 0..2 {
        take(&store, "first").unwrap();
        assert_eq!(lease(&sharing(&environment, "b")), lease(&store));
        uids.insert(meta::uid(&lease(&store).unwrap()).to_owned());
        release(&store);
    }
    assert_eq!(uids.len(), 2, "the branch did not move between them: {uids:?}");
}

#[test]
fn a_file_of_the_branch_is_no_shared_lease() {
    let environment = Environment::new();
    let text = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: a\nspec:\n  holderIdentity: forged\n";
    environment.commit([("lease.yaml", Some(text))]);
    let store = sharing(&environment, "a");
    assert_eq!(lease(&store), None);
    take(&store, "first").unwrap();
    environment.commit([("lease.yaml", None)]);
    store.poll();
    assert_eq!(holder(&store).as_deref(), Some("first"));
}

#[test]
fn a_file_of_the_journal_is_the_object_that_its_path_names() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = sharing(&environment, "a");
    take(&store, "first").unwrap();
    let before = lease(&store);
    let text = read_journal(&environment, LEASE_PATH).unwrap();
    for broken in [text.replace("name: a", "name: b"), "a: [\n".to_owned()] {
        commit_to_journal(&environment, LEASE_PATH, &broken);
        store.poll();
        assert_eq!(lease(&store), before, "{broken}");
    }
    commit_to_journal(&environment, LEASE_PATH, &text.replace("first", "second"));
    store.poll();
    assert_eq!(holder(&store).as_deref(), Some("second"));
    assert_eq!(lease(&sharing(&environment, "b")), lease(&store));
    commit_to_journal(&environment, LEASE_PATH, "a: [\n");
    store.poll();
    release(&store);
    assert_eq!(read_journal(&environment, LEASE_PATH), None);
    assert_eq!(lease(&sharing(&environment, "c")), None);
    take(&store, "third").unwrap();
}

#[test]
fn a_write_keeps_a_shared_lease_whose_file_is_not_valid() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = sharing(&environment, "a");
    commit_to_journal(&environment, LEASE_PATH, OF_ANOTHER);
    store.poll();
    assert_eq!(lease(&store), None);
    put(&store, "a", "two", "2").unwrap();
    assert_eq!(
        read_journal(&environment, LEASE_PATH).as_deref(),
        Some(OF_ANOTHER)
    );
}

#[test]
fn a_process_that_does_not_share_leases_keeps_those_of_others() {
    let environment = Environment::new();
    let store = sharing(&environment, "a");
    take(&store, "first").unwrap();
    let other = environment.store("b");
    assert_eq!(lease(&other), None);
    take(&other, "second").unwrap();
    put(&other, "a", "one", "1").unwrap();
    store.poll();
    assert_eq!(holder(&store).as_deref(), Some("first"));
    assert!(read_journal(&environment, LEASE_PATH).unwrap().contains("first"));
    // Without the option again, the Lease of the local file counts.
    drop(other);
    assert_eq!(holder(&environment.store("b")).as_deref(), Some("second"));
    let shared = sharing(&environment, "b");
    assert_eq!(holder(&shared).as_deref(), Some("first"));
}

#[test]
fn with_the_status_in_files_a_shared_lease_is_a_file_of_the_branch() {
    let environment = Environment::with(StatusLocation::File);
    let store = sharing(&environment, "a");
    take(&store, "first").unwrap();
    let path = "coordination.k8s.io/v1/leases/default/a.yaml";
    assert!(environment.read(path).unwrap().contains("holderIdentity: first"));
    let before = head(&environment);
    assert_eq!(lease(&sharing(&environment, "b")), lease(&store));
    release(&store);
    assert_ne!(head(&environment), before);
    assert_eq!(environment.read(path), None);
}

fn runs() -> CustomResourceDefinition {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": free, "status": free}});
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "terraformruns.infra.sluice.dev"},
        "spec": {
            "group": "infra.sluice.dev", "scope": "Namespaced",
            "names": {"plural": "terraformruns", "kind": "TerraformRun"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    }))
    .unwrap()
}

const RUN_PATH: &str = "terraformruns.infra.sluice.dev/default/net-1.yaml";

/// Opens a process that shares runs.
fn sharing_runs(environment: &Environment, process: &str, crds: &[CustomResourceDefinition]) -> Store {
    let options = GitOptions {
        shared: BTreeSet::from([SharedKind::Runs]),
        ..environment.options(process)
    };
    Store::git(options, crds).unwrap()
}

fn run_key() -> Key {
    Key::new("terraformruns.infra.sluice.dev", "default", "net-1")
}

fn run(store: &Store) -> Option<Value> {
    store.read().get(&run_key()).map(|run| Value::clone(run))
}

fn create_run(store: &Store) {
    let created = json!({"apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
        "metadata": {"name": "net-1", "namespace": "default", "generation": 1}, "spec": {"attempt": 1}});
    store
        .write_now(&run_key(), |_| Ok(Write::Put(created.clone())))
        .unwrap();
}

#[test]
fn a_shared_run_has_its_status_in_its_file() {
    let environment = Environment::new();
    let open = |process: &str| sharing_runs(&environment, process, &[runs()]);
    let store = open("a");
    create_run(&store);
    store
        .write_now(&run_key(), |view| {
            let mut ended = Value::clone(view.get(&run_key()).unwrap());
            ended["status"] = json!({"phase": "Succeeded"});
            Ok(Write::Put(ended))
        })
        .unwrap();
    let file = read_journal(&environment, RUN_PATH).unwrap();
    assert!(
        file.contains("attempt: 1") && file.contains("phase: Succeeded"),
        "{file}"
    );
    assert_eq!(environment.commits(), 1, "the first write creates the branch");
    assert_eq!(run(&open("b")), run(&store));
}

#[test]
fn a_write_keeps_shared_runs_whose_kind_the_process_does_not_serve() {
    let environment = Environment::new();
    let store = sharing_runs(&environment, "a", &[runs()]);
    let other = sharing_runs(&environment, "b", &[]);
    create_run(&store);
    let before = run(&store);
    other.poll();
    assert_eq!(run(&other), None);
    put(&other, "a", "one", "1").unwrap();
    put(&other, "a", "one", "2").unwrap();
    store.poll();
    assert!(before.is_some());
    assert_eq!(run(&store), before);
    assert!(read_journal(&environment, RUN_PATH).is_some());
}

/// Returns the changes of the Lease after a revision: their type and the holder.
fn changes(store: &Store, revision: u64) -> Result<Vec<(ChangeType, Value)>, Expired> {
    let changes = store.read().changes_of(LEASES, revision)?;
    let changes = changes.iter().filter(|change| change.key == lease_key());
    let seen = changes.map(|change| (change.kind, change.object["spec"]["holderIdentity"].clone()));
    Ok(seen.collect())
}

#[test]
fn a_watch_of_shared_leases_resumes_from_a_version_before_a_restart() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = sharing(&environment, "a");
    take(&store, "first").unwrap();
    store.poll();
    let revision = store.read().revision();
    release(&store);
    put(&store, "a", "one", "1").unwrap();
    drop(store);
    let other = sharing(&environment, "b");
    take(&other, "second").unwrap();
    let store = sharing(&environment, "a");
    let expected = [
        (ChangeType::Remove, json!("first")),
        (ChangeType::Put, json!("second")),
    ];
    assert_eq!(changes(&store, revision).unwrap(), expected);
    release(&store);
    let seen = changes(&store, revision).unwrap();
    assert_eq!(seen[..2], expected);
    assert_eq!(seen[2..], [(ChangeType::Remove, json!("second"))], "and goes on");
    let state = store.read();
    state.changes_of("events", revision).unwrap_err();
}

#[test]
fn versions_from_before_a_change_of_the_shared_kinds_are_expired() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    take(&store, "local").unwrap();
    let local = store.read().revision();
    drop(store);
    let store = sharing(&environment, "a");
    assert_eq!(lease(&store), None);
    changes(&store, local).unwrap_err();
    let shared = store.read().revision();
    drop(store);
    let store = sharing(&environment, "a");
    assert_eq!(store.read().revision(), shared, "it is stored");
    assert!(changes(&store, shared).unwrap().is_empty());
    drop(store);
    let store = environment.store("a");
    assert_eq!(holder(&store).as_deref(), Some("local"));
    changes(&store, shared).unwrap_err();
}

#[test]
fn versions_from_before_a_journal_that_another_process_has_begun_are_expired() {
    let mut environment = Environment::with(StatusLocation::File);
    let store = sharing(&environment, "a");
    take(&store, "first").unwrap();
    store.poll();
    let revision = store.read().revision();
    drop(store);
    environment.status = StatusLocation::Branch;
    drop(sharing(&environment, "b"));
    let store = sharing(&environment, "a");
    assert_eq!(lease(&store), None, "its file is not read any more");
    changes(&store, revision).unwrap_err();
}
