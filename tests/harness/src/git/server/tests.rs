//! The server seen by the real `git`, and its faults.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::Command;

use super::*;

struct World {
    server: GitServer,
    repository: Repository,
    url: String,
    folder: TempDir,
}

async fn world() -> World {
    let server = GitServer::start().await.unwrap();
    let repository = Repository::create().unwrap();
    repository
        .commit_files(&[("main.tf", "locals {}\n")], "first")
        .unwrap();
    let url = server.serve("stack", &repository);
    World {
        server,
        repository,
        url,
        folder: TempDir::new().unwrap(),
    }
}

impl World {
    /// `git` with these arguments, ended after a minute; its exit and what it printed.
    async fn git(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::from(super::super::repository::hermetic(self.folder.path()));
        command
            .current_dir(self.folder.path())
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(60), command.output())
            .await
            .unwrap()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    async fn clone(&self, name: &str) -> (bool, String) {
        self.git(&["clone", "--quiet", &self.url, name]).await
    }
}

#[tokio::test]
async fn git_clones_over_version_two_in_three_requests() {
    let world = world().await;
    let (ok, text) = world.clone("copy").await;
    assert!(ok, "{text}");
    assert_eq!(
        std::fs::read(world.folder.path().join("copy/main.tf")).unwrap(),
        b"locals {}\n"
    );
    let requests = world.server.requests();
    let steps: Vec<_> = requests.iter().map(|request| request.step).collect();
    assert_eq!(steps, [Step::InfoRefs, Step::LsRefs, Step::Fetch]);
    assert!(
        requests
            .iter()
            .all(|request| request.protocol.as_deref() == Some("version=2"))
    );
    assert!(
        requests
            .iter()
            .all(|request| request.status == 200 && request.repository == "stack")
    );
    let head = world.repository.head().unwrap();
    assert!(requests[2].body_text().contains(&format!("want {head}")));
    assert!(requests[2].response_bytes > 100 && requests[0].response_bytes > 50);
    assert_eq!(world.server.count(Step::Fetch), 1);
}

#[tokio::test]
async fn git_clones_over_version_nought_and_over_tls() {
    let world = world().await;
    let (ok, text) = world
        .git(&["-c", "protocol.version=0", "clone", "--quiet", &world.url, "old"])
        .await;
    assert!(ok, "{text}");
    let secure = GitServer::start_tls().await.unwrap();
    let url = secure.serve("stack", &world.repository);
    let bundle = world.folder.path().join("ca.pem");
    std::fs::write(&bundle, secure.authority_pem().unwrap()).unwrap();
    let trust = format!("http.sslCAInfo={}", bundle.display());
    let (ok, text) = world
        .git(&["-c", &trust, "clone", "--quiet", &url, "secure"])
        .await;
    assert!(ok, "{text}");
    let (ok, _) = world.git(&["clone", "--quiet", &url, "unknown-authority"]).await;
    assert!(!ok);
}

#[tokio::test]
async fn a_large_negotiation_comes_compressed_and_is_understood() {
    let world = world().await;
    assert!(world.clone("copy").await.0);
    for number in 0..60 {
        world.repository.commit(&format!("commit {number}")).unwrap();
    }
    let (ok, text) = world.git(&["-C", "copy", "pull", "--quiet"]).await;
    assert!(ok, "{text}");
    world.server.clear_requests();
    // Commits that the server lacks make the client list what it has: a body above the size that git compresses.
    for number in 0..200 {
        let name = format!("local {number}");
        let (ok, text) = world
            .git(&["-C", "copy", "commit", "--quiet", "--allow-empty", "-m", &name])
            .await;
        assert!(ok, "{text}");
    }
    world.repository.commit("one more").unwrap();
    let (ok, text) = world.git(&["-C", "copy", "fetch", "--quiet"]).await;
    assert!(ok, "{text}");
    let requests = world.server.requests();
    let compressed = requests
        .iter()
        .find(|request| request.request_bytes < request.body.len() as u64);
    assert!(
        compressed.is_some_and(|request| request.body_text().contains("have ")),
        "{requests:?}"
    );
}

#[tokio::test]
async fn credentials_are_asked_for_and_checked() {
    let world = world().await;
    world.server.require_basic("ada", "s3cret");
    assert!(!world.clone("anonymous").await.0);
    let with = |pair: &str| world.url.replace("http://", &format!("http://{pair}@"));
    assert!(
        !world
            .git(&["clone", "--quiet", &with("ada:wrong"), "wrong"])
            .await
            .0
    );
    let (ok, text) = world
        .git(&["clone", "--quiet", &with("ada:s3cret"), "right"])
        .await;
    assert!(ok, "{text}");
    assert!(
        world
            .server
            .requests()
            .iter()
            .any(|request| request.username.as_deref() == Some("ada"))
    );
    world.server.allow_anonymous();
    assert!(world.clone("open").await.0);
}

