//! Commits of users that a store has to understand, and records that it must not write.

use git2::{Oid, Signature, Time};

use super::*;
use crate::store::backend::Origin;

pub(super) fn head(environment: &Environment) -> Oid {
    environment.branch().head().unwrap().unwrap()
}

/// Commits on `base` as a user, and merges the branch into that as `git pull` does.
fn pull(environment: &Environment, base: Oid, path: &str, text: &str) {
    let branch = environment.branch();
    let theirs = head(environment);
    let edits = Edits::from([(path.to_owned(), Some(text.to_owned()))]);
    let own = branch
        .write(Some(base), &edits, "by hand\n", 1_700_000_002)
        .unwrap();
    let merged = branch.write(Some(theirs), &edits, "merged\n", 0).unwrap();
    let repository = git2::Repository::open_bare(environment.repository()).unwrap();
    let commit = |id| repository.find_commit(id).unwrap();
    let (own, theirs, merged) = (commit(own), commit(theirs), commit(merged));
    let author = Signature::new("a", "a@b.example", &Time::new(1_700_000_003, 0)).unwrap();
    let tree = merged.tree().unwrap();
    let merge = repository
        .commit(
            None,
            &author,
            &author,
            "Merge branch 'main'\n",
            &tree,
            &[&own, &theirs],
        )
        .unwrap();
    assert!(branch.advance(Some(theirs.id()), merge).unwrap());
}

/// Replaces the whole history by one commit.
pub(super) fn rewrite<const N: usize>(environment: &Environment, files: [(&str, String); N]) {
    let branch = environment.branch();
    let edits = files.map(|(path, text)| (path.to_owned(), Some(text)));
    let rewritten = branch
        .write(None, &edits.into(), "rewritten\n", 1_700_000_001)
        .unwrap();
    assert!(branch.advance(Some(head(environment)), rewritten).unwrap());
}

#[test]
fn a_pull_of_a_user_does_not_rewrite_the_history() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let base = head(&environment);
    let store = environment.store("a");
    put(&store, "b", "one", "1").unwrap();
    let (b, revision) = (object(&store, "b"), store.read().revision());
    pull(
        &environment,
        base,
        "mine.yaml",
        &BY_HAND.replace("\"1\"", "\"3\""),
    );
    store.poll();
    assert_eq!(object(&store, "a").unwrap()["data"]["one"], "3");
    assert_eq!(object(&store, "b"), b, "also its uid");
    let changes = store.read().changes_since(revision).unwrap();
    assert_eq!(changes.len(), 1, "watches go on");
    assert_eq!(
        objects(&environment.store("b")),
        objects(&store),
        "a process that reads the whole history follows the same parent"
    );
    put(&store, "b", "two", "2").unwrap();
    assert_eq!(objects(&environment.store("c")), objects(&store));
}

#[test]
fn objects_keep_their_identity_in_a_rewritten_history() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    put(&store, "b", "one", "1").unwrap();
    let identities = |store: &Store| {
        ["a", "b"].map(|name| {
            let metadata = object(store, name).unwrap()["metadata"].clone();
            (metadata["uid"].clone(), metadata["creationTimestamp"].clone())
        })
    };
    let before = identities(&store);
    let path = "core/v1/configmaps/default/b.yaml";
    let file = environment.read(path).unwrap();
    rewrite(
        &environment,
        [("mine.yaml", BY_HAND.to_owned()), (path, file.clone())],
    );
    store.poll();
    assert_eq!(identities(&store), before);
    drop(store);
    let store = environment.store("a");
    assert_eq!(identities(&store), before, "after a restart");
    let changed = file.replace("one: '1'", "one: '2'");
    rewrite(&environment, [("mine.yaml", BY_HAND.to_owned()), (path, changed)]);
    store.poll();
    assert_eq!(identities(&store), before, "after another rewrite");
    drop(store);
    assert_eq!(identities(&environment.store("a")), before);
}

