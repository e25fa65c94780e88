//! Starts on a branch that changed while no process ran.

use super::foreign::{head, rewrite};
use super::*;

#[test]
fn only_a_repository_that_cannot_be_opened_is_to_be_made() {
    let environment = Environment::new();
    let mut options = environment.options("a");
    options.repository = options.local.with_file_name("missing.git");
    let error = Store::git(options, &[]).unwrap_err().to_string();
    assert!(
        error.contains("`git init --bare PATH` makes a bare repository"),
        "{error}"
    );
}

#[test]
fn a_signing_key_that_cannot_be_read_is_named_with_the_cause_and_the_remedy() {
    let environment = Environment::new();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    std::fs::write(&other, "no key\n").unwrap();
    for (path, cause) in [
        (folder.path().join("missing"), ": No such file or directory"),
        (other, ": "),
    ] {
        let begin = format!("the signing key {} cannot be used{cause}", path.display());
        let options = GitOptions {
            signing_key: Some(path),
            ..environment.options("a")
        };
        let error = Store::git(options, &[]).unwrap_err().to_string();
        assert!(
            error.contains(&begin) && error.contains("; name a private key of OpenSSH; `ssh-keygen "),
            "{error}"
        );
        assert!(!error.contains("bare repository"), "{error}");
    }
}

#[test]
fn objects_keep_their_identity_in_a_history_that_is_rewritten_between_two_runs() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    put(&store, "b", "one", "1").unwrap();
    store.poll();
    let uid = |store: &Store| object(store, "b").unwrap()["metadata"]["uid"].clone();
    let before = uid(&store);
    drop(store);
    let path = "core/v1/configmaps/default/b.yaml";
    let file = environment.read(path).unwrap();
    rewrite(&environment, [(path, file)]);
    for start in ["first", "second"] {
        let store = environment.store("a");
        assert_eq!(uid(&store), before, "{start}");
    }
    let has_journal = environment.status == StatusLocation::Branch;
    assert_eq!(
        uid(&environment.store("b")) == before,
        has_journal,
        "a new state directory"
    );
}

#[test]
fn with_the_status_in_files_an_object_that_is_created_again_keeps_its_uid_after_a_restart() {
    const PATH: &str = "core/v1/configmaps/default/b.yaml";
    let environment = Environment::with(StatusLocation::File);
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    put(&store, "b", "one", "1").unwrap();
    let text = environment.read(PATH).unwrap();
    rewrite(&environment, [("mine.yaml", BY_HAND.replace("\"1\"", "\"2\""))]);
    let base = head(&environment);
    environment.commit([(PATH, Some(text.as_str()))]);
    store.poll();
    // The identity of the object before the rewrite is stored for an object that is created on this commit.
    assert!(
        environment
            .branch()
            .advance(Some(head(&environment)), base)
            .unwrap()
    );
    store.poll();
    assert_eq!(object(&store, "b"), None);
    put(&store, "b", "one", "1").unwrap();
    let before = objects(&store);
    drop(store);
    assert_eq!(objects(&environment.store("a")), before);
}

/// Replaces the newest commit as `git commit --amend` does: the message keeps the versions of the commit that is replaced.
fn amend(environment: &Environment, base: git2::Oid, path: &str, text: String) {
    let branch = environment.branch();
    let replaced = head(environment);
    let message = branch.info(replaced).unwrap().message;
    let edits = Edits::from([(path.to_owned(), Some(text))]);
    let amended = branch.write(Some(base), &edits, &message, 1_700_000_001).unwrap();
    assert!(branch.advance(Some(replaced), amended).unwrap());
}

#[test]
fn with_the_status_in_files_an_object_that_is_amended_between_two_runs_has_another_version() {
    let environment = Environment::with(StatusLocation::File);
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let base = head(&environment);
    let store = environment.store("a");
    put(&store, "a", "one", "2").unwrap();
    let version = |store: &Store| meta::resource_version(&object(store, "a").unwrap()).to_owned();
    let before = version(&store);
    drop(store);
    amend(&environment, base, "mine.yaml", BY_HAND.replace("\"1\"", "\"3\""));
    let amended = version(&environment.store("b"));
    assert_eq!(amended, before, "it follows from the history");
    let store = environment.store("a");
    assert_eq!(object(&store, "a").unwrap()["data"]["one"], "3");
    let given = version(&store);
    assert_ne!(given, before, "clients of this process know another object by it");
    put(&store, "b", "one", "1").unwrap();
    drop(store);
    let store = environment.store("a");
    assert_eq!(version(&store), given, "also after a restart");
    put(&store, "a", "one", "4").unwrap();
    let number = |version: String| version.parse::<u64>().unwrap();
    assert!(number(version(&store)) > number(given), "versions never fall");
}

#[test]
fn objects_of_a_rewritten_history_keep_their_versions_after_a_restart() {
    let environment = Environment::with(StatusLocation::File);
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let store = environment.store("a");
    put(&store, "b", "one", "1").unwrap();
    rewrite(&environment, [("mine.yaml", BY_HAND.replace("\"1\"", "\"2\""))]);
    store.poll();
    let before = objects(&store);
    assert_eq!(before.len(), 1);
    drop(store);
    assert_eq!(objects(&environment.store("a")), before);
}

