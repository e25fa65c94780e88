//! The end of a controller in a program whose consumers end later.

use std::time::Duration;

use clap::Parser as _;
use kube::Api;
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::shutdown::Token;
use sluice_source_controller::{Options, Stop, run};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fixture::{Controller, LIMIT, api, get};

#[tokio::test]
async fn artifacts_are_served_until_the_file_server_is_stopped() {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let (client, storage) = (api().client(), tempfile::tempdir().unwrap());
    let path = format!("--storage-path={}", storage.path().display());
    let options = Options::parse_from([
        "source-controller",
        &path,
        "--storage-addr=127.0.0.1:0",
        "--metrics-addr=0",
        "--health-addr=127.0.0.1:0",
    ]);
    let stop = Stop {
        work: Token::new(),
        server: Token::new(),
    };
    let controller = Controller {
        objects: Api::namespaced(client.clone(), "default"),
        stop: stop.work.clone(),
        running: run(options, client, stop.clone()).await.unwrap(),
        storage,
    };
    controller
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    let artifact = controller.ready("app", &commit).await;
    let probes = controller.running.health.unwrap();
    stop.work.cancel();
    let closed = async {
        while TcpStream::connect(probes).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LIMIT, closed).await.expect("the rest stops");
    let size = u64::try_from(get(&artifact.url).await.len()).unwrap();
    assert_eq!(u64::try_from(artifact.size.unwrap()).unwrap(), size);
    stop.server.cancel();
    let ended = timeout(LIMIT, controller.running.wait()).await;
    ended.expect("an end in time");
}
