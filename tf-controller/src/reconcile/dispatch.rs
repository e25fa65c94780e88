//! Makes the run that was decided on, and starts it with its bundle.

use super::{
    Context,
    history::{fact, is_drift_check, sequence},
    resolve::{self, Resolved},
};
use crate::{
    decide::{Health, History, NewRun, RunAction},
    executor::{ExecutorError, RunRef},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    core::Status,
};
use serde_json::json;
use sluice_api::{
    annotation::{BREAK_THE_GLASS, REQUESTED_AT, TERRAFORM_LABEL},
    interval::Interval,
    run::{Phase, PlanSource, RunSource, TerraformIdentity, TerraformRun, TerraformRunSpec},
    terraform::{Terraform, label_value, run_name},
};
use sluice_tf_runner::bundle::{self, Bundle, BundleError, Packed};
use std::collections::BTreeMap;

/// Why a run could not be started or looked after. All are tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum DispatchError {
    /// The API refused or did not answer.
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
    /// Whether a run lives cannot be told.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// The name of the new run is taken by one that is not this stack's, or has ended.
    #[error("run {0} is there already and is another one; delete it")]
    NameTaken(String),
}

impl DispatchError {
    /// What the user is told where the API refuses for good: a quota, a namespace that is going, an admission rule. The rest
    /// is nobody's business, and over soon.
    pub(super) fn refusal(&self) -> Option<String> {
        match self {
            Self::Api(kube::Error::Api(status)) if is_refused(status) => {
                Some(format!("cannot make a run: {}", status.message))
            }
            _ => None,
        }
    }
}

/// Whether the same request would be refused again.
const fn is_refused(status: &Status) -> bool {
    matches!(status.code, 400 | 403 | 413 | 422)
}

/// What a new run is made of.
pub(super) struct Order<'a> {
    pub(super) stack: &'a Terraform,
    pub(super) new: &'a NewRun,
    pub(super) history: &'a History,
    pub(super) resolved: &'a Resolved,
    pub(super) runs: &'a [TerraformRun],
    pub(super) request: Option<&'a str>,
}

/// Makes the run, stores its bundle where the executor does not hand it over, and starts it. A run of that name that is there
/// already was made by another controller a moment ago: it is adopted, and started from here only if it was made of the same
/// bundle. Returns the run.
pub(super) async fn start(order: &Order<'_>, context: &Context) -> Result<TerraformRun, DispatchError> {
    let mut wanted = run_object(order, context);
    let bundle = bundle_of(&wanted, order.resolved, order.history, context).await?;
    let packed = bundle.pack();
    // One that is too large has none: the run is made all the same, and ends with why.
    if let Ok(packed) = &packed {
        wanted.spec.bundle_digest = packed.digest();
        if !context.executor.hands_over_bundles() {
            wanted.spec.bundle_secrets = packed.count();
        }
    }
    let run = create(&wanted, context).await?;
    let foreign = run.spec.terraform.uid != order.stack.uid().unwrap_or_default();
    let ended = run.status.as_ref().is_some_and(|status| status.phase.is_final());
    if foreign || ended {
        return Err(DispatchError::NameTaken(run.name_any()));
    }
    if run.spec.bundle_digest == wanted.spec.bundle_digest {
        give(&run, packed, context).await?;
    }
    Ok(run)
}

async fn create(run: &TerraformRun, context: &Context) -> Result<TerraformRun, DispatchError> {
    let namespace = run.namespace().unwrap_or_default();
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &namespace);
    let name = run.name_any();
    match api.create(&PostParams::default(), run).await {
        Ok(made) => {
            tracing::info!(
                run = name,
                action = run.spec.action.as_str(),
                trigger = run.spec.trigger.as_str(),
                "run made"
            );
            Ok(made)
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(api.get(&name).await?),
        Err(error) => Err(error.into()),
    }
}