#[test]
fn a_branch_that_is_deleted_between_two_runs_is_not_an_empty_one() {
    let environment = Environment::new();
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    store.poll();
    let before = objects(&store);
    drop(store);
    let branch = environment.branch().with_journal();
    let head = head(&environment);
    branch.forget(Heads::default()).unwrap();
    let start = || Store::git(environment.options("a"), &[]).unwrap_err().to_string();
    let error = start();
    assert!(
        error.contains("the branch does not exist") && error.contains(&head.to_string()),
        "{error}"
    );
    assert!(
        objects(&environment.store("b")).is_empty(),
        "a new state directory"
    );
    // A repository that was created again with a first commit, or the branch of something else.
    environment.commit([("notes.yaml", Some("# nothing\n"))]);
    let error = start();
    assert!(
        error.contains("without objects") && error.contains(&head.to_string()),
        "{error}"
    );
    branch.forget(Heads::default()).unwrap();
    assert!(branch.advance(None, head).unwrap());
    assert_eq!(objects(&environment.store("a")), before);
}

#[test]
fn a_start_knows_the_last_write_of_the_last_run() {
    let environment = Environment::new();
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    let head = head(&environment);
    // No poll follows the write.
    drop(store);
    let branch = environment.branch().with_journal();
    branch.forget(Heads::default()).unwrap();
    for start in ["first", "second"] {
        let error = Store::git(environment.options("a"), &[]).unwrap_err().to_string();
        assert!(error.contains(&head.to_string()), "{start}: {error}");
    }
}

#[test]
fn a_wrong_name_of_the_branch_is_an_error() {
    let environment = Environment::new();
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    store.poll();
    drop(store);
    let options = GitOptions {
        branch: "trunk".to_owned(),
        ..environment.options("a")
    };
    let error = Store::git(options, &[]).unwrap_err().to_string();
    assert!(
        error.contains("branch trunk: the branch does not exist"),
        "{error}"
    );
    assert!(error.contains("correct the name"), "{error}");
}

#[test]
fn a_start_logs_the_problems_that_remain() {
    let environment = Environment::new();
    let open = || Git::open(environment.options("a"), &[]).unwrap().0;
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let invalid = BY_HAND.replace("\"1\"", "[]");
    environment.commit([
        ("mine.yaml", Some(invalid.as_str())),
        ("b.yaml", Some("kind: [\n")),
    ]);
    let git = open();
    let present = git.history.present_problems(&git.kinds);
    assert_eq!(present.len(), 2, "{present:?}");
    assert!(git.history.problems.is_empty(), "each is logged once");
    drop(git);
    environment.commit([("mine.yaml", Some(BY_HAND)), ("b.yaml", None)]);
    let git = open();
    assert!(
        git.history.problems.is_empty(),
        "the repaired ones are not logged"
    );
    assert!(git.history.present_problems(&git.kinds).is_empty());
}

#[test]
fn each_commit_of_a_long_history_counts() {
    const COMMITS: u64 = 80;
    let environment = Environment::new();
    for number in 1..=COMMITS {
        let text = match number {
            40 => "kind: [\n".to_owned(),
            _ => BY_HAND.replace("\"1\"", &format!("\"{number}\"")),
        };
        environment.commit([("mine.yaml", Some(text.as_str()))]);
    }
    let store = environment.store("a");
    let last = object(&store, "a").unwrap();
    assert_eq!(last["data"]["one"], COMMITS.to_string());
    let version = meta::resource_version(&last).parse().unwrap();
    assert_eq!(history::generation(version), COMMITS);
    let uid = admit::uid(&key("a"), None, 0).to_string();
    assert_eq!(meta::uid(&last), uid, "the first commit creates it");
}

#[test]
fn a_branch_that_lost_its_objects_between_two_runs_is_not_taken_over() {
    let environment = Environment::with(StatusLocation::Branch);
    let store = environment.store("a");
    put(&store, "a", "one", "1").unwrap();
    store.poll();
    let before = objects(&store);
    drop(store);
    let branch = environment.branch().with_journal();
    let heads = branch.heads().unwrap();
    let head = heads.branch.unwrap();
    let start = |process: &str| {
        Store::git(environment.options(process), &[])
            .unwrap_err()
            .to_string()
    };
    rewrite(&environment, [("notes.yaml", "# nothing\n".to_owned())]);
    let error = start("a");
    assert!(
        error.contains("without objects") && error.contains(&head.to_string()),
        "{error}"
    );
    assert_eq!(
        branch.heads().unwrap().journal,
        heads.journal,
        "nothing is written"
    );
    // The journal of a branch that is missing stays.
    let journal = Heads {
        branch: None,
        ..heads
    };
    branch.forget(journal).unwrap();
    assert!(start("a").contains(&head.to_string()));
    assert!(start("b").contains("does not exist any more"));
    assert_eq!(branch.heads().unwrap(), journal, "nothing is written");
    assert!(branch.advance(None, head).unwrap());
    assert_eq!(objects(&environment.store("a")), before);
    assert_eq!(branch.heads().unwrap(), heads);
}

#[test]
fn a_rewrite_that_another_process_has_taken_over_is_known() {
    let environment = Environment::with(StatusLocation::Branch);
    let stores = ["a", "b"].map(|process| environment.store(process));
    put(&stores[0], "a", "one", "1").unwrap();
    let [first, second] = stores;
    first.poll();
    drop(first);
    rewrite(&environment, [("notes.yaml", "# nothing\n".to_owned())]);
    second.poll();
    assert_eq!(objects(&second), Vec::<Value>::new());
    assert_eq!(objects(&environment.store("a")), Vec::<Value>::new());
}

/// The tests that hold wherever the status is.
pub(super) const TESTS: &[fn()] = &[
    objects_keep_their_identity_in_a_history_that_is_rewritten_between_two_runs,
    a_branch_that_is_deleted_between_two_runs_is_not_an_empty_one,
    a_start_knows_the_last_write_of_the_last_run,
    a_wrong_name_of_the_branch_is_an_error,
    a_start_logs_the_problems_that_remain,
    each_commit_of_a_long_history_counts,
];
