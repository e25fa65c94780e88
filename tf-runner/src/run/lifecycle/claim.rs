//! The claim of a run: compare-and-swap on its status, so that a run starts at most once.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::run::{Phase, TerraformRun, TerraformRunStatus};
use sluice_tf_core::run_input::{DEFAULT_MEMORY_REQUEST, MEMORY_LIMIT, RUN_UID};
use tokio_util::sync::CancellationToken;

use crate::run::lifecycle::context::Context;

/// The variable with the name of the runner's Job, which the controller sets.
pub(crate) const JOB_NAME: &str = "JOB_NAME";
/// Attempts to claim. Most conflicts are writes of other clients that do not claim the run.
const MAX_CONFLICTS: u32 = 20;

/// The reason why a run was not claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another runner claimed it, or it has ended.
    #[error("run {run} is {phase}, held by {holder:?}")]
    Taken {
        /// The run.
        run: String,
        /// Its phase.
        phase: &'static str,
        /// The runner that claimed it.
        holder: String,
    },
    /// The run does not exist.
    #[error("run {0} does not exist")]
    Gone(String),
    /// The run that the runner was started for was deleted, and another one has its name.
    #[error("run {0} was deleted, and this runner was started for it: another run has its name now")]
    Replaced(String),
    /// The API refused the claim or was unavailable.
    #[error("cannot claim run {run}: {source}")]
    Api {
        /// The run.
        run: String,
        /// The answer.
        #[source]
        source: kube::Error,
    },
}

/// Claims the run for the context's identity. A run that the executor passed is not read again: the claim is refused if it has changed.
/// After `stop`, a call is made once more at most.
///
/// # Errors
/// When the run is claimed or gone, or the API is unavailable.
pub(crate) async fn claim(
    api: &Api<TerraformRun>,
    context: &Context,
    stop: &CancellationToken,
) -> Result<TerraformRun, ClaimError> {
    let name = &context.settings.run;
    let failed = |source| ClaimError::Api {
        run: name.clone(),
        source,
    };
    let mut known = context
        .run
        .clone()
        .filter(|run| run.metadata.name.as_ref() == Some(name));
    for _ in 0..MAX_CONFLICTS {
        let run = if let Some(run) = known.take() {
            Some(run)
        } else {
            let read = context.retry_until(stop, || api.get_opt(name)).await;
            read.map_err(failed)?
        };
        let run = run.ok_or_else(|| ClaimError::Gone(name.clone()))?;
        let started_for = context.environment.get(RUN_UID);
        if started_for.is_some_and(|uid| run.metadata.uid.as_ref() != Some(uid)) {
            return Err(ClaimError::Replaced(name.clone()));
        }
        let status = run.status.clone().unwrap_or_default();
        let is_own = status
            .claim
            .as_ref()
            .is_some_and(|claim| claim.holder == context.identity.holder);
        if is_own && status.phase == Phase::Claimed {
            return Ok(run); // the response to our own claim was lost
        }
        if status.phase != Phase::Pending || status.claim.is_some() {
            let holder = status.claim.map(|claim| claim.holder).unwrap_or_default();
            return Err(ClaimError::Taken {
                run: name.clone(),
                phase: status.phase.as_str(),
                holder,
            });
        }
        let (params, patch) = (PatchParams::default(), claim_patch(&run, context));
        let call = || api.patch_status(name, &params, &patch);
        match context.retry_until(stop, call).await {
            Ok(run) => return Ok(run),
            // A run that the executor passed may be outdated or gone.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(ClaimError::Taken {
        run: name.clone(),
        phase: Phase::Pending.as_str(),
        holder: String::new(),
    })
}

/// Returns the patch that claims a run in the version that was read.
fn claim_patch(run: &TerraformRun, context: &Context) -> Patch<Value> {
    // What the runner waited for.
    let was_pending = run
        .status
        .as_ref()
        .is_some_and(|status| !status.reason.is_empty());
    let status = TerraformRunStatus {
        phase: Phase::Claimed,
        claim: Some(context.identity.claim()),
        memory_limit_bytes: container_bytes(&context.environment, MEMORY_LIMIT).filter(|bytes| *bytes > 0),
        default_memory_request_bytes: container_bytes(&context.environment, DEFAULT_MEMORY_REQUEST),
        job_name: context.environment.get(JOB_NAME).cloned().unwrap_or_default(),
        started_at: Some(Time(jiff::Timestamp::now())),
        // No command has run yet.
        possible_lock_windows: Some(Vec::new()),
        ..TerraformRunStatus::default()
    };
    let mut patch =
        json!({ "metadata": { "resourceVersion": run.metadata.resource_version }, "status": status });
    if was_pending {
        patch["status"]["reason"] = Value::Null;
        patch["status"]["message"] = Value::Null;
    }
    Patch::Merge(patch)
}

/// Returns an amount of memory of this run's container; `None`: it is not known, or the container is shared with other runs.
fn container_bytes(environment: &BTreeMap<String, String>, variable: &str) -> Option<i64> {
    environment.get(JOB_NAME)?;
    let bytes = environment.get(variable)?.parse().ok();
    bytes.filter(|bytes| *bytes >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_those_of_a_container_of_its_own() {
        let limit = |pairs: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            container_bytes(&pairs.iter().map(owned).collect(), MEMORY_LIMIT)
        };
        assert_eq!(
            limit(&[(JOB_NAME, "net-1"), (MEMORY_LIMIT, "536870912")]),
            Some(536_870_912)
        );
        assert_eq!(limit(&[(JOB_NAME, "net-1"), (MEMORY_LIMIT, "0")]), Some(0));
        assert_eq!(
            limit(&[(MEMORY_LIMIT, "536870912")]),
            None,
            "a process of a controller"
        );
        assert_eq!(limit(&[(JOB_NAME, "net-1"), (DEFAULT_MEMORY_REQUEST, "0")]), None);
        for value in ["", "-1", "512Mi"] {
            assert_eq!(
                limit(&[(JOB_NAME, "net-1"), (MEMORY_LIMIT, value)]),
                None,
                "{value}"
            );
        }
    }
}
