//! Submodules that cannot be checked out: the messages, the limits and the retry.

use std::fmt::Write as _;

use sluice_harness::git::{Fault, Injection, Scope};

use super::*;

#[tokio::test]
async fn errors_name_the_submodule() {
    let gone = "0123456789012345678901234567890123456789";
    let lib = repository(&[("lib.tf", "")]);
    let lib_head = lib.head().unwrap();
    for (path, url, commit, expected) in [
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
            "submodule 'lib': url '../../../lib.git': it leaves the host of the repository",
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
            "submodule 'lib': url 'git@example.org:team/lib.git': ssh requires a key, but credentials are only sent to the repository's host, \
             git, with its scheme; use a relative url or one without authentication",
        ),
    ] {
        let mut env = TestEnvironment::new().await;
        env.server.serve("lib", &lib);
        link(&env.repository, path, url, commit);
        env.commit("links", &[]);
        env.create("app", recursing(&json!({}))).await;
        assert_eq!(failure(&env, "app").await, expected);
        assert!(env.status("app").await.artifact.is_none());
    }
}

#[tokio::test]
async fn an_invalid_gitmodules_file_is_reported() {
    for (content, expected) in [
        ("[submodule \"lib\"\n", "'.gitmodules': bad config line 1"),
        (
            "[submodule \"x\"]\npath = ../x\nurl = ../lib.git\n",
            "'.gitmodules': the path '../x' of submodule 'x' leaves the repository",
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
        let mut env = TestEnvironment::new().await;
        let head = env.repository.head().unwrap();
        link(&env.repository, "lib", "", &head);
        env.commit(
            "links",
            &[
                (".gitmodules", content),
                ("other", "[submodule \"lib\"]\npath = lib\nurl = ../app.git\n"),
            ],
        );
        env.create("app", recursing(&json!({}))).await;
        assert_eq!(failure(&env, "app").await, expected);
    }
    // A file without gitlinks is not read.
    let mut env = TestEnvironment::new().await;
    env.commit("broken", &[(".gitmodules", "[")]);
    env.create("app", recursing(&json!({}))).await;
    packed(&env, "app").await;
}

#[tokio::test]
async fn a_repository_may_contain_itself_up_to_the_maximum_depth() {
    let mut env = TestEnvironment::new().await;
    for number in 1..=11 {
        let head = env.repository.head().unwrap();
        link(&env.repository, "self", "../app.git", &head);
        env.commit(&format!("level {number}"), &[]);
        if number == 10 {
            env.create("app", recursing(&json!({}))).await;
            let deepest = format!("{}main.tf", "self/".repeat(10));
            assert!(packed(&env, "app").await.contains(&deepest));
        }
    }
    let path = ["self"; 11].join("/");
    assert_eq!(
        failure(&env, "app").await,
        format!("submodule '{path}' is more than 10 submodules deep")
    );
}

#[tokio::test]
async fn nested_submodules_count_towards_the_limit() {
    let mut env = TestEnvironment::new().await;
    // 32 submodules with 32 each are 1056.
    let leaf = repository(&[("x", "")]);
    env.server.serve("leaf", &leaf);
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
    env.server.serve("inner", &inner);
    describe(&env.repository, "../inner.git", &inner.head().unwrap());
    env.commit("links", &[]);
    env.create("app", recursing(&json!({}))).await;
    let text = failure(&env, "app").await;
    assert!(
        text.ends_with("exceeds the limit of 1000 submodules per repository, nested ones included"),
        "{text}"
    );
    // Each commit was fetched once.
    assert_eq!(env.server.count(Step::Fetch), 3);
}

#[tokio::test]
async fn a_hanging_submodule_ends_at_the_checkouts_deadline() {
    let mut env = TestEnvironment::new().await;
    let (quick, slow) = (repository(&[("q", "")]), repository(&[("s", "")]));
    env.server.serve("quick", &quick);
    let foreign = GitServer::start().await.unwrap();
    let slow_url = foreign.serve("slow", &slow);
    foreign.fault(Scope::Any, Fault::Hung);
    link(&env.repository, "quick", "../quick.git", &quick.head().unwrap());
    link(&env.repository, "slow", &slow_url, &slow.head().unwrap());
    env.commit("links", &[]);
    env.create("app", recursing(&json!({ "timeout": "1s" }))).await;
    let text = failure(&env, "app").await;
    assert!(text.starts_with("submodule 'slow' (http://127.0.0.1:"), "{text}");
    assert!(text.contains("within 1s"), "{text}");
    foreign.clear_faults();
    assert!(packed(&env, "app").await.contains(&"slow/s".to_owned()));
}

#[tokio::test]
async fn a_failed_submodule_is_retried() {
    let mut env = TestEnvironment::new().await;
    let lib = repository(&[("lib.tf", "")]);
    env.server.serve("lib", &lib);
    link(&env.repository, "lib", "../lib.git", &lib.head().unwrap());
    env.commit("links", &[]);
    let broken = Injection::new(Scope::FETCH, Fault::Truncated(20));
    env.server.inject(broken.repository("lib"));
    env.create("app", recursing(&json!({}))).await;
    let text = failure(&env, "app").await;
    assert!(
        text.starts_with("submodule 'lib' (http://git/lib.git): "),
        "{text}"
    );
    env.server.clear_faults();
    assert!(packed(&env, "app").await.contains(&"lib/lib.tf".to_owned()));
}