#[test]
fn forged_trailers_take_no_versions() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    let branch = environment.branch();
    let base = head(&environment);
    let edits = [("mine.yaml".to_owned(), Some(BY_HAND.replace("\"1\"", "\"2\"")))];
    let message = format!("x\n\nResource-Version: {} {}\n", u64::MAX, key("a"));
    let forged = branch
        .write(Some(base), &edits.into(), &message, 1_700_000_001)
        .unwrap();
    assert!(branch.advance(Some(base), forged).unwrap());
    store.poll();
    assert_eq!(object(&store, "a").unwrap()["data"]["one"], "2");
    put(&store, "a", "two", "2").unwrap();
    assert_eq!(
        history::generation(store.read().revision()),
        3,
        "one for each commit"
    );
    assert_eq!(objects(&environment.store("b")), objects(&store));
}

#[test]
fn a_local_object_is_never_committed() {
    let environment = Environment::new();
    let (mut git, _) = Git::open(environment.options("a"), &[]).unwrap();
    let record = |resource: &str, revision| Record {
        key: Key::new(resource, "default", "a"),
        kind: ChangeType::Put,
        object: Arc::new(json!({"metadata": {"name": "a"}})),
        revision,
        origin: Origin::default(),
    };
    let mut mixed = vec![record("configmaps", 1), record("secrets", 2)];
    assert!(matches!(git.commit(&mut mixed), Err(CommitError::Failed(_))));
    let mut secret = vec![record("secrets", 1)];
    assert!(matches!(
        git.commit_shared(&mut secret),
        Err(CommitError::Refused(_))
    ));
    assert_eq!(environment.commits(), 0);
    git.commit(&mut secret).unwrap();
    assert_eq!(environment.commits(), 0, "it is in the local file");
}

#[test]
fn a_directory_in_another_form_is_read_or_refused() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let open = |subdir: &str| {
        let options = GitOptions {
            subdir: subdir.to_owned(),
            ..environment.options("a")
        };
        Store::git(options, &[])
    };
    assert!(object(&open("./live/").unwrap(), "a").is_some());
    for subdir in ["/live", "live/..", ".git"] {
        let error = open(subdir).unwrap_err().to_string();
        assert!(error.contains("directory of the objects"), "{error}");
    }
}

#[test]
fn files_of_older_layouts_keep_their_place() {
    let environment = Environment::new();
    let path = "core/v1/ConfigMap/default/a.yaml";
    environment.commit([(path, Some(BY_HAND))]);
    let store = environment.store("a");
    put(&store, "a", "two", "2").unwrap();
    let written = environment.read(path).unwrap();
    assert_eq!(written, format!("{BY_HAND}  two: '2'\n"));
    assert_eq!(environment.read(DEFAULT_PATH), None);
}

#[test]
fn a_write_changes_one_of_many_documents() {
    let environment = Environment::new();
    let document = |name: &str| BY_HAND.replace("name: a", &format!("name: {name}"));
    let text = format!("{}---\n{}---\n{}", document("a"), document("b"), document("c"));
    environment.commit([("all.yaml", Some(text.as_str()))]);
    let store = environment.store("a");
    put(&store, "b", "two", "2").unwrap();
    put(&store, "d", "one", "1").unwrap();
    let changed = format!("{}  two: '2'\n", document("b"));
    let expected = text.replace(&document("b"), &changed);
    assert_eq!(environment.read("all.yaml"), Some(expected));
    assert_eq!(objects(&environment.store("b")), objects(&store));
    store
        .write_now(&key("c"), |view| {
            let last = view.get(&key("c")).map(|object| Value::clone(object));
            last.map(Write::Remove)
                .ok_or_else(|| StatusError::internal("absent"))
        })
        .unwrap();
    let left = environment.read("all.yaml").unwrap();
    assert!(left.contains("name: b") && !left.contains("name: c"), "{left}");
}

#[test]
fn a_file_that_is_too_large_changes_nothing_until_it_is_split() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    let before = object(&store, "a");
    let large = format!("{BY_HAND}# {}\n", "x".repeat(16 << 20));
    environment.commit([
        ("mine.yaml", Some(large.as_str())),
        ("b.yaml", Some(large.as_str())),
    ]);
    store.poll();
    assert_eq!(object(&store, "a"), before);
    let error = put(&store, "a", "two", "2").unwrap_err();
    assert!(
        error.message().contains("mine.yaml") && error.message().contains("the limit is 16777216"),
        "{}",
        error.message()
    );
    environment.commit([("mine.yaml", Some(BY_HAND)), ("b.yaml", None)]);
    store.poll();
    put(&store, "a", "two", "2").unwrap();
    // No write makes such a file either.
    let full = format!("{BY_HAND}# {}\n", "x".repeat((16 << 20) - BY_HAND.len() - 8));
    environment.commit([("mine.yaml", Some(full.as_str()))]);
    store.poll();
    let before = object(&store, "a");
    let error = put(&store, "a", "three", "3").unwrap_err();
    assert!(
        error.message().contains("mine.yaml cannot be written"),
        "{}",
        error.message()
    );
    assert_eq!(object(&store, "a"), before);
    assert_eq!(environment.read("mine.yaml"), Some(full));
}

