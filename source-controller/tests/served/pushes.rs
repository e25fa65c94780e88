//! From a push to the bytes behind the URL.

use clap::Parser as _;
use serde_json::json;
use sluice_harness::git::{Fault, GitServer, Injection, Repository, Scope};
use sluice_runtime::shutdown::Token;
use sluice_source_controller::archive::{Algorithm, Hasher};
use sluice_source_controller::{Options, run};

use crate::world::{api, get, start};

#[tokio::test]
async fn a_push_becomes_bytes_behind_a_url() {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let first = repository
        .commit_files(&[("main.tf", "locals {}\n")], "first")
        .unwrap();
    let started = start(&[]).await;
    started
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    let one = started.ready("app", &first).await;
    let second = repository
        .commit_files(&[("main.tf", "locals { a = 1 }\n")], "second")
        .unwrap();
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
    started.patch("app", asked).await;
    let two = started.ready("app", &second).await;
    for artifact in [&one, &two] {
        let content = get(&artifact.url).await;
        assert_eq!(Some(i64::try_from(content.len()).unwrap()), artifact.size);
        let digest = Hasher::of(Algorithm::Sha256, content.as_slice()).unwrap();
        assert_eq!(digest.to_string(), artifact.digest);
    }
    let metrics = get(&format!("http://{}/metrics", started.running.metrics.unwrap())).await;
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(metrics.contains("gotk_reconcile_duration_seconds"), "{metrics}");
    get(&format!("http://{}/healthz", started.running.health.unwrap())).await;
    get(&format!("http://{}/", started.running.artifacts)).await;
    started.end().await;
}

/// So many objects of a host that never answers beside so many of one that does: the good ones are ready while the others
/// still wait, since none of those can have been given up by then.
async fn good_among_hung(hung: usize, good: usize, flag: &str) {
    let (silent, server) = (
        GitServer::start().await.unwrap(),
        GitServer::start().await.unwrap(),
    );
    let repository = Repository::create().unwrap();
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let never = silent.serve("hung", &repository);
    silent.inject(Injection::new(Scope::Any, Fault::Hung));
    let started = start(&[flag]).await;
    for n in 0..hung {
        started.create(&format!("hung-{n}"), &never, "10m").await;
    }
    let url = server.serve("good", &repository);
    for n in 0..good {
        started.create(&format!("good-{n}"), &url, "60s").await;
    }
    for n in 0..good {
        started.ready(&format!("good-{n}"), &commit).await;
    }
    started.stop.cancel();
}

#[tokio::test]
async fn many_hung_remotes_do_not_delay_a_good_one() {
    good_among_hung(30, 1, "--concurrent=1").await;
}

#[tokio::test]
async fn ten_of_fifty_on_a_hung_host_delay_none_of_the_others() {
    good_among_hung(10, 40, "--concurrent=4").await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_at_once() {
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