#[tokio::test]
async fn statuses_strike_the_step_they_are_meant_for_and_so_often() {
    let world = world().await;
    for (code, said) in [
        (401, "could not read Username"),
        (403, "403"),
        (404, "not found"),
        (429, "429"),
        (500, "500"),
    ] {
        world
            .server
            .inject(Injection::new(Scope::INFO_REFS, Fault::Status(code)).times(1));
        let (ok, text) = world.clone("refused").await;
        assert!(!ok && text.contains(said), "{code}: {text}");
    }
    world
        .server
        .inject(Injection::new(Scope::FETCH, Fault::Status(500)).repository("another"));
    assert!(world.clone("unharmed").await.0);
    world.server.clear_faults();
    world.server.clear_requests();
    world.server.fault(Scope::FETCH, Fault::RetryAfter(429, 7));
    assert!(!world.clone("limited").await.0);
    let statuses: Vec<_> = world
        .server
        .requests()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn damaged_packs_are_refused_by_git() {
    let world = world().await;
    for fault in [
        Fault::Truncated(60),
        Fault::Corrupted(40),
        Fault::Page("text/html", "<html>".into()),
    ] {
        world
            .server
            .inject(Injection::new(Scope::FETCH, fault.clone()).times(1));
        let (ok, text) = world.clone("damaged").await;
        assert!(!ok, "{fault:?}: {text}");
    }
    assert!(world.clone("whole").await.0);
}

#[tokio::test]
async fn a_stalled_or_hung_answer_ends_with_the_server() {
    for fault in [Fault::Stalled(30), Fault::Hung] {
        let World {
            server,
            url,
            folder,
            repository: _kept,
        } = world().await;
        server.fault(Scope::FETCH, fault.clone());
        let mut command = Command::from(super::super::repository::hermetic(folder.path()));
        command
            .current_dir(folder.path())
            .args(["clone", "--quiet", &url, "copy"])
            .kill_on_drop(true);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        assert!(
            tokio::time::timeout(Duration::from_millis(700), child.wait())
                .await
                .is_err(),
            "{fault:?}"
        );
        drop(server);
        let exit = tokio::time::timeout(Duration::from_secs(20), child.wait())
            .await
            .unwrap()
            .unwrap();
        assert!(!exit.success());
    }
}

#[tokio::test]
async fn a_slow_answer_is_whole_but_late() {
    let world = world().await;
    world.server.fault(
        Scope::FETCH,
        Fault::Slow {
            bytes: 64,
            pause: Duration::from_millis(50),
        },
    );
    let started = Instant::now();
    let (ok, text) = world.clone("slow").await;
    assert!(ok, "{text}");
    assert!(started.elapsed() > Duration::from_millis(200));
}

/// Lets `git` read until it was sent this much without finding fault, then ends it.
async fn read_at_least(world: &World, arguments: &[&str], bytes: u64) {
    let mut command = Command::from(super::super::repository::hermetic(world.folder.path()));
    command
        .current_dir(world.folder.path())
        .args(arguments)
        .stdout(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let enough = async {
        while world
            .server
            .requests()
            .last()
            .is_none_or(|request| request.response_bytes < bytes)
        {
            assert!(
                child.try_wait().unwrap().is_none(),
                "git found fault: {:?}",
                world.server.requests()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), enough)
        .await
        .unwrap();
    child.kill().await.unwrap();
}

#[tokio::test]
async fn an_oversized_pack_is_well_formed_for_as_long_as_it_is_read() {
    let world = world().await;
    world.server.fault(Scope::FETCH, Fault::Oversized);
    read_at_least(&world, &["clone", "--quiet", &world.url, "copy"], 20 << 20).await;
}

#[tokio::test]
async fn references_without_end_are_sent_until_nobody_listens() {
    let world = world().await;
    for scope in [Scope::LS_REFS, Scope::INFO_REFS] {
        world.server.clear_requests();
        world.server.clear_faults();
        world.server.fault(scope, Fault::Oversized);
        read_at_least(&world, &["ls-remote", &world.url], 1 << 20).await;
    }
}

#[tokio::test]
async fn an_unknown_or_withdrawn_repository_is_not_found() {
    let world = world().await;
    world.server.withdraw("stack");
    let (ok, text) = world.clone("gone").await;
    assert!(!ok && text.contains("not found"), "{text}");
}
