//! Stores on a remote repository, each with a clone of its own.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::foreign::rewrite;
use super::*;
use crate::store::backend::Origin;

/// Limit of a wait.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn options(environment: &Environment, process: &str) -> GitOptions {
    GitOptions {
        repository: environment.dir.path().join(format!("{process}.git")),
        remote: Some(format!("file://{}", environment.repository().display())),
        ..environment.options(process)
    }
}

fn store(environment: &Environment, process: &str) -> Store {
    Store::git(options(environment, process), &[]).unwrap()
}

/// Repeats a write until it is stored, as a client does.
fn put_in_the_end(store: &Store, name: &str, entry: &str) {
    let end = Instant::now() + LIMIT;
    while let Err(error) = put(store, name, entry, "x") {
        assert!(Instant::now() < end, "{}", error.message());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn errors_show_no_credentials() {
    let environment = Environment::new();
    // The discard port: Git is refused at once.
    for (user, cause) in [("me:s3cret", "credential helper"), ("s3cret", "ls-remote")] {
        let options = GitOptions {
            remote: Some(format!("http://{user}@127.0.0.1:9/a.git")),
            ..options(&environment, "a")
        };
        let error = Store::git(options, &[]).unwrap_err().to_string();
        assert!(error.contains(cause) && !error.contains("s3cret"), "{error}");
        assert!(
            error.starts_with("store http://127.0.0.1:9/a.git, branch main"),
            "{error}"
        );
    }
}

#[test]
fn a_write_is_pushed_and_each_clone_reads_the_same() {
    let environment = Environment::new();
    let first = store(&environment, "a");
    put(&first, "a", "one", "1").unwrap();
    put(&first, "b", "one", "1").unwrap();
    assert_eq!(
        environment.commits(),
        2,
        "also the check at the start left nothing"
    );
    let before = objects(&first);
    drop(first);
    assert_eq!(objects(&store(&environment, "a")), before, "after a restart");
    assert_eq!(objects(&store(&environment, "b")), before, "in a new clone");
}

#[test]
fn a_write_whose_push_is_rejected_decides_again() {
    let environment = Environment::new();
    let (first, second) = (store(&environment, "a"), store(&environment, "b"));
    put(&first, "a", "one", "1").unwrap();
    let decisions = AtomicUsize::new(0);
    let before = second.read().revision();
    let written = second.write_now(&key("a"), |view| {
        decisions.fetch_add(1, Ordering::SeqCst);
        let mut object = match view.get(&key("a")) {
            Some(object) => Value::clone(object),
            None => {
                return Ok(Write::Put(
                    json!({"metadata": {"name": "a", "namespace": "default"}}),
                ));
            }
        };
        object["data"]["two"] = "2".into();
        Ok(Write::Put(object))
    });
    assert_eq!(written.unwrap()["data"], json!({"one": "1", "two": "2"}));
    assert_eq!(
        decisions.load(Ordering::SeqCst),
        2,
        "the first decision came second"
    );
    assert_eq!(
        second.read().changes_since(before).unwrap().len(),
        2,
        "watches see both"
    );
    assert_eq!(environment.commits(), 2);
}

/// Returns the creation of a ConfigMap by a commit.
fn record(name: &str, generation: u64) -> Record {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
    Record {
        key: key(name),
        kind: ChangeType::Put,
        object: Arc::new(object),
        revision: history::first_revision(generation),
        origin: Origin::default(),
    }
}

#[test]
fn of_two_equal_commits_one_comes_second() {
    let environment = Environment::new();
    let stores = ["a", "b"].map(|process| Git::open(options(&environment, process), &[]).unwrap().0);
    let answers = stores.map(|mut git| {
        git.time = Some(1_700_000_000);
        git.commit(&mut vec![record("a", 1)])
    });
    assert!(
        matches!(answers, [Ok(()), Err(CommitError::Rejected(_))]),
        "both would be told that they have created the object: {answers:?}"
    );
    assert_eq!(environment.commits(), 1);
}

#[test]
fn a_clone_that_is_behind_a_push_of_its_own_is_not_rewritten() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    let (mut git, _) = Git::open(options(&environment, "a"), &[]).unwrap();
    let before = environment.branch().head().unwrap().unwrap();
    git.commit(&mut vec![record("b", 2)]).unwrap();
    let pushed = environment.branch().head().unwrap();
    // As if its branch had been locked at the end of the push.
    assert!(git.branch.advance(pushed, before).unwrap());
    let foreign = git.follow(Instant::now()).unwrap();
    assert!(foreign.records.is_empty() && !foreign.rewritten);
    assert!(git.history.objects.contains_key(&key("b")));
    assert_eq!(git.branch.head().unwrap(), pushed);
}

#[test]
fn two_clones_lose_no_write() {
    const WRITES: usize = 6;
    let environment = Environment::new();
    let stores = [store(&environment, "a"), store(&environment, "b")];
    std::thread::scope(|scope| {
        for (number, store) in stores.iter().enumerate() {
            scope.spawn(move || {
                for write in 0..WRITES {
                    let (name, entry) = (["a", "b"][write % 2], format!("p{number}-{write}"));
                    put_in_the_end(store, name, &entry);
                }
            });
        }
    });
    for store in &stores {
        store.poll();
    }
    let [first, second] = &stores;
    assert_eq!(objects(first), objects(second));
    let entries = |name| object(first, name).unwrap()["data"].as_object().unwrap().len();
    assert_eq!(entries("a") + entries("b"), 2 * WRITES);
    assert_eq!(environment.commits(), 2 * WRITES);
}

#[test]
fn a_remote_that_is_away_fails_writes_until_it_is_back() {
    let environment = Environment::new();
    let store = store(&environment, "a");
    put(&store, "a", "one", "1").unwrap();
    let away = environment.dir.path().join("away.git");
    std::fs::rename(environment.repository(), &away).unwrap();
    store.poll();
    assert!(
        matches!(&*store.health().borrow(), StorageHealth::RemoteAway(reason) if reason.starts_with("`git "))
    );
    let error = put(&store, "a", "two", "2").unwrap_err();
    assert_eq!(error.code(), 500);
    assert!(
        error.message().contains("objects.git, branch main: `git "),
        "{}",
        error.message()
    );
    assert_eq!(
        object(&store, "a").unwrap()["data"],
        json!({"one": "1"}),
        "reads go on"
    );
    let secret = Key::new("secrets", "default", "a");
    let write = |_: &crate::store::TransactionView<'_>| Ok(Write::Put(json!({"metadata": {"name": "a"}})));
    store.write_now(&secret, write).unwrap();
    std::fs::rename(&away, environment.repository()).unwrap();
    put_in_the_end(&store, "a", "three");
    assert_eq!(*store.health().borrow(), StorageHealth::Writable);
    assert_eq!(
        object(&store, "a").unwrap()["data"],
        json!({"one": "1", "three": "x"})
    );
    assert_eq!(environment.commits(), 2, "nothing of the failed write is stored");
}

#[test]
fn a_refused_push_is_an_error_that_says_why() {
    let environment = Environment::new();
    let store = store(&environment, "a");
    put(&store, "a", "one", "1").unwrap();
    let hook = environment.repository().join("hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\necho Closed on Fridays. >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = put(&store, "a", "two", "2").unwrap_err();
    assert_eq!(error.code(), 500);
    assert!(
        error.message().contains("pre-receive hook declined")
            && error.message().contains("Closed on Fridays."),
        "{}",
        error.message()
    );
    assert_eq!(object(&store, "a").unwrap()["data"], json!({"one": "1"}));
    std::fs::remove_file(&hook).unwrap();
    put(&store, "a", "two", "2").unwrap();
}

#[test]
fn a_rewritten_or_removed_remote_branch_deletes_nothing_by_mistake() {
    let environment = Environment::new();
    let store = store(&environment, "a");
    put(&store, "a", "one", "1").unwrap();
    put(&store, "b", "one", "1").unwrap();
    let branch = environment.branch();
    let head = branch.head().unwrap();
    branch.forget(Heads::default()).unwrap();
    store.poll();
    assert_eq!(objects(&store).len(), 2, "a branch that is away deletes nothing");
    let error = put(&store, "a", "two", "2").unwrap_err();
    assert!(
        error.message().contains("does not exist any more"),
        "{}",
        error.message()
    );
    assert!(branch.advance(None, head.unwrap()).unwrap());
    put(&store, "a", "two", "2").unwrap();
    let before = store.read().revision();
    rewrite(&environment, [("mine.yaml", BY_HAND.to_owned())]);
    store.poll();
    assert_eq!(objects(&store).len(), 1, "b is gone");
    environment.assert_watches_continue(&store, before);
    put(&store, "a", "two", "2").unwrap();
    assert!(environment.read("mine.yaml").unwrap().ends_with("  two: '2'\n"));
}

#[test]
fn a_remote_repository_that_is_created_again_is_an_error_at_the_start() {
    let environment = Environment::new();
    let first = store(&environment, "a");
    put(&first, "a", "one", "1").unwrap();
    first.poll();
    let before = objects(&first);
    drop(first);
    let head = environment.branch().head().unwrap().unwrap();
    let earlier = environment.dir.path().join("earlier.git");
    std::fs::rename(environment.repository(), &earlier).unwrap();
    git2::Repository::init_bare(environment.repository()).unwrap();
    let error = Store::git(options(&environment, "a"), &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the branch does not exist") && error.contains(&head.to_string()),
        "{error}"
    );
    let clone = environment.dir.path().join("a.git");
    let clone = git2::Repository::open_bare(clone).unwrap();
    assert!(clone.find_commit(head).is_ok(), "the clone still has the commit");
    std::fs::remove_dir_all(environment.repository()).unwrap();
    std::fs::rename(&earlier, environment.repository()).unwrap();
    assert_eq!(objects(&store(&environment, "a")), before);
}

#[test]
fn the_lock_file_of_a_killed_process_is_removed_from_the_clone() {
    let environment = Environment::new();
    let first = store(&environment, "a");
    put(&first, "a", "one", "1").unwrap();
    drop(first);
    let lock = environment.dir.path().join("a.git/refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    environment.commit([("mine.yaml", Some(BY_HAND.replace("name: a", "name: b").as_str()))]);
    let second = store(&environment, "a");
    assert!(!lock.exists());
    assert_eq!(objects(&second).len(), 2);
}

#[test]
fn the_clone_is_packed() {
    let environment = Environment::new();
    let store = store(&environment, "a");
    put(&store, "a", "one", "1").unwrap();
    let path = environment.dir.path().join("a.git");
    let clone = git2::Repository::open_bare(&path).unwrap();
    clone.config().unwrap().set_i32("gc.auto", 1).unwrap();
    // Git estimates the number of loose objects from the directory of those that begin with 17.
    let counted = |number: &u32| {
        let id = clone.blob(number.to_string().as_bytes()).unwrap();
        id.to_string().starts_with("17")
    };
    assert_eq!((0..).filter(counted).take(2).count(), 2);
    store.compact();
    let files = std::fs::read_dir(path.join("objects/pack")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let packs: Vec<String> = names.filter(|name| name.starts_with("pack-")).collect();
    assert!(!packs.is_empty());
    put(&store, "a", "two", "2").unwrap();
    environment.commit([("mine.yaml", Some(BY_HAND.replace("name: a", "name: b").as_str()))]);
    store.poll();
    assert_eq!(objects(&store).len(), 2);
}

/// The tests that hold wherever the status is.
pub(super) const TESTS: &[fn()] = &[
    errors_show_no_credentials,
    a_write_is_pushed_and_each_clone_reads_the_same,
    a_write_whose_push_is_rejected_decides_again,
    of_two_equal_commits_one_comes_second,
    a_clone_that_is_behind_a_push_of_its_own_is_not_rewritten,
    two_clones_lose_no_write,
    a_remote_that_is_away_fails_writes_until_it_is_back,
    a_refused_push_is_an_error_that_says_why,
    a_rewritten_or_removed_remote_branch_deletes_nothing_by_mistake,
    a_remote_repository_that_is_created_again_is_an_error_at_the_start,
    the_lock_file_of_a_killed_process_is_removed_from_the_clone,
    the_clone_is_packed,
];
