//! Faults of the node: its components and its API.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use sluice_harness::node::Component;
use sluice_tests::scenario::retry;

use super::cause::{controllers, wait_for};
use super::stack::{Stack, failure};
use super::stage::Stage;

/// Longer than the node stays ready.
pub(super) const LONG_ABSENCE: Duration = Duration::from_secs(75);
/// Longer than Kubernetes waits until it deletes the pods of a node that is not ready (300 s), and than it takes to find the node not ready.
pub(super) const EVICTION: Duration = Duration::from_mins(10);
/// How often a slow API server pauses.
const PAUSE_COUNT: u32 = 8;
/// How long it pauses, and how long it answers in between.
const PAUSE: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_millis(500);
/// How long requests are throttled.
const THROTTLE: Duration = Duration::from_secs(20);
/// One request at a time, and no queues.
const THROTTLE_FLAGS: [&str; 3] = [
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=1",
    "--max-mutating-requests-inflight=1",
];
/// What the audit log says about a request that was throttled.
const TOO_MANY_REQUESTS: &str = "\"code\":429";
/// No request is answered from memory, and the database forgets versions after some seconds.
const EXPIRY_FLAGS: [&str; 2] = ["--watch-cache=false", "--etcd-compaction-interval=1s"];
/// The HTTP status of a watch that cannot continue.
const GONE: u16 = 410;

/// Kills a component, and starts it after a time.
pub(super) async fn stop(
    stage: &Stage<'_>,
    stack: &Stack,
    component: Component,
    absence: Duration,
) -> Result<usize, String> {
    stop_for(stage, stack, component, absence).await?;
    start(stage, component).await?;
    Ok(1)
}

/// Kills a component, and returns after a time without it.
async fn stop_for(
    stage: &Stage<'_>,
    stack: &Stack,
    component: Component,
    absence: Duration,
) -> Result<(), String> {
    stage.node.kill_component(component);
    stack.begin()?;
    tokio::time::sleep(absence).await;
    Ok(())
}

/// Starts the API server again with more flags, and waits until it answers: then the fault has begun.
async fn restart_api_with(stage: &Stage<'_>, stack: &Stack, flags: &[&str]) -> Result<(), String> {
    stage.node.kill_component(Component::ApiServer);
    let started = stage.node.start_api_with(flags);
    started.map_err(failure("start the API server"))?;
    wait_for_api(stage).await?;
    stack.begin()
}

/// Starts the API server again with its usual flags.
async fn restart_api(stage: &Stage<'_>) -> Result<(), String> {
    stage.node.kill_component(Component::ApiServer);
    start(stage, Component::ApiServer).await
}

/// Starts a component, and waits until the API answers.
async fn start(stage: &Stage<'_>, component: Component) -> Result<(), String> {
    let started = stage.node.start_component(component);
    started.map_err(failure("start a component"))?;
    wait_for_api(stage).await
}

async fn wait_for_api(stage: &Stage<'_>) -> Result<(), String> {
    let (pods, all) = (controllers(stage).await?, ListParams::default());
    let answers = retry(|| pods.list(&all)).await;
    answers.map(drop).map_err(failure("list the controllers"))
}

/// Kills a component without which the node is not ready, and starts it after a time.
pub(super) async fn stop_node(
    stage: &Stage<'_>,
    stack: &Stack,
    component: Component,
    absence: Duration,
) -> Result<usize, String> {
    stop_for(stage, stack, component, absence).await?;
    let (nodes, all) = (Api::<Node>::all(stack.client.clone()), ListParams::default());
    let became_not_ready = wait_for("the node was ready", async || {
        let found = retry(|| nodes.list(&all)).await;
        let found = found.map_err(failure("list the nodes"))?;
        Ok((!found.items.iter().any(is_ready)).then_some(1))
    })
    .await;
    start(stage, component).await?;
    became_not_ready
}

fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(super) async fn slow_down(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    for _ in 0..PAUSE_COUNT {
        let paused = stage.node.pause_api();
        stack.begin()?;
        tokio::time::sleep(PAUSE).await;
        let resumed = stage.node.resume_api();
        paused.and(resumed).map_err(failure("pause the API server"))?;
        tokio::time::sleep(ANSWER).await;
    }
    Ok(1)
}

pub(super) async fn throttle(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    let before = throttled(stage)?;
    restart_api_with(stage, stack, &THROTTLE_FLAGS).await?;
    tokio::time::sleep(THROTTLE).await;
    let hits = wait_for("no request was throttled", async || {
        let hits = throttled(stage)?.saturating_sub(before);
        Ok((hits > 0).then_some(hits))
    })
    .await;
    restart_api(stage).await?;
    hits
}

/// Returns how many requests of ServiceAccounts got 429 so far.
fn throttled(stage: &Stage<'_>) -> Result<usize, String> {
    let log = stage.node.audit_log().map_err(failure("read the audit log"))?;
    Ok(log
        .lines()
        .filter(|line| line.contains(TOO_MANY_REQUESTS))
        .count())
}

/// Restarts the API server so that no watch can resume, and checks that with a watch of its own.
pub(super) async fn expire_watches(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    let version = newest_version(&stack.client).await?;
    restart_api_with(stage, stack, &EXPIRY_FLAGS).await?;
    let hits = wait_for("an old watch went on", async || {
        Ok(is_expired(&stack.client, &version).await.then_some(1))
    })
    .await;
    // Watches that began before the versions were forgotten end here.
    restart_api(stage).await?;
    hits
}

async fn newest_version(client: &Client) -> Result<String, String> {
    let (maps, all) = (Api::<ConfigMap>::all(client.clone()), ListParams::default());
    let listed = retry(|| maps.list(&all))
        .await
        .map_err(failure("list ConfigMaps"))?;
    Ok(listed.metadata.resource_version.unwrap_or_default())
}

/// Returns whether a watch from this version is refused.
async fn is_expired(client: &Client, version: &str) -> bool {
    let maps = Api::<ConfigMap>::all(client.clone());
    let is_gone = |code: u16| code == GONE;
    let watch = match maps.watch(&WatchParams::default().timeout(1), version).await {
        Ok(watch) => watch,
        Err(kube::Error::Api(status)) => return is_gone(status.code),
        Err(_) => return false,
    };
    match watch.boxed().next().await {
        Some(Ok(WatchEvent::Error(status)) | Err(kube::Error::Api(status))) => is_gone(status.code),
        _ => false,
    }
}
