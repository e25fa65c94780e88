//! The status in the journal of a branch.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::foreign::rewrite;
use super::*;

mod changes;
mod journal;

const WIDGETS: &str = "widgets.example.dev";
const PATH: &str = "example.dev/v1/widgets/default/a.yaml";
const STATUS_PATH: &str = "widgets.example.dev/default/a.yaml";
const WIDGET: &str =
    "# Mine.\napiVersion: example.dev/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: 1\n";

pub(super) fn widgets() -> CustomResourceDefinition {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": free, "status": free}});
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": WIDGETS},
        "spec": {
            "group": "example.dev", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    }))
    .unwrap()
}

fn open(environment: &Environment, process: &str) -> Store {
    Store::git(environment.options(process), &[widgets()]).unwrap()
}

fn open_remote(environment: &Environment, process: &str) -> Store {
    Store::git(remote::options(environment, process), &[widgets()]).unwrap()
}

fn widget(store: &Store) -> Option<Value> {
    let key = Key::new(WIDGETS, "default", "a");
    store.read().get(&key).map(|object| Value::clone(object))
}

/// Writes a field of the widget, which it creates if necessary.
fn set(store: &Store, field: &str, value: &Value) -> Result<Arc<Value>, StatusError> {
    let key = Key::new(WIDGETS, "default", "a");
    store.write_now(&key, |view| {
        let mut object = view.get(&key).map_or_else(
            || {
                json!({"apiVersion": "example.dev/v1", "kind": "Widget",
                    "metadata": {"name": "a", "namespace": "default", "generation": 1}})
            },
            |object| Value::clone(object),
        );
        if object[field] != *value && field == "spec" && view.get(&key).is_some() {
            let generation = object["metadata"]["generation"].as_i64().unwrap();
            object["metadata"]["generation"] = (generation + 1).into();
        }
        object[field] = value.clone();
        Ok(Write::Put(object))
    })
}

fn remove(store: &Store) {
    let key = Key::new(WIDGETS, "default", "a");
    let removed = store.write_now(&key, |view| {
        let last = view.get(&key).map(|object| Value::clone(object));
        last.map(Write::Remove)
            .ok_or_else(|| StatusError::internal("absent"))
    });
    removed.unwrap();
}

fn status(store: &Store, phase: &str) {
    set(store, "status", &json!({"phase": phase})).unwrap();
}

fn heads(environment: &Environment) -> Heads {
    environment.branch().with_journal().heads().unwrap()
}

fn read_status(environment: &Environment) -> Option<String> {
    let text = environment
        .branch()
        .read(heads(environment).journal?, STATUS_PATH)
        .unwrap();
    text.map(Result::unwrap)
}

/// Checks that a new process reads the same from the history.
fn assert_same_in_a_new_process(environment: &Environment, store: &Store) {
    let new = open(environment, &uuid::Uuid::new_v4().to_string());
    assert_eq!(widget(&new), widget(store));
    assert_eq!(objects(&new), objects(store));
}

