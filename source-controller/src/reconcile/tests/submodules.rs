//! Tests of `spec.recurseSubmodules`: the checkout and its remotes. Its errors are in `failures`.

mod failures;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};
use sluice_harness::git::{GitServer, Repository, Step};
use sluice_runtime::watch::Requeue;

use super::environment::{NAMESPACE, TestEnvironment};
use crate::reconcile::slots::{Lane, Slot, Slots};

const INTERVAL: Requeue = Requeue::After(Duration::from_mins(5));

fn repository(files: &[(&str, &str)]) -> Repository {
    let repository = Repository::create().unwrap();
    repository.commit_files(files, "first").unwrap();
    repository
}

/// Adds a gitlink and, unless `url` is empty, its entry in `.gitmodules`. Does not commit.
fn link(repository: &Repository, path: &str, url: &str, commit: &str) {
    std::fs::create_dir_all(repository.path().join(path)).unwrap();
    let cacheinfo = format!("160000,{commit},{path}");
    repository
        .git(["update-index", "--add", "--cacheinfo", &cacheinfo])
        .unwrap();
    if !url.is_empty() {
        for (key, value) in [("path", path), ("url", url)] {
            let name = format!("submodule.{path}.{key}");
            repository
                .git(["config", "--file", ".gitmodules", &name, value])
                .unwrap();
        }
    }
}

fn recursing(fields: &Value) -> Value {
    let mut all = json!({ "recurseSubmodules": true, "ignore": "!.gitmodules\n!.gitignore\n" });
    all.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    all
}

async fn packed(env: &TestEnvironment, name: &str) -> Vec<String> {
    assert_eq!(
        env.reconcile(name).await,
        INTERVAL,
        "{:?}",
        env.status(name).await.conditions
    );
    env.names(&env.artifact(name).await)
}

/// Reconciles an object and returns the message of its failure.
async fn failure(env: &TestEnvironment, name: &str) -> String {
    assert_eq!(env.reconcile(name).await, Requeue::Backoff);
    let conditions = env.status(name).await.conditions;
    let failed = conditions
        .iter()
        .find(|one| one.type_ == "FetchFailed")
        .expect("the condition");
    assert_eq!(failed.reason, "GitOperationFailed");
    let text = env.masked(&failed.message);
    let prefix = "failed to checkout and determine revision: ";
    text.strip_prefix(prefix).expect(prefix).to_owned()
}

/// Returns the sorted names that the real `git` checks out, without its own files.
fn names_checked_out_by_git(url: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("git")
        .args(["clone", "--quiet", "--recurse-submodules", url, "clone"])
        .current_dir(directory.path())
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut names = vec![".".to_owned()];
    collect(&directory.path().join("clone"), "", &mut names);
    names
}

fn collect(directory: &Path, at: &str, names: &mut Vec<String>) {
    let mut entries: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries.into_iter().filter(|entry| entry.file_name() != ".git") {
        let path = format!("{at}{}", entry.file_name().to_string_lossy());
        names.push(path.clone());
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), &format!("{path}/"), names);
        }
    }
}

// The real `git` blocks this thread while the server answers it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_submodules_are_checked_out_as_git_does() {
    let mut env = TestEnvironment::new().await;
    let deep = repository(&[("deep.tf", "d"), ("in/x", "x")]);
    let lib = repository(&[("lib.tf", "l"), (".gitignore", "x")]);
    env.server.serve("team/deep", &deep);
    let lib_url = env.server.serve("team/lib", &lib);
    link(&lib, "vendor/deep", "../deep.git", &deep.head().unwrap());
    lib.commit("links").unwrap();
    link(&env.repository, "modules/lib", &lib_url, &lib.head().unwrap());
    link(
        &env.repository,
        "top",
        "./../team/deep.git",
        &deep.head().unwrap(),
    );
    env.commit("links", &[(".sourceignore", "")]);
    env.create("app", recursing(&json!({}))).await;
    let names = packed(&env, "app").await;
    assert_eq!(names, names_checked_out_by_git(&env.server.url("app")));
    assert!(names.contains(&"modules/lib/vendor/deep/in/x".to_owned()));
    // Without the field, gitlinks are empty directories; with it again, nothing is fetched.
    let fetches = env.server.count(Step::Fetch);
    env.edit("app", json!({ "spec": { "recurseSubmodules": false } }))
        .await;
    let bare = packed(&env, "app").await;
    assert!(bare.contains(&"modules/lib".to_owned()) && !bare.iter().any(|name| name.ends_with("lib.tf")));
    assert!(!env.status("app").await.observed_recurse_submodules);
    env.edit("app", json!({ "spec": { "recurseSubmodules": true } }))
        .await;
    assert_eq!(packed(&env, "app").await, names);
    assert!(env.status("app").await.observed_recurse_submodules);
    assert_eq!(env.server.count(Step::Fetch), fetches);
}

