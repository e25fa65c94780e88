//! Tests of the server and its faults with the real `git`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::Command;

use super::*;

struct Fixture {
    server: GitServer,
    repository: Repository,
    url: String,
    folder: TempDir,
}

async fn fixture() -> Fixture {
    let server = GitServer::start().await.unwrap();
    let repository = Repository::create().unwrap();
    repository
        .commit_files(&[("main.tf", "locals {}\n")], "first")
        .unwrap();
    let url = server.serve("stack", &repository);
    Fixture {
        server,
        repository,
        url,
        folder: TempDir::new().unwrap(),
    }
}

impl Fixture {
    /// Runs `git` with a timeout of one minute; returns whether it succeeded, and its output.
    async fn git(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::from(super::super::repository::hermetic(self.folder.path()));
        command
            .current_dir(self.folder.path())
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_mins(1), command.output())
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
    let fixture = fixture().await;
    let (ok, text) = fixture.clone("copy").await;
    assert!(ok, "{text}");
    assert_eq!(
        std::fs::read(fixture.folder.path().join("copy/main.tf")).unwrap(),
        b"locals {}\n"
    );
    let requests = fixture.server.requests();
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
    let head = fixture.repository.head().unwrap();
    assert!(requests[2].body_text().contains(&format!("want {head}")));
    assert!(requests[2].response_bytes > 100 && requests[0].response_bytes > 50);
    assert_eq!(fixture.server.count(Step::Fetch), 1);
}

#[tokio::test]
async fn git_clones_over_version_0_and_over_tls() {
    let fixture = fixture().await;
    let (ok, text) = fixture
        .git(&[
            "-c",
            "protocol.version=0",
            "clone",
            "--quiet",
            &fixture.url,
            "old",
        ])
        .await;
    assert!(ok, "{text}");
    let secure = GitServer::start_tls().await.unwrap();
    let url = secure.serve("stack", &fixture.repository);
    let bundle = fixture.folder.path().join("ca.pem");
    std::fs::write(&bundle, secure.authority_pem().unwrap()).unwrap();
    let trust = format!("http.sslCAInfo={}", bundle.display());
    let (ok, text) = fixture
        .git(&["-c", &trust, "clone", "--quiet", &url, "secure"])
        .await;
    assert!(ok, "{text}");
    let (ok, _) = fixture
        .git(&["clone", "--quiet", &url, "unknown-authority"])
        .await;
    assert!(!ok);
}

#[tokio::test]
async fn a_large_negotiation_is_sent_compressed_and_decoded() {
    let fixture = fixture().await;
    assert!(fixture.clone("copy").await.0);
    for number in 0..60 {
        fixture.repository.commit(&format!("commit {number}")).unwrap();
    }
    let (ok, text) = fixture.git(&["-C", "copy", "pull", "--quiet"]).await;
    assert!(ok, "{text}");
    fixture.server.clear_requests();
    // With commits that the server lacks, the client's list of its commits exceeds the size at which git compresses.
    for number in 0..200 {
        let name = format!("local {number}");
        let (ok, text) = fixture
            .git(&["-C", "copy", "commit", "--quiet", "--allow-empty", "-m", &name])
            .await;
        assert!(ok, "{text}");
    }
    fixture.repository.commit("one more").unwrap();
    let (ok, text) = fixture.git(&["-C", "copy", "fetch", "--quiet"]).await;
    assert!(ok, "{text}");
    let requests = fixture.server.requests();
    let compressed = requests
        .iter()
        .find(|request| request.request_bytes < request.body.len() as u64);
    assert!(
        compressed.is_some_and(|request| request.body_text().contains("have ")),
        "{requests:?}"
    );
}

#[tokio::test]
async fn credentials_are_required_and_checked() {
    let fixture = fixture().await;
    fixture.server.require_basic("ada", "s3cret");
    assert!(!fixture.clone("anonymous").await.0);
    let with = |pair: &str| fixture.url.replace("http://", &format!("http://{pair}@"));
    assert!(
        !fixture
            .git(&["clone", "--quiet", &with("ada:wrong"), "wrong"])
            .await
            .0
    );
    let (ok, text) = fixture
        .git(&["clone", "--quiet", &with("ada:s3cret"), "right"])
        .await;
    assert!(ok, "{text}");
    assert!(
        fixture
            .server
            .requests()
            .iter()
            .any(|request| request.username.as_deref() == Some("ada"))
    );
    fixture.server.allow_anonymous();
    assert!(fixture.clone("open").await.0);
}

