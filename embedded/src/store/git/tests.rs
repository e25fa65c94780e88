//! Stores on bare repositories, and users who commit to them.

mod definitions;
mod foreign;
mod moves;
mod old_watches;
mod remote;
mod resume;
mod sharing;
mod starts;
mod status;
mod status_in_file;

use std::cell::Cell;
use std::path::Path;

use serde_json::json;

use super::super::{Store, Write};
use super::branch::Edits;
use super::*;

thread_local! {
    /// Where the tests of this thread keep the status.
    static STATUS: Cell<StatusLocation> = const { Cell::new(StatusLocation::Branch) };
}

impl Branch {
    /// Moves the branch as the push of a user. Returns false if it points to another commit.
    fn advance(&self, old: Option<git2::Oid>, new: git2::Oid) -> Result<bool, git2::Error> {
        Ok(self.try_advance(old, new)?.is_ok())
    }
}

/// A bare repository, and a directory for the local files of processes.
struct Environment {
    dir: tempfile::TempDir,
    status: StatusLocation,
}

impl Environment {
    fn new() -> Self {
        Self::with(STATUS.get())
    }

    fn with(status: StatusLocation) -> Self {
        let dir = tempfile::tempdir().unwrap();
        git2::Repository::init_bare(dir.path().join("objects.git")).unwrap();
        Self { dir, status }
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("objects.git")
    }

    fn options(&self, process: &str) -> GitOptions {
        GitOptions {
            repository: self.repository(),
            remote: None,
            branch: "main".to_owned(),
            status: self.status,
            subdir: "live".to_owned(),
            interval: Duration::from_hours(1),
            signing_key: None,
            shared: BTreeSet::new(),
            local: self.dir.path().join(format!("{process}.redb")),
        }
    }

    fn store(&self, process: &str) -> Store {
        Store::git(self.options(process), &[]).unwrap()
    }

    fn branch(&self) -> Branch {
        Branch::open(&self.repository(), "main", "live").unwrap()
    }

    /// Commits as a user.
    fn commit<const N: usize>(&self, files: [(&str, Option<&str>); N]) {
        let branch = self.branch();
        let head = branch.head().unwrap();
        let edits = files.map(|(path, text)| (path.to_owned(), text.map(str::to_owned)));
        let id = branch
            .write(head, &edits.into(), "by hand\n", 1_700_000_000)
            .unwrap();
        assert!(branch.advance(head, id).unwrap());
    }

    fn read(&self, path: &str) -> Option<String> {
        let branch = self.branch();
        let text = branch.read(branch.head().unwrap()?, path).unwrap();
        text.map(Result::unwrap)
    }

    /// Asserts that watches from this revision continue if there is a journal, and expire if there is none.
    fn assert_watches_continue(&self, store: &Store, before: u64) {
        let has_journal = self.status == StatusLocation::Branch;
        assert_eq!(store.read().changes_since(before).is_ok(), has_journal);
    }

    /// Returns the number of commits.
    fn commits(&self) -> usize {
        let branch = self.branch();
        let head = branch.head().unwrap();
        head.map_or(0, |head| branch.line(None, head).unwrap().unwrap().len())
    }
}

const DEFAULT_PATH: &str = "core/v1/configmaps/default/a.yaml";
const BY_HAND: &str = "# Written by hand.\nkind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\ndata:\n  one: \"1\" # first\n";

fn key(name: &str) -> Key {
    Key::new("configmaps", "default", name)
}

/// Writes one entry of a ConfigMap, which it creates if necessary.
fn put(store: &Store, name: &str, entry: &str, value: &str) -> Result<Arc<Value>, StatusError> {
    store.write_now(&key(name), |view| {
        let mut object = view.get(&key(name)).map_or_else(
            || {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {},
                    "metadata": {"name": name, "namespace": "default"}})
            },
            |object| Value::clone(object),
        );
        object["data"][entry] = value.into();
        Ok(Write::Put(object))
    })
}

fn object(store: &Store, name: &str) -> Option<Value> {
    store.read().get(&key(name)).map(|object| Value::clone(object))
}

/// Returns all shared objects.
fn objects(store: &Store) -> Vec<Value> {
    let objects = store.read().list("configmaps", "");
    objects.iter().map(|object| Value::clone(object)).collect()
}

