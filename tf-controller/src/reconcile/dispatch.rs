//! Creates the run that was decided on, and starts its runner with the bundle.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, ResourceExt};
use serde_json::json;
use sluice_api::run::{Phase, TerraformRun};
use sluice_api::terraform::{Reason, Terraform};
use sluice_tf_core::bundle::{self, Bundle, BundleError, BundlePayload};

use super::Context;
use super::account::{account_of_run, replacement};
use super::end_reason::EndReason;
use super::history::{is_drift_check, run_fact, sequence};
use super::resolve::{InputReader, ReadError, Resolved};
use super::run_object::{RunRequest, run_object};
use crate::decide::{Health, History};
use crate::executor::{ExecutorError, Launch, is_of_deleted_namesake};

/// Why a run could not be started or supervised. All errors are retried.
#[derive(Debug, thiserror::Error)]
pub(super) enum DispatchError {
    /// The API rejected the request or did not answer.
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
    /// A Secret with sensitive values cannot be read again.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The liveness of a run is unknown.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// The name of the new run is taken by a run that belongs to another stack or has ended.
    #[error("run {0} already exists with another spec; delete it")]
    NameTaken(String),
}

impl DispatchError {
    /// Returns the message for the user if the API rejects the run permanently: a quota, a terminating namespace, an
    /// admission rule. Other errors are temporary and not reported: a Secret that the account of the stack may not read any more fails
    /// the next resolution of the inputs.
    pub(super) fn refusal(&self) -> Option<String> {
        match self {
            Self::Api(kube::Error::Api(status)) if is_refused(status) => {
                Some(format!("cannot create a run: {}", status.message))
            }
            _ => None,
        }
    }
}

/// Returns whether the API would reject the same request again.
const fn is_refused(status: &Status) -> bool {
    matches!(status.code, 400 | 403 | 413 | 422)
}

/// Creates the run, stores its bundle if the executor does not pass it, and starts the runner. A run of that
/// name that already exists was created by another controller a moment ago: it is adopted, and started from here only
/// if its bundle is the same. Returns the run.
pub(super) async fn start(
    request: &RunRequest<'_>,
    context: &Context,
) -> Result<TerraformRun, DispatchError> {
    let mut desired = run_object(request, context);
    if let Some(account) = replacement(&desired.spec, request.stack, context).await? {
        account.clone_into(&mut desired.spec.service_account_name);
    }
    let bundle = bundle_of(
        &desired,
        request.stack,
        request.resolved,
        request.history,
        context,
    )
    .await?;
    let packed = bundle.pack();
    // A bundle that is too large has no digest: the run is created anyway and ends with that error.
    if let Ok(packed) = &packed {
        desired.spec.bundle_digest = packed.digest();
        if !context.executor.passes_bundles() {
            desired.spec.bundle_secrets = packed.count();
        }
    }
    let run = create(&desired, context).await?;
    let foreign = run.spec.terraform.uid != request.stack.uid().unwrap_or_default();
    let ended = run.status.as_ref().is_some_and(|status| status.phase.is_final());
    if foreign || ended {
        return Err(DispatchError::NameTaken(run.name_any()));
    }
    if run.spec.bundle_digest == desired.spec.bundle_digest {
        deliver(
            launch(&run, request.stack, request.history, context),
            packed,
            context,
        )
        .await?;
    }
    Ok(run)
}

