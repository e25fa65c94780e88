//! Taking a run: compare-and-swap on its status, so that a run starts at most once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use sluice_api::run::{Phase, TerraformRun, TerraformRunStatus};

use crate::run::lifecycle::api_retry::patiently;
use crate::run::lifecycle::context::Context;

/// How often a lost race is run again: each conflict means that somebody else wrote, mostly not a claim.
const CONFLICTS: u32 = 20;

/// Why a run was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Somebody else has it, or it has ended: nothing to do.
    #[error("run {run} is {phase}, held by {holder:?}")]
    Taken {
        /// The run.
        run: String,
        /// Its phase.
        phase: &'static str,
        /// Who has it.
        holder: String,
    },
    /// It is not there.
    #[error("run {0} does not exist")]
    Gone(String),
    /// The API refused, or stayed away.
    #[error("cannot claim run {run}: {source}")]
    Api {
        /// The run.
        run: String,
        /// The answer.
        #[source]
        source: kube::Error,
    },
}

/// Claims the run for the context's identity.
///
/// # Errors
/// When it is taken, gone, or the API stays away.
pub(crate) async fn claim(api: &Api<TerraformRun>, context: &Context) -> Result<TerraformRun, ClaimError> {
    let (name, patience) = (&context.settings.run, context.settings.patience);
    let failed = |source| ClaimError::Api {
        run: name.clone(),
        source,
    };
    for _ in 0..CONFLICTS {
        let run = patiently(patience, || api.get_opt(name)).await.map_err(failed)?;
        let run = run.ok_or_else(|| ClaimError::Gone(name.clone()))?;
        let held = run.status.clone().unwrap_or_default();
        let mine = held
            .claim
            .as_ref()
            .is_some_and(|claim| claim.holder == context.identity.holder);
        if mine && held.phase == Phase::Claimed {
            return Ok(run); // the answer to our own claim was lost
        }
        if held.phase != Phase::Pending || held.claim.is_some() {
            let holder = held.claim.map(|claim| claim.holder).unwrap_or_default();
            return Err(ClaimError::Taken {
                run: name.clone(),
                phase: held.phase.as_str(),
                holder,
            });
        }
        let status = TerraformRunStatus {
            phase: Phase::Claimed,
            claim: Some(context.identity.claim()),
            started_at: Some(Time(jiff::Timestamp::now())),
            // No command has gone yet.
            possible_lock_windows: Some(Vec::new()),
            ..TerraformRunStatus::default()
        };
        let patch =
            json!({ "metadata": { "resourceVersion": run.metadata.resource_version }, "status": status });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = patiently(patience, || api.patch_status(name, &params, &patch)).await;
        match patched {
            Ok(run) => return Ok(run),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(ClaimError::Taken {
        run: name.clone(),
        phase: Phase::Pending.as_str(),
        holder: String::new(),
    })
}
