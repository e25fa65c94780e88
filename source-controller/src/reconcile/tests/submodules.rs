//! `spec.recurseSubmodules`: what Git would check out, from where it may come, and what is said when it does not.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};
use sluice_harness::git::{Fault, GitServer, Injection, Repository, Scope, Step};
use sluice_runtime::watch::Next;

use super::world::{NAMESPACE, World};
use crate::reconcile::places::Lane;

const INTERVAL: Next = Next::After(Duration::from_secs(300));

fn repository(files: &[(&str, &str)]) -> Repository {
    let repository = Repository::create().unwrap();
    repository.commit_files(files, "first").unwrap();
    repository
}

/// Adds a gitlink, and describes it unless `url` is empty. Not committed.
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

async fn packed(world: &World, name: &str) -> Vec<String> {
    assert_eq!(
        world.pass(name).await,
        INTERVAL,
        "{:?}",
        world.status(name).await.conditions
    );
    world.names(&world.artifact(name).await)
}

/// The message of a pass that fails.
async fn failure(world: &World, name: &str) -> String {
    assert_eq!(world.pass(name).await, Next::Backoff);
    let conditions = world.status(name).await.conditions;
    let failed = conditions
        .iter()
        .find(|one| one.type_ == "FetchFailed")
        .expect("the condition");
    assert_eq!(failed.reason, "GitOperationFailed");
    let text = world.masked(&failed.message);
    let prefix = "failed to checkout and determine revision: ";
    text.strip_prefix(prefix).expect(prefix).to_owned()
}

/// Names that the real `git` checks out, what it keeps for itself left out; sorted as archives are.
fn of_git(url: &str) -> Vec<String> {
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
    let mut world = World::new().await;
    let deep = repository(&[("deep.tf", "d"), ("in/x", "x")]);
    let lib = repository(&[("lib.tf", "l"), (".gitignore", "x")]);
    world.server.serve("team/deep", &deep);
    let lib_url = world.server.serve("team/lib", &lib);
    link(&lib, "vendor/deep", "../deep.git", &deep.head().unwrap());
    lib.commit("links").unwrap();
    link(&world.repository, "modules/lib", &lib_url, &lib.head().unwrap());
    link(
        &world.repository,
        "top",
        "./../team/deep.git",
        &deep.head().unwrap(),
    );
    world.commit("links", &[(".sourceignore", "")]);
    world.create("app", recursing(&json!({}))).await;
    let names = packed(&world, "app").await;
    assert_eq!(names, of_git(&world.server.url("app")));
    assert!(names.contains(&"modules/lib/vendor/deep/in/x".to_owned()));
    // Without the field, gitlinks are empty directories; with it again, nothing has to be fetched.
    let fetches = world.server.count(Step::Fetch);
    world
        .edit("app", json!({ "spec": { "recurseSubmodules": false } }))
        .await;
    let bare = packed(&world, "app").await;
    assert!(bare.contains(&"modules/lib".to_owned()) && !bare.iter().any(|name| name.ends_with("lib.tf")));
    assert!(!world.status("app").await.observed_recurse_submodules);
    world
        .edit("app", json!({ "spec": { "recurseSubmodules": true } }))
        .await;
    assert_eq!(packed(&world, "app").await, names);
    assert!(world.status("app").await.observed_recurse_submodules);
    assert_eq!(world.server.count(Step::Fetch), fetches);
}

#[tokio::test]
async fn the_submodules_are_those_of_the_commit_whatever_names_it() {
    let mut world = World::new().await;
    let lib = repository(&[("old.tf", "1")]);
    world.server.serve("lib", &lib);
    link(&world.repository, "lib", "../lib.git", &lib.head().unwrap());
    let old = world.commit("old", &[]);
    world.repository.annotated_tag("v1.0.0", "x").unwrap();
    lib.remove("old.tf").unwrap();
    lib.commit_files(&[("new.tf", "2")], "second").unwrap();
    link(&world.repository, "lib", "", &lib.head().unwrap());
    world.commit("new", &[]);
    for (name, reference, file) in [
        ("commit", json!({ "commit": old }), "lib/old.tf"),
        ("both", json!({ "commit": old, "branch": "main" }), "lib/old.tf"),
        ("tag", json!({ "tag": "v1.0.0" }), "lib/old.tf"),
        ("branch", json!({ "branch": "main" }), "lib/new.tf"),
    ] {
        world.create(name, recursing(&json!({ "ref": reference }))).await;
        let names = packed(&world, name).await;
        let files: Vec<_> = names.iter().filter(|path| path.starts_with("lib/")).collect();
        assert_eq!(files, [file], "{name}");
    }
}

