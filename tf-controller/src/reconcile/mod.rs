//! One pass over one stack: observe -> resolve -> decide -> dispatch -> report. This file alone knows the order.

mod carry_out;
mod cleanup;
mod dependencies;
mod dispatch;
mod follow;
mod following;
mod gather;
mod history;
mod last_resort;
#[cfg(test)]
mod model;
mod observe;
mod pulse;
mod release;
mod report;
mod resolve;
mod takeover;

pub(crate) use cleanup::{Spent, forget_stack};
pub(crate) use dependencies::{in_order, neighbours, version};
pub(crate) use following::Following;
use following::{Followed, Look};
pub(crate) use pulse::Pulses;
pub use resolve::Artifacts;

use crate::{
    decide::{Facts, Inputs, Phase, Refused, Step, decide},
    executor::Executor,
    inputs,
    runs::Owners,
    schedule::Places,
};
use carry_out::carry_out;
use gather::{approval_of, gather, glass};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client, Resource, ResourceExt};
use observe::{Observed, observe};
use report::{Report, events, status};
use resolve::Resolved;
use sluice_api::{
    annotation::REQUESTED_AT,
    condition::{TerraformCondition, Vocabulary},
    interval::Interval,
    reference::CrossNamespace,
    run::TerraformRun,
    terraform::Terraform,
};
use sluice_runtime::{
    clock::Clock,
    event::Recorder,
    schedule::ObjectKey,
    status::{Applied, WriteError},
    watch::{Next, Objects, Reconciler},
};
use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What passes need of the world.
pub struct Context {
    /// The API.
    pub client: Client,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where runs are carried out.
    pub executor: Arc<dyn Executor>,
    /// Where events go.
    pub recorder: Recorder,
    /// Directory of the installed versions of the CLI.
    pub tools: Option<PathBuf>,
    /// Whose bundles are known to be gone.
    pub(crate) spent: cleanup::Spent,
    /// What is heard of runs elsewhere.
    pub(crate) pulses: Pulses,
    /// The runs that are followed.
    pub(crate) following: Following,
    /// The runs as their watch tells of them.
    pub(crate) runs: Arc<Owners>,
    /// Unpacked artifacts.
    pub artifacts: Artifacts,
    /// The places for runs.
    pub places: Places,
    /// Since when this controller decides.
    pub since: Timestamp,
    /// Whether references may leave their namespace.
    pub cross_namespace: CrossNamespace,
    /// Longest session of a person in a stack's directory; `None`: sessions are not allowed.
    pub glass: Option<Interval>,
    /// Most bytes of files that are kept of an apply for a destroy without its source.
    pub destroy_files_limit: u64,
    /// Whether stacks that name a ServiceAccount of their own are carried out without it.
    pub ignore_account: bool,
    /// Bound on a run whose stack sets none.
    pub run_deadline: Interval,
    /// The Secret with the keys that stored plans are sealed with.
    pub plan_encryption: Option<inputs::SecretPlace>,
    /// Where the CLI runs, for the generated backend.
    pub place: inputs::Place,
    /// The stacks as last seen, for what reaches beyond one of them.
    pub stacks: Objects<Terraform>,
    /// The only namespace that is looked at; `None`: all of them.
    pub watched: Option<String>,
    /// The backend of stacks that say nothing of one.
    pub default_backend: inputs::DefaultBackend,
}

/// Reconciles Terraform objects.
pub struct Stacks {
    context: Arc<Context>,
    /// The stacks that had a pass here: of no other one anything is removed.
    seen: Mutex<HashSet<ObjectKey>>,
}

/// Why a pass could not report. What it found wrong with the stack stands in its status.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Reading the stack, its runs or its source failed, or deleting what its last run was given.
    #[error("cannot read {stack}, its runs or its source, or delete what its last run was given: {source}")]
    Observe {
        /// The stack.
        stack: String,
        /// What the API said.
        source: Box<kube::Error>,
    },
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Starting or looking after a run failed.
    #[error("cannot carry out the step of {stack}: {text}")]
    Dispatch {
        /// The stack.
        stack: String,
        /// What failed.
        text: String,
    },
}

impl Stacks {
    /// A reconciler in this context.
    #[must_use]
    pub fn new(context: Arc<Context>) -> Self {
        let seen = Mutex::default();
        Self { context, seen }
    }

