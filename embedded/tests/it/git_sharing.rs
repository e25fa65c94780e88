//! Two servers on one repository that share Leases, Events and runs.

use std::collections::BTreeSet;
use std::path::Path;

use kube::Client;
use serde_json::{Value, json};
use sluice_embedded::{ApiServer, GitOptions, SharedKind, Store};

use crate::fixture::{call, eventually, ok, server_on, widget_definition};
use crate::git_store::{git, options, repository};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn server(dir: &Path, name: &str, repository: &Path) -> ApiServer {
    let own = dir.join(name);
    std::fs::create_dir(&own).unwrap();
    let options = GitOptions {
        shared: BTreeSet::from([SharedKind::Leases, SharedKind::Events]),
        ..options(&own, repository)
    };
    server_on(Store::git(options, &[widget_definition()]).unwrap())
}

/// Returns what is the same on each server.
fn identity(object: &Value) -> [&Value; 3] {
    ["uid", "resourceVersion", "creationTimestamp"].map(|field| &object["metadata"][field])
}

/// Waits until a server has an object, and returns it.
async fn read(client: &Client, path: &str) -> Value {
    eventually("the other server has it", || async {
        call(client, "GET", path, None).await.code == 200
    })
    .await;
    ok(client, "GET", path, None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_elect_one_leader() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let servers = ["a", "b"].map(|name| server(dir.path(), name, &repository));
    let [first, second] = servers.each_ref().map(ApiServer::client);
    let lease = |holder: &str| {
        json!({"metadata": {"name": "controller"}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 0}})
    };
    ok(&first, "POST", LEASES, Some(&lease("first"))).await;
    let path = format!("{LEASES}/controller");
    let known = read(&second, &path).await;
    let own = ok(&first, "GET", &path, None).await;
    assert_eq!(identity(&known), identity(&own));
    assert_eq!(known["spec"], own["spec"]);
    assert_eq!(
        call(&second, "POST", LEASES, Some(&lease("second"))).await.code,
        409
    );

    let mut renewed = known.clone();
    renewed["spec"]["renewTime"] = "2026-01-01T00:00:02.000000Z".into();
    ok(&first, "PUT", &path, Some(&renewed)).await;
    let mut taken = known;
    taken["spec"]["holderIdentity"] = "second".into();
    let response = call(&second, "PUT", &path, Some(&taken)).await;
    assert_eq!(response.code, 409, "it was renewed: {response:?}");
    eventually("the other server has the renewal", || async {
        let lease = ok(&second, "GET", &path, None).await;
        lease["spec"]["renewTime"] == renewed["spec"]["renewTime"]
            && lease["spec"]["holderIdentity"] == "first"
    })
    .await;
    let reasons = "--format=%s %(trailers:key=Reason,separator=;)";
    assert_eq!(
        git(
            &repository,
            &["log", "-2", "--first-parent", reasons, "main-status"]
        ),
        "update leases default/controller Reason: update\ncreate leases default/controller Reason: create\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_have_the_same_events() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let servers = ["a", "b"].map(|name| server(dir.path(), name, &repository));
    let [first, second] = servers.each_ref().map(ApiServer::client);
    let event = json!({"metadata": {"name": "a.1"}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Apply",
        "reason": "Applied", "type": "Normal", "note": "3 resources", "reportingController": "example.dev/c",
        "reportingInstance": "c-1", "regarding": {"kind": "Widget", "namespace": "default", "name": "a"}});
    ok(&first, "POST", EVENTS, Some(&event)).await;
    let path = format!("{EVENTS}/a.1");
    let read = read(&second, &path).await;
    assert_eq!(identity(&read), identity(&ok(&first, "GET", &path, None).await));
    assert_eq!(read["note"], "3 resources");
    ok(&second, "DELETE", &path, None).await;
    eventually("the other server removes it", || async {
        call(&first, "GET", &path, None).await.code == 404
    })
    .await;
}