#[test]
fn a_status_moves_the_journal_and_not_the_branch() {
    let environment = Environment::new();
    let store = open(&environment, "a");
    set(&store, "spec", &json!({"size": 1})).unwrap();
    let before = heads(&environment);
    status(&store, "Ready");
    let after = heads(&environment);
    assert_eq!(after.branch, before.branch);
    assert_ne!(after.journal, before.journal);
    assert!(!environment.read(PATH).unwrap().contains("status"));
    assert_eq!(
        read_status(&environment).unwrap(),
        "apiVersion: example.dev/v1\nkind: Widget\nmetadata:\n  name: a\n  namespace: default\nstatus:\n  phase: Ready\n"
    );
    assert_same_in_a_new_process(&environment, &store);
    set(&store, "spec", &json!({"size": 2})).unwrap();
    assert_eq!(widget(&store).unwrap()["status"]["phase"], "Ready");
    assert_same_in_a_new_process(&environment, &store);
    remove(&store);
    assert_eq!(read_status(&environment), None, "the status goes with the object");
    assert_eq!(environment.read(PATH), None);
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_status_stays_in_the_file_by_option() {
    let environment = Environment::with(StatusLocation::File);
    let store = open(&environment, "a");
    set(&store, "spec", &json!({"size": 1})).unwrap();
    status(&store, "Ready");
    assert!(environment.read(PATH).unwrap().contains("phase: Ready"));
    assert_eq!(heads(&environment).journal, None);
    assert_eq!(environment.commits(), 2);
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_status_in_a_file_counts_until_the_journal_has_one() {
    let mut environment = Environment::with(StatusLocation::File);
    let store = open(&environment, "a");
    set(&store, "spec", &json!({"size": 1})).unwrap();
    status(&store, "Ready");
    let before = widget(&store);
    drop(store);
    environment.status = StatusLocation::Branch;
    let store = open(&environment, "a");
    assert_eq!(widget(&store), before, "also the versions are the same");
    assert_eq!(environment.commits(), 2);
    status(&store, "Failed");
    assert_eq!(environment.commits(), 2);
    assert_same_in_a_new_process(&environment, &store);
    set(&store, "spec", &json!({"size": 2})).unwrap();
    assert!(!environment.read(PATH).unwrap().contains("status"));
    assert_eq!(widget(&store).unwrap()["status"]["phase"], "Failed");
    assert_same_in_a_new_process(&environment, &store);
    let text = format!("{WIDGET}status: {{phase: Forged}}\n");
    environment.commit([(PATH, Some(text.as_str()))]);
    store.poll();
    assert_eq!(widget(&store).unwrap()["status"]["phase"], "Failed");
    assert_eq!(widget(&store).unwrap()["spec"]["size"], 1);
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn an_object_that_is_created_again_has_no_status() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    environment.commit([("mine.yaml", None)]);
    environment.commit([("mine.yaml", Some(WIDGET))]);
    store.poll();
    assert_eq!(widget(&store).unwrap()["status"], Value::Null);
    assert_same_in_a_new_process(&environment, &store);
    // The same text as that of the object before it.
    status(&store, "Ready");
    assert_same_in_a_new_process(&environment, &store);
    environment.commit([("mine.yaml", None)]);
    store.poll();
    put(&store, "b", "one", "1").unwrap();
    assert_eq!(
        read_status(&environment),
        None,
        "the next write removes what is left"
    );
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn two_processes_take_a_push_over_once() {
    let environment = Environment::new();
    let stores = [open(&environment, "a"), open(&environment, "b")];
    environment.commit([("mine.yaml", Some(WIDGET))]);
    stores[0].poll();
    let journal = heads(&environment).journal;
    for store in &stores {
        store.poll();
        store.poll();
        assert_same_in_a_new_process(&environment, store);
    }
    assert_eq!(
        heads(&environment).journal,
        journal,
        "a quiet system makes no commits"
    );
    assert_eq!(widget(&stores[0]), widget(&stores[1]));
    assert_eq!(environment.commits(), 1);
}

#[test]
fn a_status_of_an_older_head_comes_before_the_push() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let (first, second) = (open(&environment, "a"), open(&environment, "b"));
    environment.commit([("mine.yaml", Some(WIDGET.replace("size: 1", "size: 2").as_str()))]);
    // The first process does not know the push yet.
    status(&first, "Ready");
    second.poll();
    first.poll();
    let object = widget(&first).unwrap();
    assert_eq!(
        (&object["spec"]["size"], &object["status"]["phase"]),
        (&2.into(), &"Ready".into())
    );
    assert_eq!(widget(&second), widget(&first));
    assert_same_in_a_new_process(&environment, &first);
}

#[test]
fn writes_of_spec_and_status_by_two_processes_are_all_kept() {
    const WRITES: usize = 20;
    let environment = Environment::new();
    for is_remote in [false, true] {
        let open = if is_remote { open_remote } else { open };
        let stores = ["a", "b"].map(|process| open(&environment, &format!("{process}-{is_remote}")));
        set(&stores[0], "spec", &json!({})).unwrap();
        let writes = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for (store, field) in stores.iter().zip(["spec", "status"]) {
                let writes = &writes;
                let count = if is_remote { WRITES / 4 } else { WRITES };
                scope.spawn(move || {
                    for number in 0..count {
                        let is_stored = (0..1000).any(|_| set(store, field, &json!({"n": number})).is_ok());
                        assert!(is_stored, "a write is stored in the end");
                        writes.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        for store in &stores {
            store.poll();
        }
        let object = widget(&stores[0]).unwrap();
        let last = writes.into_inner() / 2 - 1;
        assert_eq!(
            (&object["spec"]["n"], &object["status"]["n"]),
            (&last.into(), &last.into())
        );
        assert_eq!(widget(&stores[1]), Some(object));
        assert_same_in_a_new_process(&environment, &stores[0]);
    }
}

#[test]
fn a_rewritten_branch_keeps_identity_and_status() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    put(&store, "b", "one", "1").unwrap();
    let (before, revision) = (widget(&store).unwrap(), store.read().revision());
    rewrite(
        &environment,
        [("mine.yaml", WIDGET.replace("size: 1", "size: 2"))],
    );
    store.poll();
    let after = widget(&store).unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["status"], before["status"]);
    assert_eq!(after["spec"]["size"], 2);
    assert_eq!(object(&store, "b"), None);
    assert_eq!(
        store.read().changes_since(revision).unwrap().len(),
        2,
        "watches go on"
    );
    // Also without the file on the machine.
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_crash_between_the_moves_of_branch_and_journal_leaves_a_commit_that_is_taken_over() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    let branch = environment.branch();
    let head = branch.head().unwrap();
    let key = Key::new(WIDGETS, "default", "a");
    let revision = history::first_revision(history::generation(store.read().revision()) + 1) + 4;
    let message = format!("update\n\nResource-Version: {revision} {key}\n");
    let edits = [("mine.yaml".to_owned(), Some(WIDGET.replace("size: 1", "size: 2")))];
    let id = branch
        .write(head, &edits.into(), &message, 1_700_000_001)
        .unwrap();
    assert!(branch.advance(head, id).unwrap());
    let restarted = open(&environment, "b");
    store.poll();
    let object = widget(&store).unwrap();
    assert_eq!(meta::resource_version(&object), revision.to_string());
    assert_eq!(object["status"]["phase"], "Ready");
    assert_eq!(widget(&restarted), Some(object));
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_missing_journal_is_restored_while_running_and_begins_again_at_a_start() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    let repository = git2::Repository::open_bare(environment.repository()).unwrap();
    let delete = || {
        let mut journal = repository.find_reference("refs/heads/main-status").unwrap();
        journal.delete().unwrap();
    };
    let before = heads(&environment);
    delete();
    store.poll();
    assert_eq!(heads(&environment), before, "a running process knows it");
    status(&store, "Failed");
    let uid = widget(&store).unwrap()["metadata"]["uid"].clone();
    drop(store);
    delete();
    let store = open(&environment, "a");
    let object = widget(&store).unwrap();
    assert_eq!(
        (&object["metadata"]["uid"], &object["status"]),
        (&uid, &Value::Null)
    );
    status(&store, "Ready");
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn an_edit_of_the_journal_by_hand_is_a_change() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    let branch = environment.branch().with_journal();
    let known = branch.heads().unwrap();
    let text = read_status(&environment).unwrap().replace("Ready", "Edited");
    let edits = Edits::from([(STATUS_PATH.to_owned(), Some(text))]);
    let id = branch
        .write_entry(known.journal, None, &edits, "by hand\n", 0)
        .unwrap();
    let new = Heads {
        journal: Some(id),
        ..known
    };
    branch.advance_heads(known, new).unwrap().unwrap();
    store.poll();
    assert_eq!(widget(&store).unwrap()["status"]["phase"], "Edited");
    status(&store, "Ready");
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_server_that_cannot_move_both_at_once_is_refused_at_the_start() {
    let environment = Environment::new();
    let repository = git2::Repository::open_bare(environment.repository()).unwrap();
    let mut config = repository.config().unwrap();
    config.set_bool("receive.advertiseAtomic", false).unwrap();
    let options = remote::options(&environment, "a");
    let error = Store::git(options.clone(), &[]).unwrap_err().to_string();
    assert!(
        error.contains("atomic") && error.contains("--status file"),
        "{error}"
    );
    let options = GitOptions {
        status: StatusLocation::File,
        ..options
    };
    Store::git(options, &[]).unwrap();
}