    fn seen(&self) -> MutexGuard<'_, HashSet<ObjectKey>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconciler<Terraform> for Stacks {
    type Error = PassError;

    async fn reconcile(&self, stack: Arc<Terraform>) -> Result<Next, PassError> {
        self.seen().insert(ObjectKey::of(&*stack));
        Box::pin(pass(&stack, &self.context)).await
    }

    fn gone(&self, key: &ObjectKey) {
        if self.seen().remove(key) {
            cleanup::forget_stack(&self.context, key.clone());
        }
    }
}

async fn pass(stack: &Terraform, context: &Context) -> Result<Next, PassError> {
    let api: Api<Terraform> = Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    match following::look(stack, context).await {
        Ok(Look::Same) => return Ok(Next::After(carry_out::LOOK)),
        Ok(Look::News(news)) => {
            let Followed {
                versions,
                stack,
                runs,
                ..
            } = *news;
            let observed = Observed::at_work(runs);
            return Box::pin(decide_and_report(&api, (&stack, versions), observed, context)).await;
        }
        // A look that fails tells nothing: then everything is read.
        Ok(Look::Unknown) | Err(_) => {}
    }
    let mut versions = vec![stack.resource_version()];
    let Some(stack) = observe::newest(&api, stack, &mut versions).await? else {
        return Ok(Next::OnChange);
    };
    let observed = observe(&stack, context)
        .await
        .map_err(|source| unread(&stack, source))?;
    Box::pin(decide_and_report(&api, (&stack, versions), observed, context)).await
}

/// Decides on what was seen, does what was decided, and tells it.
async fn decide_and_report(
    api: &Api<Terraform>,
    (stack, mut versions): (&Terraform, Vec<Option<String>>),
    observed: Observed,
    context: &Context,
) -> Result<Next, PassError> {
    let mut facts = gather(stack, &observed, context.clock.now());
    facts.refused = facts.refused.or_else(|| refused_account(stack, context));
    facts.phase = Some(Phase::of(&stack.uid().unwrap_or_default(), context.since));
    let resolved = resolve_inputs(stack, &observed, &mut facts, context).await;
    takeover::take_over(stack, &observed.runs, &mut facts);
    facts.approval = approval_of(stack, &observed.runs, &facts);
    facts.policy.glass = glass(stack, &observed, context.glass.is_some());
    let decided = decided(stack, &mut facts, context).await;
    if decided.is_err() && facts.history.active.is_none() {
        // Who fails at each pass must not keep the place of a run that has ended.
        context.places.give_back(&ObjectKey::of(stack));
    }
    let mut step = decided?;
    let dropped = cleanup::drop_bundle(stack, &observed.runs, context).await;
    dropped.map_err(|source| unread(stack, source))?;
    let done = carry_out(stack, &observed, &facts, resolved.as_ref(), &mut step, context).await?;
    if step == Step::Release {
        context.spent.forget(stack);
        return release::release(api, stack, &observed.runs, context).await;
    }
    let written = write(api, stack, &observed, &facts, &step, context).await?;
    let run = followed(&observed, &facts)
        .or(done.started.as_ref())
        .map(ResourceExt::name_any);
    match (run, written) {
        (Some(run), Some(stack)) => {
            versions.push(stack.resource_version());
            let mut runs = observed.runs;
            runs.extend(done.started);
            context.following.note(Followed {
                versions,
                stack,
                runs,
                run,
            });
        }
        _ => context.following.forget(stack),
    }
    Ok(done.next)
}

/// The run in progress, if a runner has claimed it: then nothing is to be decided until it says something new.
fn followed<'a>(observed: &'a Observed, facts: &Facts) -> Option<&'a TerraformRun> {
    let active = facts.history.active.as_ref()?;
    observe::claimed(&observed.runs).find(|run| run.name_any() == active.name)
}

/// An account that the stack's runs would not have. One that is deleted without a run may go.
fn refused_account(stack: &Terraform, context: &Context) -> Option<Refused> {
    let runs = stack.metadata.deletion_timestamp.is_none() || stack.spec.destroys_on_deletion();
    inputs::foreign_account(&stack.spec).filter(|_| runs && !context.ignore_account)
}

