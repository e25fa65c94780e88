//! Flux's own command line manages the sources of Sluice, on a real API server and with `sluice up`.

use std::path::Path;

use sluice_harness::directory::TestDirectory;
use sluice_harness::gobuild::{self, Tool};
use sluice_tests::program::{Program, Setup};
use sluice_tests::scenario::{Commit, NAME, NAMESPACE};
use tokio::process::Command;

use crate::environment::{Origin, TestEnvironment};
use crate::{with_timeout, without_cluster};

#[test]
fn flux_manages_sources_on_a_real_api_server() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let mut env = TestEnvironment::start().await;
        env.start_controllers();
        manage_a_source(&env.folder.path().join("admin")).await;
    });
}

#[test]
fn flux_manages_sources_of_sluice_up() {
    with_timeout(async {
        let folder = TestDirectory::create().unwrap();
        let setup = Setup::new(folder.path());
        setup.write(&[]).unwrap();
        let program = Program::start(setup).await.unwrap();
        manage_a_source(&program.kubeconfig()).await;
        program.end().await.unwrap();
    });
}

/// Runs each command of `flux` for Git sources, which wait for the answers of source-controller.
async fn manage_a_source(kubeconfig: &Path) {
    let origin = Origin::start().await;
    let flux = Flux { kubeconfig };
    let first = origin.repository.head().unwrap();
    let url = format!("--url={}", origin.url);
    let create = [
        "create",
        "source",
        "git",
        NAME,
        &url,
        "--branch=main",
        "--interval=1h",
    ];
    flux.expect(&create, &format!("fetched revision: main@sha1:{first}"))
        .await;
    let get = ["get", "sources", "git", NAME];
    let stored = format!("stored artifact for revision 'main@sha1:{}", &first[..8]);
    flux.expect(&get, &stored).await;
    flux.expect(&["get", "all"], &format!("gitrepository/{NAME}"))
        .await;

    let second = Commit::Docs.create(&origin.repository).unwrap();
    let reconcile = ["reconcile", "source", "git", NAME];
    flux.expect(&reconcile, &format!("fetched revision main@sha1:{second}"))
        .await;
    let object = format!("--for=GitRepository/{NAME}");
    flux.expect(&["events", &object], "NewArtifact").await;

    flux.expect(&["suspend", "source", "git", NAME], "source git suspended")
        .await;
    let refused = flux.run(&reconcile).await.unwrap_err();
    assert!(refused.contains("resource is suspended"), "{refused}");
    let resume = ["resume", "source", "git", NAME];
    flux.expect(&resume, &format!("fetched revision main@sha1:{second}"))
        .await;

    flux.expect(&["export", "source", "git", NAME], &origin.url).await;
    flux.expect(
        &["delete", "source", "git", NAME, "--silent"],
        "source git deleted",
    )
    .await;
    let gone = flux.run(&get).await.unwrap_err();
    assert!(gone.contains("not found"), "{gone}");
}

struct Flux<'a> {
    kubeconfig: &'a Path,
}

impl Flux<'_> {
    /// Returns what the command printed; the error has it too.
    async fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let program = gobuild::build(Tool::Flux, &mut |line| eprintln!("{line}")).unwrap();
        let output = Command::new(program)
            .args(arguments)
            .args(["--namespace", NAMESPACE, "--timeout=2m"])
            .env("KUBECONFIG", self.kubeconfig)
            .output()
            .await
            .unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.concat();
        if output.status.success() {
            Ok(text)
        } else {
            Err(text)
        }
    }

    async fn expect(&self, arguments: &[&str], expected: &str) {
        let printed = self.run(arguments).await;
        let printed = printed.unwrap_or_else(|error| panic!("flux {arguments:?}: {error}"));
        assert!(
            printed.contains(expected),
            "flux {arguments:?}: {printed}, expected {expected}"
        );
    }
}