async fn create(run: &TerraformRun, context: &Context) -> Result<TerraformRun, DispatchError> {
    let api: Api<TerraformRun> = context.api_of(run);
    let name = run.name_any();
    match api.create(&PostParams::default(), run).await {
        Ok(created) => {
            tracing::info!(
                run = name,
                action = run.spec.action.as_str(),
                trigger = run.spec.trigger.as_str(),
                "run created"
            );
            Ok(created)
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(api.get(&name).await?),
        Err(error) => Err(error.into()),
    }
}

/// Returns the complete bundle of a run.
async fn bundle_of(
    run: &TerraformRun,
    stack: &Terraform,
    resolved: &Resolved,
    history: &History,
    context: &Context,
) -> Result<Bundle, DispatchError> {
    let mut bundle = Bundle {
        last_apply: history.last_started_apply.clone(),
        last_rejected: history.last_rejected.clone(),
        tool: history.tool.clone(),
        secrets: if resolved.secrets.is_empty() {
            resolved.bundle.secrets.clone()
        } else {
            let reader = InputReader::new(stack, context)?;
            reader.sensitive_values(&resolved.secrets).await?
        },
        ..resolved.bundle.clone()
    };
    bundle.nothing_stored &= sequence(run) == 1;
    bundle.state_check.known.clone_from(&history.state);
    let checks = bundle.post_apply.checks_digest();
    let healthy = |health: &Health| health.passed && health.checks == checks;
    bundle.post_apply.health_due = !history.health.as_ref().is_some_and(healthy);
    if !is_drift_check(history, &run_fact(run, history.reads_artifact)) {
        // Ignored drift is only ignored in drift checks.
        bundle.ignored_drift.clear();
    }
    Ok(bundle)
}

/// Starts a run that was created but not started, if the same bundle can be built again or read from its Secrets.
pub(super) async fn restart(
    run: &TerraformRun,
    stack: &Terraform,
    resolved: &Resolved,
    history: &History,
    context: &Context,
) -> Result<(), DispatchError> {
    let bundle = bundle_of(run, stack, resolved, history, context).await?;
    let packed = bundle.pack();
    let is_same = |packed: &BundlePayload| packed.digest() == run.spec.bundle_digest;
    let launch = launch(run, stack, history, context);
    if packed.as_ref().is_ok_and(is_same) {
        return deliver(launch, packed, context).await;
    }
    if run.spec.bundle_secrets > 0
        && let Some(found) = stored_bundle(run, context).await?
    {
        return start_with_stored(launch, &found, context).await;
    }
    let why = EndReason::new(
        Reason::InputsChanged.as_str(),
        "its inputs changed before the run started",
    );
    end(run, Phase::Superseded, &why, context).await.map(drop)
}

/// Returns the Secrets of the bundle in order; `None` if one of them is missing.
async fn stored_bundle(run: &TerraformRun, context: &Context) -> Result<Option<Vec<Secret>>, kube::Error> {
    let (api, mut found): (Api<Secret>, _) = (context.api_of(run), Vec::new());
    for name in bundle::secret_names(run) {
        let Some(secret) = api.get_opt(&name).await? else {
            return Ok(None);
        };
        found.push(secret);
    }
    Ok(Some(found))
}

/// Starts the runner with the bundle, which is stored first if the run requires it. Both are idempotent. A run that
/// cannot be started is ended, so that it is reported, counted and retried like any failure.
async fn deliver(
    launch: Launch<'_>,
    packed: Result<BundlePayload, BundleError>,
    context: &Context,
) -> Result<(), DispatchError> {
    let run = launch.run;
    let packed = match packed {
        Ok(packed) => packed,
        Err(error) => {
            return fail(run, Reason::VarsGenerationFailed, &error.to_string(), context).await;
        }
    };
    if run.spec.bundle_secrets == 0 {
        let bundle = Some(packed);
        return start_runner(Launch { bundle, ..launch }, context).await;
    }
    let (secrets, mut already_exists): (Api<Secret>, _) = (context.api_of(run), false);
    for secret in packed.secrets(&run.name_any(), &run.uid().unwrap_or_default()) {
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => already_exists = true,
            Err(kube::Error::Api(status)) if is_refused(&status) => {
                let text = format!("cannot store the bundle of the run: {}", status.message);
                return fail(run, Reason::TfExecNewFailed, &text, context).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if !already_exists {
        return start_runner(launch, context).await;
    }
    // Stored by an earlier reconciliation, or by another client that knew the name.
    match stored_bundle(run, context).await? {
        Some(found) => start_with_stored(launch, &found, context).await,
        None => Ok(()), // deleted in between: the next reconciliation creates it
    }
}

/// Starts the runner with the stored bundle if it is the run's own.
async fn start_with_stored(
    launch: Launch<'_>,
    found: &[Secret],
    context: &Context,
) -> Result<(), DispatchError> {
    let run = launch.run;
    match bundle::verify(found, run) {
        Ok(()) => start_runner(launch, context).await,
        // The next reconciliation stores its own.
        Err(_)
            if found
                .iter()
                .any(|secret| is_of_deleted_namesake(&secret.metadata, run)) =>
        {
            Ok(())
        }
        Err(error) => {
            let text = format!("{error}; delete the Secret");
            fail(run, Reason::TfExecNewFailed, &text, context).await
        }
    }
}

/// Returns the launch of a run whose bundle is stored.
fn launch<'a>(
    run: &'a TerraformRun,
    stack: &'a Terraform,
    history: &History,
    context: &'a Context,
) -> Launch<'a> {
    Launch {
        run,
        spec: &stack.spec,
        account: account_of_run(run, stack, context),
        memory: history.memory,
        bundle: None,
    }
}

async fn start_runner(launch: Launch<'_>, context: &Context) -> Result<(), DispatchError> {
    let run = launch.run;
    match context.executor.start(launch).await {
        Ok(()) => Ok(()),
        Err(error @ ExecutorError::Api(_)) => Err(error.into()),
        Err(error) => fail(run, Reason::TfExecNewFailed, &error.to_string(), context).await,
    }
}

/// Ends a run that cannot start.
async fn fail(
    run: &TerraformRun,
    reason: Reason,
    message: &str,
    context: &Context,
) -> Result<(), DispatchError> {
    let why = EndReason::new(reason.as_str(), message);
    end(run, Phase::Failed, &why, context).await.map(drop)
}

/// Ends a run in place of its missing runner. If the runner claims the run or reports meanwhile, it wins. Returns whether the run was
/// ended here.
pub(super) async fn end(
    run: &TerraformRun,
    phase: Phase,
    why: &EndReason,
    context: &Context,
) -> Result<bool, DispatchError> {
    let (reason, message) = (why.reason, why.message.as_str());
    let mut body = json!({
        "metadata": { "resourceVersion": run.resource_version() },
        "status": { "phase": phase.as_str(), "reason": reason, "message": message, "finishedAt": context.clock.now() },
    });
    if let Some(peak) = why.peak_memory(run) {
        body["status"]["peakMemoryBytes"] = json!(peak);
    }
    let (api, patch): (Api<TerraformRun>, _) = (context.api_of(run), Patch::Merge(body));
    match api
        .patch_status(&run.name_any(), &PatchParams::default(), &patch)
        .await
    {
        Ok(_) => {
            tracing::warn!(
                run = run.name_any(),
                reason,
                message,
                "run ended by the controller"
            );
            Ok(true)
        }
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}