/// Decides, with a look at the stacks around this one where they can matter.
async fn decided(stack: &Terraform, facts: &mut Facts, context: &Context) -> Result<Step, PassError> {
    let idle = facts.suspended || facts.history.active.is_some();
    if !idle && facts.refused.is_none() {
        facts.dependencies = if facts.deleting {
            dependencies::circle(stack, context)
        } else {
            dependencies::look(stack, &facts.source, context).await?
        };
    }
    let step = decide(facts);
    let destroys = matches!(&step, Step::Start(run) if run.destroy && run.action.applies());
    if facts.deleting && !idle || destroys {
        facts.dependants = dependencies::dependants(stack, context).await?;
        return Ok(decide(facts));
    }
    Ok(step)
}

fn unread(stack: &Terraform, source: kube::Error) -> PassError {
    PassError::Observe {
        stack: stack.name_any(),
        source: Box::new(source),
    }
}

/// Resolves the inputs where a decision can depend on them, and puts them into the facts.
async fn resolve_inputs(
    stack: &Terraform,
    observed: &Observed,
    facts: &mut Facts,
    context: &Context,
) -> Option<Resolved> {
    let idle =
        facts.suspended || facts.refused.is_some() || facts.deleting && !facts.policy.destroy_on_deletion;
    if idle || followed(observed, facts).is_some() {
        return None;
    }
    let destroys = facts.deleting && facts.policy.destroy_on_deletion;
    if let Some(message) = &observed.unreadable {
        facts.inputs = Inputs::Failed {
            reason: "RunUnreadable",
            message: message.clone(),
        };
        return None;
    }
    let Some(artifact) = &observed.artifact else {
        return if destroys {
            last_resort::resolve(stack, observed, facts, context).await
        } else {
            None
        };
    };
    match resolve::resolve(stack, artifact, context).await {
        Ok(resolved) => {
            let whole = facts.history.reads_artifact;
            facts.inputs = Inputs::Known(history::counted(&resolved.inputs, &artifact.digest, whole));
            return Some(resolved);
        }
        Err(error) => {
            facts.inputs = Inputs::Failed {
                reason: error.public_reason(),
                message: error.to_string(),
            };
        }
    }
    if destroys {
        return last_resort::resolve(stack, observed, facts, context).await;
    }
    None
}

/// Writes the status, then tells the events of what was new in it; gives the stack with it, unless it is gone.
async fn write(
    api: &Api<Terraform>,
    stack: &Terraform,
    observed: &Observed,
    facts: &Facts,
    step: &Step,
    context: &Context,
) -> Result<Option<Terraform>, PassError> {
    let token = stack.annotations().get(REQUESTED_AT).map(String::as_str);
    // A request is handled when the run that took it up has ended, or at once where no run follows from it.
    let handled = token.filter(|_| matches!(step, Step::Rest(_)));
    let compute = |stack: &Terraform| {
        status(&Report {
            stack,
            facts,
            runs: &observed.runs,
            step,
            handled,
        })
    };
    let owned: Vec<_> = TerraformCondition::OWNED
        .iter()
        .map(|kind| kind.as_str())
        .collect();
    let written = sluice_runtime::status::apply(api, stack, &owned, compute).await?;
    if let Applied::Written(_) = &written {
        let report = Report {
            stack,
            facts,
            runs: &observed.runs,
            step,
            handled,
        };
        for event in events(&report, &compute(stack)) {
            context.recorder.record(stack, with_annotations(stack, event));
        }
    }
    cleanup::prune(stack, &observed.runs, context).await;
    Ok(written.object())
}

fn with_annotations(
    stack: &Terraform,
    mut event: sluice_runtime::event::Event,
) -> sluice_runtime::event::Event {
    for (key, value) in sluice_api::annotation::for_events(stack.annotations()) {
        event = event.with(key, value);
    }
    event
}

/// The owner reference to a stack; `None` for an object that the API has not stored.
pub(crate) fn owner(stack: &Terraform) -> Option<OwnerReference> {
    stack.controller_owner_ref(&())
}

/// The key of the stack that a run belongs to.
#[must_use]
pub fn stack_of(run: &TerraformRun) -> ObjectKey {
    ObjectKey {
        namespace: run.namespace().unwrap_or_default(),
        name: run.spec.terraform.name.clone(),
    }
}