#[test]
fn a_write_is_a_commit_and_a_restart_reads_the_same() {
    let environment = Environment::new();
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    put(&store, "a", "two", "2").unwrap();
    put(&store, "b", "one", "1").unwrap();
    assert_eq!(environment.commits(), 3);
    let file = environment.read(DEFAULT_PATH).unwrap();
    assert!(
        !file.contains("uid") && !file.contains("resourceVersion"),
        "{file}"
    );
    let (before, revision) = (objects(&store), store.read().revision());
    drop(store);
    let store = environment.store("a");
    assert_eq!(
        objects(&store),
        before,
        "uid, version and times follow from the history"
    );
    assert_eq!(store.read().revision(), revision);
    assert_eq!(objects(&environment.store("b")), before, "in every process");
}

#[test]
fn local_objects_make_no_commits() {
    let environment = Environment::new();
    let store = environment.store("a");
    let secret = Key::new("secrets", "default", "a");
    let write = |_: &crate::store::TransactionView<'_>| Ok(Write::Put(json!({"metadata": {"name": "a"}})));
    let first = store.write_now(&secret, write).unwrap();
    put(&store, "a", "one", "1").unwrap();
    let second = store.write_now(&secret, write).unwrap();
    assert_eq!(environment.commits(), 1);
    let version = |object: &Value| meta::resource_version(object).parse::<u64>().unwrap();
    assert!(version(&first) < version(&second));
    drop(store);
    let store = environment.store("a");
    assert_eq!(
        store.read().get(&secret),
        Some(&second),
        "it is in the local file"
    );
}

#[test]
fn a_write_keeps_the_comments_of_a_file_that_a_user_has_edited() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    let first = object(&store, "a").unwrap();
    put(&store, "a", "two", "2").unwrap();
    let expected = format!("{BY_HAND}  two: '2'\n");
    assert_eq!(environment.read("mine.yaml"), Some(expected.clone()));
    assert_eq!(environment.read(DEFAULT_PATH), None, "the file keeps its place");
    environment.commit([("mine.yaml", Some(expected.replace("\"1\"", "\"3\"").as_str()))]);
    let before = store.read().revision();
    store.poll();
    let changed = object(&store, "a").unwrap();
    assert_eq!(changed["data"], json!({"one": "3", "two": "2"}));
    assert_eq!(changed["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(
        store.read().changes_since(before).unwrap().len(),
        1,
        "a watch sees it"
    );
    environment.commit([("mine.yaml", None)]);
    store.poll();
    assert_eq!(object(&store, "a"), None);
}

#[test]
fn an_invalid_edit_keeps_the_last_good_object() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    let good = object(&store, "a");
    assert!(good.is_some());
    let owned =
        "  name: a\n  ownerReferences: [{apiVersion: v1, kind: A, name: b, uid: c, controller: maybe}]\n";
    for broken in [
        "kind: [\n",
        &BY_HAND.replace("  name: a\n", owned),
        &BY_HAND.replace("\"1\"", "[]"),
    ] {
        environment.commit([("mine.yaml", Some(broken))]);
        store.poll();
        assert_eq!(object(&store, "a"), good, "{broken}");
    }
    put(&store, "a", "two", "2").unwrap();
    let written = environment.read("mine.yaml").unwrap();
    assert!(
        written.contains("one: '1'"),
        "the last good value is back: {written}"
    );
    environment.commit([("mine.yaml", Some("kind: [\n"))]);
    let error = put(&store, "a", "two", "3").unwrap_err();
    assert!(
        error.message().contains("mine.yaml does not parse"),
        "{}",
        error.message()
    );
}

#[test]
fn a_duplicate_is_read_only() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND)), ("other.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    let error = put(&store, "a", "two", "2").unwrap_err();
    assert!(
        error.message().contains("mine.yaml, other.yaml"),
        "{}",
        error.message()
    );
    environment.commit([("other.yaml", None)]);
    store.poll();
    put(&store, "a", "two", "2").unwrap();
}

#[test]
fn removing_the_file_of_an_object_with_finalizers_requests_its_deletion() {
    let environment = Environment::new();
    let text = BY_HAND.replace("  name: a\n", "  name: a\n  finalizers: [a.example/b]\n");
    environment.commit([("mine.yaml", Some(text.as_str()))]);
    let store = environment.store("a");
    environment.commit([("mine.yaml", None)]);
    store.poll();
    let terminating = object(&store, "a").unwrap();
    assert!(meta::is_deleting(&terminating), "{terminating}");
    let removed = store.write_now(&key("a"), |view| {
        let last = view.get(&key("a")).map(|object| Value::clone(object));
        last.map(Write::Remove)
            .ok_or_else(|| StatusError::internal("absent"))
    });
    removed.unwrap();
    assert_eq!(object(&store, "a"), None);
    assert_eq!(
        object(&environment.store("b"), "a"),
        None,
        "other processes see the end"
    );
}

