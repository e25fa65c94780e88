//! Carries the decision out: makes the run, its bundle, starts it, and looks after the one in progress.

use super::{
    Context,
    history::{fact, is_drift_check},
    resolve::{self, Resolved},
};
use crate::{
    decide::{Facts, Health, History, Inputs, NewRun, Progress, RunAction, Upkeep, upkeep},
    executor::{ExecutorError, Liveness, RunRef},
};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use sluice_api::{
    annotation::{BREAK_THE_GLASS, REQUESTED_AT, TERRAFORM_LABEL},
    interval::Interval,
    run::{Phase, PlanSource, RunSource, TerraformIdentity, TerraformRun, TerraformRunSpec},
    terraform::{Terraform, label_value, run_name},
};
use sluice_tf_runner::bundle::Bundle;
use std::collections::BTreeMap;
use tokio::time::Instant;

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

/// What a new run is made of.
pub(super) struct Order<'a> {
    pub(super) stack: &'a Terraform,
    pub(super) new: &'a NewRun,
    pub(super) history: &'a History,
    pub(super) resolved: &'a Resolved,
    pub(super) request: Option<&'a str>,
}

/// Makes the run, then its bundle, then starts it. A run of that name that is there already was made by another controller
/// a moment ago: it is adopted, and started from here only if it was made of the same inputs.
pub(super) async fn start(order: &Order<'_>, context: &Context) -> Result<(), DispatchError> {
    let run = create(order, context).await?;
    let foreign = run.spec.terraform.uid != order.stack.uid().unwrap_or_default();
    let ended = run.status.as_ref().is_some_and(|status| status.phase.is_final());
    if foreign || ended {
        return Err(DispatchError::NameTaken(run.name_any()));
    }
    if run.spec.inputs_digest == order.resolved.inputs {
        launch(&run, order.resolved, order.history, context).await?;
    }
    Ok(())
}

/// The run in progress: started if nobody did, declared lost if its process is gone, or was not heard of for long.
pub(super) async fn follow(
    run: &TerraformRun,
    resolved: Option<&Resolved>,
    facts: &Facts,
    context: &Context,
) -> Result<(), DispatchError> {
    let reference = reference(run);
    let seen = context.executor.liveness(reference.clone(), site(run)).await?;
    if seen == Liveness::Alive {
        return Ok(());
    }
    // Its last report may be newer than what was read before the process was looked at; and where another controller has
    // started it meanwhile, a claim is read here whose process was not there a moment ago. So: read, then look again.
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &reference.namespace);
    let Some(fresh) = api.get_opt(&reference.name).await? else {
        return Ok(());
    };
    let status = fresh.status.clone().unwrap_or_default();
    let step = upkeep(Progress {
        alive: lives(&fresh, context).await?,
        ended: status.phase.is_final(),
        claimed: status.claim.is_some(),
        made_of: &fresh.spec.inputs_digest,
        now: resolved.map(|resolved| resolved.inputs.as_str()),
    });
    let (phase, reason, message) = match (step, resolved) {
        (Upkeep::Launch, Some(resolved)) => return launch(&fresh, resolved, &facts.history, context).await,
        (Upkeep::Leave | Upkeep::Launch, _) => return Ok(()),
        (Upkeep::Lose, _) => (
            Phase::Lost,
            "RunLost",
            "the run's process is gone without a report, or was not heard of for too long".to_owned(),
        ),
        (Upkeep::Outdated, _) => (
            Phase::Superseded,
            "InputsChanged",
            "its inputs changed before it began".to_owned(),
        ),
        (Upkeep::Unknown, _) => {
            let why = withheld(facts);
            (Phase::Superseded, why.reason, why.message)
        }
    };
    end(&api, &fresh, phase, reason, &message, context).await
}

/// Why a run that nobody has begun ends without its inputs having been looked at, or had.
#[derive(Debug, PartialEq, Eq)]
struct Withheld {
    reason: &'static str,
    message: String,
}

fn withheld(facts: &Facts) -> Withheld {
    let because = |reason, message: &str| Withheld {
        reason,
        message: message.to_owned(),
    };
    if facts.suspended {
        return because("Suspended", "the object was suspended before it began");
    }
    if let Some(refused) = &facts.refused {
        let text = format!("the spec was changed before it began to what cannot be carried out: {refused}");
        return because("InvalidToolVersion", &text);
    }
    match &facts.inputs {
        Inputs::Failed { message, .. } => {
            let text = format!("its inputs could no longer be had before it began: {message}");
            because("InputsUnknown", &text)
        }
        _ if facts.deleting => because("Deleted", "the object was deleted before it began"),
        Inputs::Unresolved | Inputs::Known(_) => {
            because("InputsUnknown", "its source was gone before it began")
        }
    }
}