#[tokio::test]
async fn submodules_belong_to_the_commit_for_every_kind_of_reference() {
    let mut env = TestEnvironment::new().await;
    let lib = repository(&[("old.tf", "1")]);
    env.server.serve("lib", &lib);
    link(&env.repository, "lib", "../lib.git", &lib.head().unwrap());
    let old = env.commit("old", &[]);
    env.repository.annotated_tag("v1.0.0", "x").unwrap();
    lib.remove("old.tf").unwrap();
    lib.commit_files(&[("new.tf", "2")], "second").unwrap();
    link(&env.repository, "lib", "", &lib.head().unwrap());
    env.commit("new", &[]);
    for (name, reference, file) in [
        ("commit", json!({ "commit": old }), "lib/old.tf"),
        ("both", json!({ "commit": old, "branch": "main" }), "lib/old.tf"),
        ("tag", json!({ "tag": "v1.0.0" }), "lib/old.tf"),
        ("branch", json!({ "branch": "main" }), "lib/new.tf"),
    ] {
        env.create(name, recursing(&json!({ "ref": reference }))).await;
        let names = packed(&env, name).await;
        let files: Vec<_> = names.iter().filter(|path| path.starts_with("lib/")).collect();
        assert_eq!(files, [file], "{name}");
    }
}

#[tokio::test]
async fn credentials_are_only_sent_to_the_host_of_the_repository() {
    let mut env = TestEnvironment::new().await;
    let foreign = GitServer::start().await.unwrap();
    let (near, far) = (repository(&[("near.tf", "")]), repository(&[("far.tf", "")]));
    env.server.serve("near", &near);
    let far_url = foreign.serve("far", &far);
    // A submodule below a foreign submodule gets no credentials, even at the original host.
    let back = repository(&[("back.tf", "")]);
    let back_url = foreign.serve("back", &back);
    env.server.require_basic("user", "right");
    env.secret("login", json!({ "username": "user", "password": "right" }))
        .await;
    link(&env.repository, "near", "../near.git", &near.head().unwrap());
    link(&env.repository, "far", &far_url, &far.head().unwrap());
    env.commit("links", &[]);
    let fields = || recursing(&json!({ "secretRef": { "name": "login" } }));
    env.create("app", fields()).await;
    let names = packed(&env, "app").await;
    assert!(names.contains(&"near/near.tf".to_owned()) && names.contains(&"far/far.tf".to_owned()));
    assert!(!foreign.requests().is_empty());
    assert!(
        foreign
            .requests()
            .iter()
            .all(|request| request.username.is_none())
    );
    link(&back, "home", &env.server.url("near"), &near.head().unwrap());
    back.commit("links").unwrap();
    link(&env.repository, "back", &back_url, &back.head().unwrap());
    env.commit("back", &[]);
    let text = failure(&env, "app").await;
    assert!(
        text.starts_with("submodule 'back/home' (http://git/near.git): "),
        "{text}"
    );
    assert!(
        text.contains("authentication required")
            && text.ends_with("credentials are not sent to a host other than that of the repository itself"),
        "{text}"
    );
}

#[tokio::test]
async fn a_submodule_url_may_contain_its_own_credentials() {
    let mut env = TestEnvironment::new().await;
    let foreign = GitServer::start().await.unwrap();
    let far = repository(&[("far.tf", "")]);
    let url = foreign.serve("far", &far).replace("http://", "http://own:word@");
    foreign.require_basic("own", "word");
    link(&env.repository, "far", &url, &far.head().unwrap());
    env.commit("links", &[]);
    env.create("app", recursing(&json!({}))).await;
    assert!(packed(&env, "app").await.contains(&"far/far.tf".to_owned()));
    foreign.require_basic("own", "other");
    let next = far.commit_files(&[("n", "")], "next").unwrap();
    link(&env.repository, "far", "", &next);
    env.commit("next", &[]);
    let text = failure(&env, "app").await;
    assert!(text.starts_with("submodule 'far' (http://"), "{text}");
    assert!(
        text.contains("authentication required") && !text.contains("word"),
        "{text}"
    );
}

/// Returns the lane of the server with this URL.
fn lane_of(url: &str) -> Lane {
    let host = url.trim_start_matches("http://").split('/').next().unwrap();
    Lane::Host {
        host: host.to_owned(),
        proxy: None,
    }
}

