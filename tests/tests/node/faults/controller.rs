//! Faults of the controllers.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_tests::scenario::retry;

use super::cause::{ABSENCE, artifact_files, controllers, kill, kubectl, wait_for};
use super::pods;
use super::runs::text;
use super::stack::{Stack, failure, without_grace};
use super::stage::{Stage, VERSIONS};
use crate::install;

/// The label of the pods of tf-controller.
pub(super) const TF_CONTROLLER: &str = "app=tf-controller";
/// The label of the pods of source-controller.
pub(super) const SOURCE_CONTROLLER: &str = "app=source-controller";
/// The holder of the Lease after [`take_lease`].
const OTHER_HOLDER: &str = "another-process";
/// The Lease of tf-controller.
const LEASE: &str = "1953de50.contrib.fluxcd.io";
/// Restarts of a container after which the kubelet waits for 40 s before the next one: it doubles the delay, from 10 s.
const MAX_RESTARTS: i32 = 3;
/// How long two leaders run before the test removes one replica.
const LEADERS_OVERLAP: Duration = Duration::from_secs(10);

/// Waits for a container to kill: after another kill the kubelet starts the next one with a delay.
pub(super) async fn kill_controller(stage: &Stage<'_>, selector: &str) -> Result<usize, String> {
    let pods = controllers(stage).await?;
    wait_for("the controller did not run", async || {
        let running = pods::running(&pods, selector).await?;
        let hits = kill(stage, &running, None).await?;
        Ok((hits > 0).then_some(hits))
    })
    .await
}

pub(super) async fn restart_controller(stage: &Stage<'_>) -> Result<usize, String> {
    let restart = ["rollout", "restart", "deployment/tf-controller"];
    kubectl(stage, install::NAMESPACE, &restart).await?;
    Ok(1)
}

/// Replaces a pod of the controllers that waits for its restart, or would wait at the next kill: the faults of many trials let the delay grow to
/// five minutes.
pub(super) async fn end_restart_delay(stage: &Stage<'_>) -> Result<(), String> {
    let pods = controllers(stage).await?;
    for selector in [TF_CONTROLLER, SOURCE_CONTROLLER] {
        for pod in pods::running(&pods, selector).await? {
            if pods::waits_for_restart(&pod) || pods::restarts(&pod) >= MAX_RESTARTS {
                let (name, how) = (pod.name_any(), without_grace());
                // It may be replaced since it was listed.
                let _absent = retry(|| pods.delete(&name, &how)).await;
            }
        }
    }
    Ok(())
}

/// Rolls out the images with the other tag: those of the next version, or the first ones again.
pub(super) async fn change_version(stage: &Stage<'_>) -> Result<usize, String> {
    let deployment = [
        "get",
        "deployment/tf-controller",
        "-o",
        "jsonpath={.spec.template.spec.containers[0].image}",
    ];
    let present = [&["-n", install::NAMESPACE], deployment.as_slice()].concat();
    let is_next = stage.installation.try_kubectl(&present).await? == VERSIONS[0].1;
    let [controller, runner] = VERSIONS.map(|(first, next)| if is_next { first } else { next });
    let patch = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "manager", "image": controller,
        "env": [{ "name": "RUNNER_POD_IMAGE", "value": runner }] }] } } } });
    let patch = ["patch", "deployment/tf-controller", "-p", &patch.to_string()];
    kubectl(stage, install::NAMESPACE, &patch).await?;
    Ok(1)
}

async fn leases(stage: &Stage<'_>) -> Result<Api<Lease>, String> {
    let client = stage.node.client().await.map_err(failure("make a client"))?;
    Ok(Api::namespaced(client, install::NAMESPACE))
}

/// Changes the Lease of tf-controller.
async fn edit_lease(stage: &Stage<'_>, spec: serde_json::Value) -> Result<(), String> {
    let leases = leases(stage).await?;
    let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "spec": spec })));
    let edited = retry(|| leases.patch(LEASE, &params, &patch)).await;
    edited.map(drop).map_err(failure("edit the Lease"))
}

/// Returns who leads: the name of a pod and a random part.
pub(super) async fn leader(stage: &Stage<'_>) -> Result<Option<String>, String> {
    let leases = leases(stage).await?;
    let lease = retry(|| leases.get(LEASE))
        .await
        .map_err(failure("read the Lease"))?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    Ok(holder.filter(|holder| !holder.is_empty()))
}

pub(super) async fn take_lease(stage: &Stage<'_>) -> Result<usize, String> {
    let other_holder = json!({ "holderIdentity": OTHER_HOLDER, "leaseDurationSeconds": 15,
        "renewTime": format!("{:.6}", Timestamp::now()) });
    edit_lease(stage, other_holder).await.map(|()| 1)
}