/// Where the locks of the runner are seen; empty before it claims the run.
fn site(run: &TerraformRun) -> String {
    let claim = run.status.as_ref().and_then(|status| status.claim.as_ref());
    claim.map(|claim| claim.site.clone()).unwrap_or_default()
}

/// Whether the runner lives, as far as can be told from here.
async fn lives(run: &TerraformRun, context: &Context) -> Result<bool, DispatchError> {
    let seen = context.executor.liveness(reference(run), site(run)).await?;
    Ok(match seen {
        Liveness::Alive => true,
        Liveness::Gone => false,
        Liveness::Elsewhere => {
            let beat = run
                .status
                .as_ref()
                .and_then(|status| status.heartbeat_at.as_ref());
            let beat = beat.map(|time| time.0);
            context.pulses.lives(&reference(run), beat, Instant::now())
        }
    })
}

async fn create(order: &Order<'_>, context: &Context) -> Result<TerraformRun, DispatchError> {
    let namespace = order.stack.namespace().unwrap_or_default();
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &namespace);
    let run = run_object(order, context);
    let name = run.name_any();
    match api.create(&PostParams::default(), &run).await {
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
            id: id.clone(),
            run: run.clone(),
        }),
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

/// Stores the bundle and starts the runner; both are harmless when done already. What cannot be carried out ends the run:
/// so it is told, counted and tried again like any failure.
async fn launch(
    run: &TerraformRun,
    resolved: &Resolved,
    history: &History,
    context: &Context,
) -> Result<(), DispatchError> {
    let namespace = run.namespace().unwrap_or_default();
    let mut bundle = Bundle {
        last_apply: history.last_started_apply.clone(),
        tool: history.tool.clone(),
        secrets: if resolved.secrets.is_empty() {
            resolved.bundle.secrets.clone()
        } else {
            resolve::hidden(&resolved.secrets, context).await?
        },
        ..resolved.bundle.clone()
    };
    let checks = bundle.aftermath.checks_digest();
    let healthy = |health: &Health| health.passed && health.checks == checks;
    bundle.aftermath.health_due = !history.health.as_ref().is_some_and(healthy);
    if !is_drift_check(history, &fact(run)) {
        // What is ignored as drift is not ignored where a change is planned.
        bundle.ignored_drift.clear();
    }
    let runs: Api<TerraformRun> = Api::namespaced(context.client.clone(), &namespace);
    let secret = match bundle.to_secret(&run.name_any(), &run.uid().unwrap_or_default()) {
        Ok(secret) => secret,
        Err(error) => {
            let text = error.to_string();
            return end(&runs, run, Phase::Failed, "VarsGenerationFailed", &text, context).await;
        }
    };
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(context.client.clone(), &namespace);
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(error.into()),
    }
    match context.executor.start(reference(run)).await {
        Ok(()) => Ok(()),
        Err(error) => {
            let text = error.to_string();
            end(&runs, run, Phase::Failed, "TFExecNewFailed", &text, context).await
        }
    }
}

/// Ends a run in the name of its runner, which is not there; a runner that reports meanwhile wins.
async fn end(
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

fn reference(run: &TerraformRun) -> RunRef {
    RunRef {
        namespace: run.namespace().unwrap_or_default(),
        name: run.name_any(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::facts_of_a_new_stack;

    #[test]
    fn a_run_that_never_began_says_what_kept_it_from_beginning() {
        let why = |edit: &dyn Fn(&mut Facts)| {
            let mut facts = facts_of_a_new_stack();
            facts.inputs = Inputs::Unresolved;
            edit(&mut facts);
            let why = withheld(&facts);
            format!("{}: {}", why.reason, why.message)
        };
        let failed = |f: &mut Facts| {
            f.inputs = Inputs::Failed {
                reason: "VarsGenerationFailed",
                message: "cannot read Secret login".into(),
            };
        };
        insta::assert_snapshot!([
            why(&|f| f.suspended = true),
            why(&|f| f.refused = Some("spec.tool.version: no version".into())),
            why(&failed),
            why(&|f| f.deleting = true),
            why(&|f| { f.deleting = true; failed(f); }),
            why(&|_| ()),
        ].join("\n"), @"
        Suspended: the object was suspended before it began
        InvalidToolVersion: the spec was changed before it began to what cannot be carried out: spec.tool.version: no version
        InputsUnknown: its inputs could no longer be had before it began: cannot read Secret login
        Deleted: the object was deleted before it began
        InputsUnknown: its inputs could no longer be had before it began: cannot read Secret login
        InputsUnknown: its source was gone before it began
        ");
    }
}
