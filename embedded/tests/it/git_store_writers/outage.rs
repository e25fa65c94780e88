//! A remote repository that goes away, and one whose history is rewritten, while clients write.

use std::path::Path;

use serde_json::json;
use sluice_embedded::{ApiServer, GitOptions, StatusLocation};

use super::writer::{Counters, revision};
use super::{LIMIT, branch_log, check_all, finish, listed, newest, server, start};
use crate::fixture::{CONFIGMAPS, eventually, ok};
use crate::git_store::{git, options, repository};
use crate::watch::watch;

/// Writers of the outage.
const WRITERS: usize = 4;
/// Their acknowledged writes. Each push takes some tens of milliseconds.
const WRITES: usize = 32;

/// Returns the options of a store on a remote repository, with its clone in a directory.
pub(super) fn remote(own: &Path, repository: &Path) -> GitOptions {
    GitOptions {
        remote: Some(format!("file://{}", repository.display())),
        ..options(own, &own.join("store.git"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_that_is_away_for_a_while_loses_no_acknowledged_write() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let open = |name: &str| server(dir.path(), name, |own| remote(own, &repository));
    let servers = [open("a"), open("b")];
    let counters = Counters::default();
    let tasks = start(&servers, WRITERS, WRITES, &counters);
    eventually("writes are stored", || async { counters.acknowledged() >= 4 }).await;
    let away = dir.path().join("away.git");
    std::fs::rename(&repository, &away).unwrap();
    eventually("writes fail", || async { counters.errors() > 0 }).await;
    // Reads continue.
    drop(listed(&servers[0].client()).await);
    std::fs::rename(&away, &repository).unwrap();
    let operations = finish(tasks, 2 * LIMIT).await;

    let versions = branch_log::versions(&repository);
    check_all(&versions, &operations);
    let expected = &newest(&versions);
    for client in &servers.each_ref().map(ApiServer::client) {
        eventually("the server has the newest versions", || async {
            listed(client).await == *expected
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_force_push_is_a_change_on_each_server() {
    rewrite(StatusLocation::Branch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_force_push_is_a_change_on_each_server_with_the_status_in_files() {
    rewrite(StatusLocation::File).await;
}

/// Removes an acknowledged write from the history of a branch.
async fn rewrite(status: StatusLocation) {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let open = |name: &str| {
        server(dir.path(), name, |own| GitOptions {
            status,
            ..options(own, &repository)
        })
    };
    let [first, second] = [open("a"), open("b")].map(|server| server.client());
    for name in ["kept", "dropped"] {
        let object = json!({"metadata": {"name": name}, "data": {"token": name}});
        ok(&first, "POST", CONFIGMAPS, Some(&object)).await;
    }
    eventually("the other server has both", || async {
        listed(&second).await.len() == 2
    })
    .await;
    let since = revision(&ok(&second, "GET", CONFIGMAPS, None).await);

    git(dir.path(), &["clone", "--quiet", "objects.git", "clone"]);
    let clone = dir.path().join("clone");
    git(&clone, &["reset", "--quiet", "--hard", "HEAD~1"]);
    git(&clone, &["push", "--quiet", "--force", "origin", "HEAD:main"]);
    for client in [&first, &second] {
        eventually("an acknowledged write that the push drops is gone", || async {
            listed(client).await.into_keys().eq(["kept"])
        })
        .await;
    }
    let mut events = watch(&second, &format!("{CONFIGMAPS}?watch=1&resourceVersion={since}")).await;
    let (type_, object) = events.next().await.expect("the watch has an event");
    match status {
        StatusLocation::Branch => {
            let name = &object["metadata"]["name"];
            assert_eq!((type_.as_str(), name), ("DELETED", &json!("dropped")));
        }
        StatusLocation::File => assert_eq!((type_.as_str(), &object["code"]), ("ERROR", &json!(410))),
    }

    let object = json!({"metadata": {"name": "next"}, "data": {"token": "next"}});
    let next = revision(&ok(&second, "POST", CONFIGMAPS, Some(&object)).await);
    assert!(next > since, "versions rise also after a rewrite");
    eventually("the other server has the next write", || async {
        listed(&first).await.into_keys().eq(["kept", "next"])
    })
    .await;
    assert_eq!(git(&repository, &["rev-list", "--count", "main"]).trim(), "2");
}