/// Adds a replica, pauses the leader until the other replica leads, and resumes it: both then act as leader for a moment.
pub(super) async fn pause_leader(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    scale(stage, "tf-controller", 2).await?;
    let (pod, leader) = wait_for("no replica led", async || leading_pod(stage).await).await?;
    let id = pods::container_id(&pod).unwrap_or_default();
    let paused = stage
        .node
        .pause_container(id)
        .map_err(failure("pause the leader"));
    let taken = match paused {
        Ok(()) => take_over(stage, &leader).await,
        Err(error) => Err(error),
    };
    let resumed = stage
        .node
        .resume_container(id)
        .map_err(failure("resume the leader"));
    stack.begin()?;
    tokio::time::sleep(LEADERS_OVERLAP).await;
    scale(stage, "tf-controller", 1).await?;
    taken.and(resumed).map(|()| 1)
}

/// Waits until another process of tf-controller leads than before the fault.
pub(super) async fn wait_for_other_leader(stage: &Stage<'_>, before: Option<&str>) -> Result<(), String> {
    wait_for("tf-controller did not lead again", async || {
        let now = leader(stage).await?;
        let is_other = now.is_some_and(|now| now != OTHER_HOLDER && Some(now.as_str()) != before);
        Ok(is_other.then_some(()))
    })
    .await
}

/// Releases the Lease, and waits until another replica leads. It would expire only after the kubelet has restarted the paused container.
async fn take_over(stage: &Stage<'_>, leader_before: &str) -> Result<(), String> {
    edit_lease(stage, json!({ "holderIdentity": "", "leaseDurationSeconds": 1 })).await?;
    wait_for("no other replica led", async || {
        let now = leader(stage).await?;
        Ok(now.filter(|now| now != leader_before).map(drop))
    })
    .await
}

/// Returns the pod that leads, when all replicas are ready, and its identity.
async fn leading_pod(stage: &Stage<'_>) -> Result<Option<(Pod, String)>, String> {
    let Some(leader) = leader(stage).await? else {
        return Ok(None);
    };
    let mut running = pods::running(&controllers(stage).await?, TF_CONTROLLER).await?;
    running.retain(|pod| pods::container_id(pod).is_some() && leader.starts_with(&pod.name_any()));
    Ok(running.pop().map(|pod| (pod, leader)))
}

/// Sets the number of replicas of a controller and waits until they are available.
async fn scale(stage: &Stage<'_>, controller: &str, replicas: usize) -> Result<(), String> {
    let deployment = format!("deployment/{controller}");
    let scale = ["scale", &deployment, &format!("--replicas={replicas}")];
    kubectl(stage, install::NAMESPACE, &scale).await?;
    let rollout = ["rollout", "status", &deployment, "--timeout=300s"];
    kubectl(stage, install::NAMESPACE, &rollout).await
}

/// Removes the pods of source-controller, and waits until they have ended.
async fn remove_source_controller(stage: &Stage<'_>) -> Result<(), String> {
    scale(stage, "source-controller", 0).await?;
    let pods = controllers(stage).await?;
    wait_for("source-controller did not end", async || {
        let running = pods::running(&pods, SOURCE_CONTROLLER).await?;
        Ok(running.is_empty().then_some(()))
    })
    .await
}

pub(super) async fn stop_source_controller(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    remove_source_controller(stage).await?;
    stack.begin()?;
    tokio::time::sleep(ABSENCE).await;
    scale(stage, "source-controller", 1).await?;
    Ok(1)
}

/// Keeps source-controller away until the run has ended that waits. It has its artifact already, so it succeeds.
pub(super) async fn stop_source_controller_until_end(
    stage: &Stage<'_>,
    stack: &Stack,
) -> Result<usize, String> {
    let active = stack.active_run().await?.ok_or("no run is active")?;
    remove_source_controller(stage).await?;
    stack.begin()?;
    let ended = wait_for("the run did not end without source-controller", async || {
        let all = stack.runs().await?;
        let mut own = all.iter().filter(|run| text(run, "/metadata/name") == active);
        let phase = own.next().map_or("", |run| text(run, "/status/phase"));
        Ok(is_final(phase).then(|| phase.to_owned()))
    })
    .await;
    scale(stage, "source-controller", 1).await?;
    // Its storage is a new one, and a run that finds no artifact fails.
    wait_for("the artifact did not return", async || {
        let files = artifact_files(stage, stack).await?;
        Ok((!files.is_empty()).then_some(()))
    })
    .await?;
    match ended?.as_str() {
        "Succeeded" => Ok(1),
        phase => Err(format!("{active} is {phase} without source-controller")),
    }
}

fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed" | "Superseded" | "Lost")
}