fn run_object(order: &Order<'_>, context: &Context) -> TerraformRun {
    let (stack, new) = (order.stack, order.new);
    let uid = stack.uid().unwrap_or_default();
    let name = run_name(&stack.name_any(), &uid, order.history.next_sequence);
    let source = &stack.spec.source_ref;
    let namespace = stack.namespace().unwrap_or_default();
    let artifact = &order.resolved.artifact;
    let spec = TerraformRunSpec {
        terraform: TerraformIdentity {
            name: stack.name_any(),
            uid,
            generation: stack.metadata.generation.unwrap_or(0),
        },
        action: new.action,
        destroy: new.destroy,
        trigger: new.trigger,
        source: RunSource {
            kind: source.kind.as_str().to_owned(),
            namespace: if source.namespace.is_empty() {
                namespace.clone()
            } else {
                source.namespace.clone()
            },
            name: source.name.clone(),
            revision: artifact.revision.clone(),
            digest: artifact.digest.clone(),
            url: artifact.url.clone(),
            size: artifact.size,
        },
        inputs_digest: order.resolved.inputs.clone(),
        plan: new.plan.as_ref().map(|(id, run)| PlanSource {
            digest: plan_digest(order.runs, run),
            id: id.clone(),
            run: run.clone(),
        }),
        bundle_digest: String::new(),
        bundle_secrets: 0,
        lock_identifier: match new.action {
            RunAction::Unlock => order.history.lock.clone().unwrap_or_default(),
            _ => String::new(),
        },
        approved_by: new.approved_by.clone().unwrap_or_default(),
        attempt: i32::try_from(new.attempt).unwrap_or(i32::MAX),
        deadline: match new.action {
            RunAction::BreakTheGlass => context.glass.clone().unwrap_or_else(|| deadline(stack, context)),
            _ => deadline(stack, context),
        },
    };
    let mut run = TerraformRun::new(&name, spec);
    run.metadata = ObjectMeta {
        name: Some(name),
        namespace: Some(namespace),
        labels: Some([(TERRAFORM_LABEL.to_owned(), label_value(&stack.name_any()))].into()),
        annotations: annotations(order),
        owner_references: super::owner(stack).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    run
}

/// What the run that made a plan recorded of its Secrets; nothing of one that an older version carried out.
fn plan_digest(runs: &[TerraformRun], name: &str) -> String {
    let run = runs.iter().find(|run| run.metadata.name.as_deref() == Some(name));
    let status = run.and_then(|run| run.status.as_ref());
    status
        .map(|status| status.plan_digest.clone())
        .unwrap_or_default()
}

/// The requests that the run takes up.
fn annotations(order: &Order<'_>) -> Option<BTreeMap<String, String>> {
    let request = order.request.map(|token| (REQUESTED_AT, token.to_owned()));
    let token = order.stack.annotations().get(BREAK_THE_GLASS);
    let session = token
        .filter(|_| order.new.action == RunAction::BreakTheGlass)
        .map(|token| (BREAK_THE_GLASS, token.clone()));
    let all: BTreeMap<_, _> = request
        .into_iter()
        .chain(session)
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    (!all.is_empty()).then_some(all)
}

fn deadline(stack: &Terraform, context: &Context) -> Interval {
    stack
        .spec
        .run_deadline
        .clone()
        .unwrap_or_else(|| context.run_deadline.clone())
}

/// What the run is given, complete.
async fn bundle_of(
    run: &TerraformRun,
    resolved: &Resolved,
    history: &History,
    context: &Context,
) -> Result<Bundle, DispatchError> {
    let mut bundle = Bundle {
        last_apply: history.last_started_apply.clone(),
        tool: history.tool.clone(),
        secrets: if resolved.secrets.is_empty() {
            resolved.bundle.secrets.clone()
        } else {
            resolve::hidden(&resolved.secrets, &context.client).await?
        },
        ..resolved.bundle.clone()
    };
    bundle.nothing_stored &= sequence(run) == 1;
    let checks = bundle.aftermath.checks_digest();
    let healthy = |health: &Health| health.passed && health.checks == checks;
    bundle.aftermath.health_due = !history.health.as_ref().is_some_and(healthy);
    if !is_drift_check(history, &fact(run, history.reads_artifact)) {
        // What is ignored as drift is not ignored where a change is planned.
        bundle.ignored_drift.clear();
    }
    Ok(bundle)
}

/// Starts a run that was made and not started, if its bundle can still be had: the same is made again, or the one in Secrets is
/// read.
pub(super) async fn launch(
    run: &TerraformRun,
    resolved: &Resolved,
    history: &History,
    context: &Context,
) -> Result<(), DispatchError> {
    let bundle = bundle_of(run, resolved, history, context).await?;
    let packed = bundle.pack();
    let is_same = |packed: &Packed| packed.digest() == run.spec.bundle_digest;
    if packed.as_ref().is_ok_and(is_same) {
        return give(run, packed, context).await;
    }
    if run.spec.bundle_secrets > 0
        && let Some(found) = stored(run, context).await?
    {
        return begin_with(run, &found, context).await;
    }
    let text = "what it was to be given changed before it began";
    end(
        &runs(run, context),
        run,
        Phase::Superseded,
        "InputsChanged",
        text,
        context,
    )
    .await
}

fn runs(run: &TerraformRun, context: &Context) -> Api<TerraformRun> {
    Api::namespaced(context.client.clone(), &run.namespace().unwrap_or_default())
}

fn secrets(run: &TerraformRun, context: &Context) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &run.namespace().unwrap_or_default())
}