#[test]
fn two_processes_lose_no_write() {
    const WRITES: usize = 20;
    let environment = Environment::new();
    let stores = [environment.store("a"), environment.store("b")];
    std::thread::scope(|scope| {
        for (number, store) in stores.iter().enumerate() {
            scope.spawn(move || {
                for write in 0..WRITES {
                    let entry = format!("p{number}-{write}");
                    let is_stored = (0..1000).any(|_| put(store, "a", &entry, "x").is_ok());
                    assert!(is_stored, "a write is stored in the end");
                }
            });
        }
    });
    for store in &stores {
        store.poll();
    }
    let [first, second] = &stores;
    assert_eq!(objects(first), objects(second));
    let entries = object(first, "a").unwrap()["data"].as_object().unwrap().len();
    assert_eq!(entries, 2 * WRITES);
    assert_eq!(environment.commits(), 2 * WRITES);
    assert_eq!(objects(&environment.store("c")), objects(first));
}

#[test]
fn a_rewritten_history_is_taken_over() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    put(&store, "b", "one", "1").unwrap();
    let before = store.read().revision();
    foreign::rewrite(&environment, [("mine.yaml", BY_HAND.replace("\"1\"", "\"9\""))]);
    store.poll();
    assert_eq!(object(&store, "b"), None);
    assert_eq!(object(&store, "a").unwrap()["data"]["one"], "9");
    assert!(store.read().revision() > before, "revisions never fall");
    environment.assert_watches_continue(&store, before);
    put(&store, "a", "two", "2").unwrap();
    assert!(environment.read("mine.yaml").unwrap().ends_with("  two: '2'\n"));
}

#[test]
fn a_repository_that_is_away_fails_writes_and_deletes_nothing() {
    let environment = Environment::new();
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    let away = environment.dir.path().join("away.git");
    std::fs::rename(environment.repository(), &away).unwrap();
    store.poll();
    let error = put(&store, "a", "two", "2").unwrap_err();
    assert!(error.message().contains("objects.git"), "{}", error.message());
    assert!(object(&store, "a").is_some());
    std::fs::rename(&away, environment.repository()).unwrap();
    put(&store, "a", "two", "2").unwrap();
    let missing = Store::git(
        GitOptions {
            repository: Path::new("/absent").to_owned(),
            ..environment.options("b")
        },
        &[],
    );
    assert!(missing.unwrap_err().to_string().contains("/absent, branch main"));
}

#[test]
fn a_crash_between_the_steps_of_a_commit_leaves_none_or_all_of_it() {
    let environment = Environment::new();
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    let before = objects(&store);
    let branch = environment.branch();
    let head = branch.head().unwrap();
    let edits = Edits::from([(DEFAULT_PATH.to_owned(), None)]);
    // The process ends after it wrote the objects of Git, or after it moved the branch, before it published the change.
    let id = branch.write(head, &edits, "remove\n", 1_700_000_000).unwrap();
    assert_eq!(objects(&environment.store("b")), before, "none of it");
    assert!(branch.advance(head, id).unwrap());
    assert_eq!(objects(&environment.store("c")), Vec::<Value>::new(), "all of it");
    assert!(!branch.advance(head, id).unwrap(), "the branch moves once");
}

/// The tests that hold wherever the status is.
const TESTS: &[fn()] = &[
    a_write_is_a_commit_and_a_restart_reads_the_same,
    local_objects_make_no_commits,
    a_write_keeps_the_comments_of_a_file_that_a_user_has_edited,
    an_invalid_edit_keeps_the_last_good_object,
    a_duplicate_is_read_only,
    removing_the_file_of_an_object_with_finalizers_requests_its_deletion,
    two_processes_lose_no_write,
    a_rewritten_history_is_taken_over,
    a_repository_that_is_away_fails_writes_and_deletes_nothing,
    a_crash_between_the_steps_of_a_commit_leaves_none_or_all_of_it,
];