#[test]
fn writes_that_make_their_files_too_large_are_refused_alone() {
    let environment = Environment::new();
    let full = format!("{BY_HAND}# {}\n", "x".repeat((16 << 20) - BY_HAND.len() - 8));
    let other = full.replace("name: a", "name: c");
    environment.commit([
        ("mine.yaml", Some(full.as_str())),
        ("other.yaml", Some(other.as_str())),
    ]);
    let (mut git, state) = Git::open(environment.options("a"), &[]).unwrap();
    let first = git.first_revision(state.revision(), &key("b"));
    let record = |name: &str, revision: u64| Record {
        key: key(name),
        kind: ChangeType::Put,
        object: Arc::new(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"one": "1", "two": "2"},
            "metadata": {"name": name, "namespace": "default", "resourceVersion": revision.to_string()}}),
        ),
        revision,
        origin: Origin::default(),
    };
    let mut all = vec![record("b", first), record("a", first + 1), record("c", first + 2)];
    let Err(CommitError::Refused(refused)) = git.commit(&mut all) else {
        panic!("the last two are refused")
    };
    let keys: Vec<&Key> = refused.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [&key("a"), &key("c")], "in one attempt");
    for ((_, error), file) in refused.iter().zip(["mine.yaml", "other.yaml"]) {
        let error = error.to_string();
        assert!(error.contains(&format!("{file} cannot be written")), "{error}");
    }
    let path = "core/v1/configmaps/default/b.yaml";
    assert_eq!(environment.read(path), None, "nothing is stored");
    git.commit(&mut vec![record("b", first)]).unwrap();
    assert!(environment.read(path).unwrap().contains("two: '2'"));
}

#[test]
fn a_branch_that_stays_locked_is_named() {
    let environment = Environment::new();
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    let lock = environment.repository().join("refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let error = put(&store, "a", "one", "2").unwrap_err();
    assert_eq!(error.code(), 409);
    let text = error.message();
    assert!(
        text.contains("refs/heads/main cannot be moved: ") && text.contains("main.lock"),
        "{text}"
    );
    std::fs::remove_file(&lock).unwrap();
    put(&store, "a", "one", "2").unwrap();
}

#[test]
fn a_file_that_is_not_utf8_has_no_text() {
    let environment = Environment::new();
    let repository = git2::Repository::open_bare(environment.repository()).unwrap();
    let blob = repository.blob(b"a: \xff\n").unwrap();
    let tree = |name: &str, entry: Oid, mode: i32| {
        let mut builder = repository.treebuilder(None).unwrap();
        builder.insert(name, entry, mode).unwrap();
        builder.write().unwrap()
    };
    let root = tree("live", tree("mine.yaml", blob, 0o100_644), 0o040_000);
    let tree = repository.find_tree(root).unwrap();
    let author = Signature::new("a", "a@b.example", &Time::new(0, 0)).unwrap();
    let id = repository
        .commit(None, &author, &author, "bytes\n", &tree, &[])
        .unwrap();
    let text = environment.branch().read(id, "mine.yaml").unwrap();
    assert_eq!(text, Some(Err("it is not UTF-8".to_owned())));
}

/// The tests that hold wherever the status is.
pub(super) const TESTS: &[fn()] = &[
    a_pull_of_a_user_does_not_rewrite_the_history,
    objects_keep_their_identity_in_a_rewritten_history,
    forged_trailers_take_no_versions,
    a_local_object_is_never_committed,
    a_directory_in_another_form_is_read_or_refused,
    files_of_older_layouts_keep_their_place,
    a_write_changes_one_of_many_documents,
    a_file_that_is_too_large_changes_nothing_until_it_is_split,
    writes_that_make_their_files_too_large_are_refused_alone,
    a_branch_that_stays_locked_is_named,
    a_file_that_is_not_utf8_has_no_text,
];
