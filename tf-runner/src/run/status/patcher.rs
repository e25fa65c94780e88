//! The writes of a run's status, one after the other: each names the resourceVersion that it changes, and reads the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::annotation::{CANCEL, is_cancelled};
use sluice_api::run::{TerraformRun, TerraformRunStatus};
use sluice_runtime::status::difference;
use tokio_util::sync::CancellationToken;

use crate::run::lifecycle::api_retry::attempt;

/// The reason why no status is written any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum StatusWriteError {
    #[error("another process has ended the run as {0}")]
    RunEnded(&'static str),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Patches the status of one run object.
pub(super) struct StatusPatcher {
    api: Api<TerraformRun>,
    name: String,
    resource_version: Option<String>,
    /// The status at that version, without fields of others.
    pub(super) stored: TerraformRunStatus,
    /// How often the server refused a status as too large.
    pub(super) size_refusals: usize,
    /// Stops the run.
    stop: CancellationToken,
    /// Whether a user has cancelled the run.
    is_cancelled: Arc<AtomicBool>,
}

impl StatusPatcher {
    /// Begins with the status of a claimed run. Stops the run at once if a user has cancelled it.
    pub(super) fn new(
        api: Api<TerraformRun>,
        run: &TerraformRun,
        stop: CancellationToken,
        is_cancelled: Arc<AtomicBool>,
    ) -> Self {
        let patcher = Self {
            api,
            name: run.name_any(),
            resource_version: run.resource_version(),
            stored: run.status.clone().unwrap_or_default(),
            size_refusals: 0,
            stop,
            is_cancelled,
        };
        patcher.stop_if_cancelled(run);
        patcher
    }

    /// Writes the difference and the heartbeat; only the heartbeat if nothing differs and one is due.
    pub(super) async fn patch(
        &mut self,
        desired: &TerraformRunStatus,
        is_heartbeat: bool,
    ) -> Result<(), kube::Error> {
        let difference = status_difference(&self.stored, desired)?;
        if difference.is_none() && !is_heartbeat {
            return Ok(());
        }
        let mut status = difference.unwrap_or_else(|| json!({}));
        if let Value::Object(members) = &mut status {
            members.insert("heartbeatAt".to_owned(), json!(MicroTime(jiff::Timestamp::now())));
        }
        let patch = Patch::Merge(
            json!({ "metadata": { "resourceVersion": self.resource_version }, "status": status }),
        );
        let params = PatchParams::default();
        let written = attempt(self.api.patch_status(&self.name, &params, &patch)).await?;
        self.stop_if_cancelled(&written);
        self.resource_version = written.resource_version();
        self.stored = desired.clone();
        Ok(())
    }

    /// Reads the run after a conflict, which our own write causes too if its response was lost.
    pub(super) async fn reload(&mut self, desired: &TerraformRunStatus) -> Result<(), StatusWriteError> {
        let run = attempt(self.api.get(&self.name)).await?;
        self.stop_if_cancelled(&run);
        self.resource_version = run.resource_version();
        let mut status = run.status.unwrap_or_default();
        status.heartbeat_at = None;
        let is_ours = status.claim.is_some() && status.claim == self.stored.claim;
        if !is_ours || status.phase.is_final() && status_difference(&status, desired)?.is_some() {
            return Err(StatusWriteError::RunEnded(status.phase.as_str()));
        }
        self.stored = status;
        Ok(())
    }

    /// Stops the run if a user has cancelled it. Its status is written all the same.
    fn stop_if_cancelled(&self, run: &TerraformRun) {
        if is_cancelled(run.annotations()) && !self.is_cancelled.swap(true, Ordering::Relaxed) {
            tracing::warn!(annotation = CANCEL, "the run is cancelled");
            self.stop.cancel();
        }
    }
}

/// The difference of two statuses in JSON, where times have the precision of the API.
fn status_difference(
    stored: &TerraformRunStatus,
    desired: &TerraformRunStatus,
) -> Result<Option<Value>, kube::Error> {
    let value = |status| serde_json::to_value(status).map_err(kube::Error::SerdeError);
    Ok(difference(&value(stored)?, &value(desired)?))
}

pub(super) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}