/// The Secrets of the bundle, in their order; none where one of them is not there.
async fn stored(run: &TerraformRun, context: &Context) -> Result<Option<Vec<Secret>>, kube::Error> {
    let (api, mut found) = (secrets(run, context), Vec::new());
    for name in bundle::secret_names(run) {
        let Some(secret) = api.get_opt(&name).await? else {
            return Ok(None);
        };
        found.push(secret);
    }
    Ok(Some(found))
}

/// Starts the runner with the bundle, which is stored first where the run says so. Both are harmless when done already. What
/// cannot be carried out ends the run: so it is reported, counted and tried again like any failure.
async fn give(
    run: &TerraformRun,
    packed: Result<Packed, BundleError>,
    context: &Context,
) -> Result<(), DispatchError> {
    let packed = match packed {
        Ok(packed) => packed,
        Err(error) => return fail(run, "VarsGenerationFailed", &error.to_string(), context).await,
    };
    if run.spec.bundle_secrets == 0 {
        return begin(run, Some(packed), context).await;
    }
    let (secrets, mut is_there) = (secrets(run, context), false);
    for secret in packed.secrets(&run.name_any(), &run.uid().unwrap_or_default()) {
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => is_there = true,
            Err(kube::Error::Api(status)) if is_refused(&status) => {
                let text = format!("cannot store what the run is given: {}", status.message);
                return fail(run, "TFExecNewFailed", &text, context).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if !is_there {
        return begin(run, None, context).await;
    }
    // Ours of before, or somebody's who knew the name.
    match stored(run, context).await? {
        Some(found) => begin_with(run, &found, context).await,
        None => Ok(()), // deleted in between: the next pass makes it
    }
}

/// Starts the runner with the bundle that is there, if it is the run's own.
async fn begin_with(run: &TerraformRun, found: &[Secret], context: &Context) -> Result<(), DispatchError> {
    match bundle::prove(found, run) {
        Ok(()) => begin(run, None, context).await,
        Err(error) => {
            let text = format!("{error}; delete the Secret");
            fail(run, "TFExecNewFailed", &text, context).await
        }
    }
}

async fn begin(run: &TerraformRun, bundle: Option<Packed>, context: &Context) -> Result<(), DispatchError> {
    match context.executor.start(reference(run), bundle).await {
        Ok(()) => Ok(()),
        Err(error) => fail(run, "TFExecNewFailed", &error.to_string(), context).await,
    }
}

/// Ends a run that cannot begin.
async fn fail(
    run: &TerraformRun,
    reason: &str,
    message: &str,
    context: &Context,
) -> Result<(), DispatchError> {
    let api = runs(run, context);
    end(&api, run, Phase::Failed, reason, message, context).await
}

/// Ends a run in the name of its runner, which is not there; a runner that reports meanwhile wins.
pub(super) async fn end(
    api: &Api<TerraformRun>,
    run: &TerraformRun,
    phase: Phase,
    reason: &str,
    message: &str,
    context: &Context,
) -> Result<(), DispatchError> {
    let body = json!({
        "metadata": { "resourceVersion": run.resource_version() },
        "status": { "phase": phase.as_str(), "reason": reason, "message": message, "finishedAt": context.clock.now() },
    });
    match api
        .patch_status(&run.name_any(), &PatchParams::default(), &Patch::Merge(body))
        .await
    {
        Ok(_) => {
            tracing::warn!(
                run = run.name_any(),
                reason,
                message,
                "run ended by the controller"
            );
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn reference(run: &TerraformRun) -> RunRef {
    RunRef {
        namespace: run.namespace().unwrap_or_default(),
        name: run.name_any(),
    }
}