#[tokio::test]
async fn statuses_apply_to_their_step_and_count() {
    let fixture = fixture().await;
    for (code, message) in [
        (401, "could not read Username"),
        (403, "403"),
        (404, "not found"),
        (429, "429"),
        (500, "500"),
    ] {
        fixture
            .server
            .inject(Injection::new(Scope::INFO_REFS, Fault::Status(code)).times(1));
        let (ok, text) = fixture.clone("refused").await;
        assert!(!ok && text.contains(message), "{code}: {text}");
    }
    fixture
        .server
        .inject(Injection::new(Scope::FETCH, Fault::Status(500)).repository("another"));
    assert!(fixture.clone("unharmed").await.0);
    fixture.server.clear_faults();
    fixture.server.clear_requests();
    fixture.server.fault(Scope::FETCH, Fault::RetryAfter(429, 7));
    assert!(!fixture.clone("limited").await.0);
    let statuses: Vec<_> = fixture
        .server
        .requests()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn damaged_packs_are_refused_by_git() {
    let fixture = fixture().await;
    for fault in [
        Fault::Truncated(60),
        Fault::Corrupted(40),
        Fault::Page("text/html", "<html>".into()),
    ] {
        fixture
            .server
            .inject(Injection::new(Scope::FETCH, fault.clone()).times(1));
        let (ok, text) = fixture.clone("damaged").await;
        assert!(!ok, "{fault:?}: {text}");
    }
    assert!(fixture.clone("whole").await.0);
}

#[tokio::test]
async fn a_stalled_or_hung_response_ends_with_the_server() {
    for fault in [Fault::Stalled(30), Fault::Hung] {
        let Fixture {
            server,
            url,
            folder,
            repository: _repository,
        } = fixture().await;
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
async fn a_slow_response_is_complete_but_late() {
    let fixture = fixture().await;
    fixture.server.fault(
        Scope::FETCH,
        Fault::Slow {
            bytes: 64,
            pause: Duration::from_millis(50),
        },
    );
    let started = Instant::now();
    let (ok, text) = fixture.clone("slow").await;
    assert!(ok, "{text}");
    assert!(started.elapsed() > Duration::from_millis(200));
}

/// Runs `git` until it has received this many bytes without an error, then ends it.
async fn read_at_least(fixture: &Fixture, arguments: &[&str], bytes: u64) {
    let mut command = Command::from(super::super::repository::hermetic(fixture.folder.path()));
    command
        .current_dir(fixture.folder.path())
        .args(arguments)
        .stdout(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let enough = async {
        while fixture
            .server
            .requests()
            .last()
            .is_none_or(|request| request.response_bytes < bytes)
        {
            assert!(
                child.try_wait().unwrap().is_none(),
                "git failed: {:?}",
                fixture.server.requests()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), enough)
        .await
        .unwrap();
    child.kill().await.unwrap();
}

#[tokio::test]
async fn an_oversized_pack_is_well_formed_as_long_as_it_is_read() {
    let fixture = fixture().await;
    fixture.server.fault(Scope::FETCH, Fault::Oversized);
    read_at_least(&fixture, &["clone", "--quiet", &fixture.url, "copy"], 20 << 20).await;
}

#[tokio::test]
async fn endless_references_are_sent_until_the_client_disconnects() {
    let fixture = fixture().await;
    for scope in [Scope::LS_REFS, Scope::INFO_REFS] {
        fixture.server.clear_requests();
        fixture.server.clear_faults();
        fixture.server.fault(scope, Fault::Oversized);
        read_at_least(&fixture, &["ls-remote", &fixture.url], 1 << 20).await;
    }
}

#[tokio::test]
async fn an_unknown_or_withdrawn_repository_is_not_found() {
    let fixture = fixture().await;
    fixture.server.withdraw("stack");
    let (ok, text) = fixture.clone("gone").await;
    assert!(!ok && text.contains("not found"), "{text}");
}

#[tokio::test]
async fn a_request_waits_until_its_gate_opens() {
    let fixture = fixture().await;
    let gate = Gate::default();
    let injection = Injection::new(Scope::Any, Fault::Wait(gate.clone()));
    fixture.server.inject(injection.repository("stack"));
    let clone = fixture.clone("waits");
    let open = async {
        while gate.count() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        gate.open();
    };
    let limit = Duration::from_mins(1);
    let ((succeeded, output), opened) = tokio::join!(clone, tokio::time::timeout(limit, open));
    opened.unwrap();
    assert!(succeeded, "{output}");
    assert!(gate.count() >= 1);
}
