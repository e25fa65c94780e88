//! Tests of event notifications.

use serde_json::{Value, json};
use sluice_harness::git::{GitServer, Repository};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fixture::{LIMIT, start};

/// Starts a receiver that responds with 202; returns its address and the received bodies.
async fn receiver() -> (String, tokio::sync::mpsc::UnboundedReceiver<Value>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, bodies) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let body = loop {
                stream.read_buf(&mut request).await.unwrap();
                let end = request.windows(4).position(|w| w == b"\r\n\r\n");
                let body = end.and_then(|end| serde_json::from_slice::<Value>(&request[end + 4..]).ok());
                if let Some(body) = body {
                    break body;
                }
            };
            let answer = b"HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            sender.send(body).unwrap();
        }
    });
    (address, bodies)
}

#[tokio::test]
async fn an_event_receiver_gets_a_new_artifact() {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let (address, mut bodies) = receiver().await;
    let controller = start(&[&format!("--events-addr={address}")]).await;
    controller
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    let artifact = controller.ready("app", &commit).await;
    let body = tokio::time::timeout(LIMIT, bodies.recv()).await.unwrap().unwrap();
    let object = &body["involvedObject"];
    assert_eq!(object["apiVersion"], "source.toolkit.fluxcd.io/v1");
    assert_eq!(
        (&object["kind"], &object["name"], &object["namespace"]),
        (&json!("GitRepository"), &json!("app"), &json!("default"))
    );
    assert!(object["uid"].is_string() && object["resourceVersion"].is_string());
    assert_eq!(
        (&body["severity"], &body["reason"]),
        (&json!("info"), &json!("NewArtifact"))
    );
    assert_eq!(
        body["metadata"],
        json!({
            "source.toolkit.fluxcd.io/revision": artifact.revision,
            "source.toolkit.fluxcd.io/digest": artifact.digest,
        })
    );
    assert_eq!(body["reportingController"], "source-controller");
    controller.end().await;
}

#[tokio::test]
async fn an_unresponsive_event_receiver_delays_neither_artifacts_nor_shutdown() {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    // Accepts connections and never responds.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("--events-addr=http://{}/", silent.local_addr().unwrap());
    let controller = start(&[&address]).await;
    controller
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    controller.ready("app", &commit).await;
    controller.end().await;
}
