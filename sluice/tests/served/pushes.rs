//! Tests from a push to the bytes behind the URL.

use clap::Parser as _;
use serde_json::json;
use sluice_harness::git::{Fault, GitServer, Injection, Repository, Scope};
use sluice_runtime::shutdown::Token;
use sluice_source_controller::archive::{Algorithm, Hasher};
use sluice_source_controller::{Options, run};

use crate::fixture::{api, get, start};

#[tokio::test]
async fn a_push_becomes_a_downloadable_artifact() {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let first = repository
        .commit_files(&[("main.tf", "locals {}\n")], "first")
        .unwrap();
    let controller = start(&[]).await;
    controller
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    let one = controller.ready("app", &first).await;
    let second = repository
        .commit_files(&[("main.tf", "locals { a = 1 }\n")], "second")
        .unwrap();
    let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
    controller.patch("app", patch).await;
    let two = controller.ready("app", &second).await;
    for artifact in [&one, &two] {
        let content = get(&artifact.url).await;
        assert_eq!(Some(i64::try_from(content.len()).unwrap()), artifact.size);
        let digest = Hasher::of(Algorithm::Sha256, content.as_slice()).unwrap();
        assert_eq!(digest.to_string(), artifact.digest);
    }
    let metrics = get(&format!("http://{}/metrics", controller.running.metrics.unwrap())).await;
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(metrics.contains("gotk_reconcile_duration_seconds"), "{metrics}");
    get(&format!("http://{}/healthz", controller.running.health.unwrap())).await;
    get(&format!("http://{}/", controller.running.artifacts)).await;
    controller.end().await;
}

/// Creates objects of a host that never responds and of one that does: the good ones become ready before any of the
/// others can time out.
async fn good_among_hung(hung: usize, good: usize, flag: &str) {
    let (silent, server) = (
        GitServer::start().await.unwrap(),
        GitServer::start().await.unwrap(),
    );
    let repository = Repository::create().unwrap();
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let never = silent.serve("hung", &repository);
    silent.inject(Injection::new(Scope::Any, Fault::Hung));
    let controller = start(&[flag]).await;
    for n in 0..hung {
        controller.create(&format!("hung-{n}"), &never, "10m").await;
    }
    let url = server.serve("good", &repository);
    for n in 0..good {
        controller.create(&format!("good-{n}"), &url, "60s").await;
    }
    for n in 0..good {
        controller.ready(&format!("good-{n}"), &commit).await;
    }
    controller.stop.cancel();
}

#[tokio::test]
async fn many_hanging_remotes_do_not_delay_a_good_one() {
    good_among_hung(30, 1, "--concurrent=1").await;
}

#[tokio::test]
async fn ten_objects_of_a_hanging_host_delay_none_of_forty_others() {
    good_among_hung(10, 40, "--concurrent=4").await;
}

#[tokio::test]
async fn a_port_in_use_is_a_startup_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let storage = tempfile::tempdir().unwrap();
    let options = Options::parse_from([
        "source-controller".to_owned(),
        format!("--storage-path={}", storage.path().display()),
        format!("--storage-addr={}", taken.local_addr().unwrap()),
    ]);
    let error = run(options, api().client(), Token::new()).await.unwrap_err();
    assert!(error.to_string().contains("--storage-addr"), "{error}");
}