#[tokio::test]
async fn credentials_are_only_sent_to_the_host_of_the_repository() {
    let mut world = World::new().await;
    let foreign = GitServer::start().await.unwrap();
    let (near, far) = (repository(&[("near.tf", "")]), repository(&[("far.tf", "")]));
    world.server.serve("near", &near);
    let far_url = foreign.serve("far", &far);
    // A submodule on the way back from elsewhere is not lent them again.
    let back = repository(&[("back.tf", "")]);
    let back_url = foreign.serve("back", &back);
    world.server.require_basic("user", "right");
    world
        .secret("login", json!({ "username": "user", "password": "right" }))
        .await;
    link(&world.repository, "near", "../near.git", &near.head().unwrap());
    link(&world.repository, "far", &far_url, &far.head().unwrap());
    world.commit("links", &[]);
    let fields = || recursing(&json!({ "secretRef": { "name": "login" } }));
    world.create("app", fields()).await;
    let names = packed(&world, "app").await;
    assert!(names.contains(&"near/near.tf".to_owned()) && names.contains(&"far/far.tf".to_owned()));
    assert!(!foreign.requests().is_empty());
    assert!(
        foreign
            .requests()
            .iter()
            .all(|request| request.username.is_none())
    );
    link(&back, "home", &world.server.url("near"), &near.head().unwrap());
    back.commit("links").unwrap();
    link(&world.repository, "back", &back_url, &back.head().unwrap());
    world.commit("back", &[]);
    let text = failure(&world, "app").await;
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
async fn an_address_may_bring_credentials_of_its_own() {
    let mut world = World::new().await;
    let foreign = GitServer::start().await.unwrap();
    let far = repository(&[("far.tf", "")]);
    let url = foreign.serve("far", &far).replace("http://", "http://own:word@");
    foreign.require_basic("own", "word");
    link(&world.repository, "far", &url, &far.head().unwrap());
    world.commit("links", &[]);
    world.create("app", recursing(&json!({}))).await;
    assert!(packed(&world, "app").await.contains(&"far/far.tf".to_owned()));
    foreign.require_basic("own", "other");
    let next = far.commit_files(&[("n", "")], "next").unwrap();
    link(&world.repository, "far", "", &next);
    world.commit("next", &[]);
    let text = failure(&world, "app").await;
    assert!(text.starts_with("submodule 'far' (http://"), "{text}");
    assert!(
        text.contains("authentication required") && !text.contains("word"),
        "{text}"
    );
}

#[tokio::test]
async fn errors_name_the_submodule() {
    let gone = "0123456789012345678901234567890123456789";
    let lib = repository(&[("lib.tf", "")]);
    let lib_head = lib.head().unwrap();
    for (path, url, commit, wanted) in [
        (
            "lib",
            "",
            lib_head.as_str(),
            "no url found for submodule path 'lib' in .gitmodules",
        ),
        (
            "a/lib",
            "../none.git",
            &lib_head,
            "submodule 'a/lib' (http://git/none.git): unable to list remote for 'http://git/none.git': repository not \
             found: no such repository",
        ),
        (
            "lib",
            "../lib.git",
            gone,
            "submodule 'lib' (http://git/lib.git): unable to resolve commit object for \
             '0123456789012345678901234567890123456789': object not found",
        ),
        (
            "lib",
            "../../../lib.git",
            &lib_head,
            "submodule 'lib': url '../../../lib.git': it leads above the root of the host that the repository comes from",
        ),
        (
            "lib",
            "/srv/lib",
            &lib_head,
            "submodule 'lib': url '/srv/lib': failed to parse url '/srv/lib': relative URL without a base",
        ),
        (
            "lib",
            "file:///etc",
            &lib_head,
            "submodule 'lib': url 'file:///etc': failed to parse url 'file:///etc': unknown scheme 'file'",
        ),
        (
            "lib",
            "git@example.org:team/lib.git",
            &lib_head,
            "submodule 'lib': url 'git@example.org:team/lib.git': ssh needs a key, and credentials are only sent to git, \
             where the repository comes from, with its scheme; use a relative url, or one that needs none",
        ),
    ] {
        let mut world = World::new().await;
        world.server.serve("lib", &lib);
        link(&world.repository, path, url, commit);
        world.commit("links", &[]);
        world.create("app", recursing(&json!({}))).await;
        assert_eq!(failure(&world, "app").await, wanted);
        assert!(world.status("app").await.artifact.is_none());
    }
}

#[tokio::test]
async fn a_description_that_cannot_be_used_is_named() {
    for (content, wanted) in [
        ("[submodule \"lib\"\n", "'.gitmodules': bad config line 1"),
        (
            "[submodule \"x\"]\npath = ../x\nurl = ../lib.git\n",
            "'.gitmodules': the path '../x' of submodule 'x' does not stay in the repository",
        ),
        (
            "[submodule \"../../x\"]\npath = lib\nurl = ../lib.git\n",
            "no url found for submodule path 'lib' in .gitmodules",
        ),
        (
            "[include]\npath = other\n",
            "no url found for submodule path 'lib' in .gitmodules",
        ),
    ] {
        let mut world = World::new().await;
        let head = world.repository.head().unwrap();
        link(&world.repository, "lib", "", &head);
        world.commit(
            "links",
            &[
                (".gitmodules", content),
                ("other", "[submodule \"lib\"]\npath = lib\nurl = ../app.git\n"),
            ],
        );
        world.create("app", recursing(&json!({}))).await;
        assert_eq!(failure(&world, "app").await, wanted);
    }
    // One that nothing needs is not read.
    let mut world = World::new().await;
    world.commit("broken", &[(".gitmodules", "[")]);
    world.create("app", recursing(&json!({}))).await;
    packed(&world, "app").await;
}

#[tokio::test]
async fn a_repository_may_hold_itself_but_not_without_an_end() {
    let mut world = World::new().await;
    for number in 1..=11 {
        let head = world.repository.head().unwrap();
        link(&world.repository, "self", "../app.git", &head);
        world.commit(&format!("level {number}"), &[]);
        if number == 10 {
            world.create("app", recursing(&json!({}))).await;
            let deepest = format!("{}main.tf", "self/".repeat(10));
            assert!(packed(&world, "app").await.contains(&deepest));
        }
    }
    let path = ["self"; 11].join("/");
    assert_eq!(
        failure(&world, "app").await,
        format!("submodule '{path}' is more than 10 submodules deep")
    );
}

#[tokio::test]
async fn submodules_of_submodules_are_counted() {
    let mut world = World::new().await;
    // 32 submodules with 32 each are 1056.
    let leaf = repository(&[("x", "")]);
    world.server.serve("leaf", &leaf);
    let (inner, leaf_head) = (repository(&[("y", "")]), leaf.head().unwrap());
    let describe = |repository: &Repository, url: &str, commit: &str| {
        let mut text = String::new();
        for number in 0..32 {
            link(repository, &format!("m{number:02}"), "", commit);
            writeln!(text, "[submodule \"{number}\"]\npath = m{number:02}\nurl = {url}").unwrap();
        }
        repository.write(".gitmodules", text).unwrap();
        repository.commit("many").unwrap();
    };
    describe(&inner, "../leaf.git", &leaf_head);
    world.server.serve("inner", &inner);
    describe(&world.repository, "../inner.git", &inner.head().unwrap());
    world.commit("links", &[]);
    world.create("app", recursing(&json!({}))).await;
    let text = failure(&world, "app").await;
    assert!(
        text.ends_with("is one too many: a repository may have 1000 with those of its submodules"),
        "{text}"
    );
    // Each commit travelled once.
    assert_eq!(world.server.count(Step::Fetch), 3);
}

#[tokio::test]
async fn a_hung_submodule_ends_with_the_time_of_the_whole_checkout() {
    let mut world = World::new().await;
    let (quick, slow) = (repository(&[("q", "")]), repository(&[("s", "")]));
    world.server.serve("quick", &quick);
    let foreign = GitServer::start().await.unwrap();
    let slow_url = foreign.serve("slow", &slow);
    foreign.fault(Scope::Any, Fault::Hung);
    link(&world.repository, "quick", "../quick.git", &quick.head().unwrap());
    link(&world.repository, "slow", &slow_url, &slow.head().unwrap());
    world.commit("links", &[]);
    world.create("app", recursing(&json!({ "timeout": "1s" }))).await;
    let text = failure(&world, "app").await;
    assert!(text.starts_with("submodule 'slow' (http://127.0.0.1:"), "{text}");
    assert!(text.contains("within 1s"), "{text}");
    foreign.clear_faults();
    assert!(packed(&world, "app").await.contains(&"slow/s".to_owned()));
}

#[tokio::test]
async fn a_submodule_waits_for_a_place_at_its_host() {
    let mut world = World::new().await;
    let foreign = GitServer::start().await.unwrap();
    let far = repository(&[("far.tf", "")]);
    let url = foreign.serve("far", &far);
    link(&world.repository, "far", &url, &far.head().unwrap());
    world.commit("links", &[]);
    world.create("app", recursing(&json!({}))).await;
    let context = world.context();
    let host = url
        .trim_start_matches("http://")
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    let lane = Lane::Host { host, proxy: None };
    let places = context.places.clone();
    let mut held = Vec::new();
    while let Some(Some(place)) = places.beside(NAMESPACE, lane.clone()).now_or_never() {
        held.push(place);
    }
    let release = async {
        // The pass waits in the queue for the other host.
        while places.load(&lane).1 == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(foreign.requests().len(), 0);
        held.clear();
    };
    let (next, ()) = tokio::join!(world.pass_in(context, "app"), release);
    assert!(matches!(next, Next::After(_)), "{next:?}");
    assert!(packed(&world, "app").await.contains(&"far/far.tf".to_owned()));
}

#[tokio::test]
async fn sparse_paths_outrank_submodules() {
    let mut world = World::new().await;
    let lib = repository(&[("lib.tf", "")]);
    world.server.serve("lib", &lib);
    link(&world.repository, "in/lib", "../lib.git", &lib.head().unwrap());
    world.commit("links", &[("in/a", ""), ("out/b", "")]);
    world
        .create("app", recursing(&json!({ "sparseCheckout": ["in"] })))
        .await;
    assert_eq!(packed(&world, "app").await, [".", "in", "in/a", "in/lib"]);
    let status = world.status("app").await;
    assert!(status.observed_recurse_submodules && status.observed_sparse_checkout == ["in"]);
    assert!(
        world
            .server
            .requests()
            .iter()
            .all(|request| request.repository != "lib")
    );
}

#[tokio::test]
async fn ignore_files_of_submodules_hold_in_their_directories() {
    let mut world = World::new().await;
    let lib = repository(&[
        (".sourceignore", "*.txt\n/only-here\n"),
        ("a.txt", ""),
        ("b.tf", ""),
        ("only-here", ""),
    ]);
    world.server.serve("lib", &lib);
    link(&world.repository, "lib", "../lib.git", &lib.head().unwrap());
    world.commit(
        "links",
        &[("c.txt", ""), ("only-here", ""), (".sourceignore", "lib/x\n")],
    );
    world.create("app", json!({ "recurseSubmodules": true })).await;
    assert_eq!(
        packed(&world, "app").await,
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

#[tokio::test]
async fn a_submodule_that_fails_once_is_tried_again() {
    let mut world = World::new().await;
    let lib = repository(&[("lib.tf", "")]);
    world.server.serve("lib", &lib);
    link(&world.repository, "lib", "../lib.git", &lib.head().unwrap());
    world.commit("links", &[]);
    let broken = Injection::new(Scope::FETCH, Fault::Truncated(20));
    world.server.inject(broken.repository("lib"));
    world.create("app", recursing(&json!({}))).await;
    let text = failure(&world, "app").await;
    assert!(
        text.starts_with("submodule 'lib' (http://git/lib.git): "),
        "{text}"
    );
    world.server.clear_faults();
    assert!(packed(&world, "app").await.contains(&"lib/lib.tf".to_owned()));
}