/// Takes all slots of a lane, and leaves a cancelled request in its queue.
fn occupy(slots: &Slots, lane: &Lane) -> Vec<Slot> {
    let mut slots_in_use = Vec::new();
    while let Some(Some(slot)) = slots.acquire_additional(NAMESPACE, lane.clone()).now_or_never() {
        slots_in_use.push(slot);
    }
    slots_in_use
}

#[tokio::test]
async fn a_submodule_waits_for_a_slot_at_its_host() {
    let mut env = TestEnvironment::new().await;
    let foreign = GitServer::start().await.unwrap();
    let far = repository(&[("far.tf", "")]);
    let url = foreign.serve("far", &far);
    link(&env.repository, "far", &url, &far.head().unwrap());
    env.commit("links", &[]);
    env.create("app", recursing(&json!({}))).await;
    let context = env.context();
    let lane = lane_of(&url);
    let slots = context.slots.clone();
    let mut slots_in_use = occupy(&slots, &lane);
    let release = async {
        // The reconciliation is queued for the other host.
        while slots.load(&lane).1 < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(foreign.requests().len(), 0);
        slots_in_use.clear();
    };
    let (next, ()) = tokio::join!(env.reconcile_in(context, "app"), release);
    assert!(matches!(next, Requeue::After(_)), "{next:?}");
    assert!(packed(&env, "app").await.contains(&"far/far.tf".to_owned()));
}

/// A reconciliation that has that slot may wait for one at the first host.
#[tokio::test]
async fn a_submodule_that_waits_for_a_slot_holds_none_of_another_host() {
    let mut env = TestEnvironment::new().await;
    let servers = [
        GitServer::start().await.unwrap(),
        GitServer::start().await.unwrap(),
    ];
    let module = repository(&[("module.tf", "")]);
    let urls = servers.each_ref().map(|server| server.serve("module", &module));
    for (path, url) in ["first", "second"].into_iter().zip(&urls) {
        link(&env.repository, path, url, &module.head().unwrap());
    }
    env.commit("links", &[]);
    env.create("app", recursing(&json!({}))).await;
    let context = env.context();
    let slots = context.slots.clone();
    let [first, second] = urls.each_ref().map(|url| lane_of(url));
    let mut slots_in_use = occupy(&slots, &second);
    let release = async {
        while slots.load(&second).1 < 2 || servers[0].requests().is_empty() || slots.load(&first) != (0, 0) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(servers[1].requests().len(), 0);
        slots_in_use.clear();
    };
    let (next, ()) = tokio::join!(env.reconcile_in(context, "app"), release);
    assert_eq!(next, INTERVAL);
    let names = packed(&env, "app").await;
    for path in ["first/module.tf", "second/module.tf"] {
        assert!(names.contains(&path.to_owned()), "{names:?}");
    }
}

#[tokio::test]
async fn sparse_paths_disable_submodules() {
    let mut env = TestEnvironment::new().await;
    let lib = repository(&[("lib.tf", "")]);
    env.server.serve("lib", &lib);
    link(&env.repository, "in/lib", "../lib.git", &lib.head().unwrap());
    env.commit("links", &[("in/a", ""), ("out/b", "")]);
    env.create("app", recursing(&json!({ "sparseCheckout": ["in"] })))
        .await;
    assert_eq!(packed(&env, "app").await, [".", "in", "in/a", "in/lib"]);
    let status = env.status("app").await;
    assert!(status.observed_recurse_submodules && status.observed_sparse_checkout == ["in"]);
    assert!(
        env.server
            .requests()
            .iter()
            .all(|request| request.repository != "lib")
    );
}

#[tokio::test]
async fn ignore_files_of_submodules_apply_to_their_directories() {
    let mut env = TestEnvironment::new().await;
    let lib = repository(&[
        (".sourceignore", "*.txt\n/only-here\n"),
        ("a.txt", ""),
        ("b.tf", ""),
        ("only-here", ""),
    ]);
    env.server.serve("lib", &lib);
    link(&env.repository, "lib", "../lib.git", &lib.head().unwrap());
    env.commit(
        "links",
        &[("c.txt", ""), ("only-here", ""), (".sourceignore", "lib/x\n")],
    );
    env.create("app", json!({ "recurseSubmodules": true })).await;
    assert_eq!(
        packed(&env, "app").await,
        [
            ".",
            ".sourceignore",
            "README.md",
            "c.txt",
            "lib",
            "lib/.sourceignore",
            "lib/b.tf",
            "main.tf",
            "only-here"
        ]
    );
}
