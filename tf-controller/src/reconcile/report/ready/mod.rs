//! `Ready`, `Reconciling` and `Stalled`: the step and the newest run as conditions.

mod failed_run;
mod pending_plan;

use failed_run::{failed, refused_apply};
use jiff::Timestamp;
use kube::ResourceExt as _;
pub(super) use pending_plan::effect_summary;
use pending_plan::{awaiting_approval, drifted, rejected_plan, unapplied_plan};
use sluice_api::condition::{ConditionStatus, ConditionUpdate, TerraformCondition as Kind};
use sluice_api::run::{Action, Phase, TerraformRun, TerraformRunStatus, Trigger};
use sluice_api::terraform::{Reason, Terraform};

use super::{DEPENDENCY_NOT_READY, Report, has_applied, message, phase, succeeded};
use crate::decide::{Dependencies, Idle, Inputs, SourceFact, Step};
use crate::executor::waits_for_change;
use crate::reconcile::blocked_destroy;

/// The three conditions of kstatus.
pub(super) struct ReadyConditions {
    /// `Ready`; always set.
    pub(super) ready: ConditionUpdate<Kind>,
    /// `Reconciling`, while work is in progress or will be retried.
    pub(super) reconciling: Option<ConditionUpdate<Kind>>,
    /// `Stalled`, while only a change of the spec helps.
    pub(super) stalled: Option<ConditionUpdate<Kind>>,
}

const PROGRESSING: &str = "Progressing";
/// Starts with upstream's text.
const BREAK_GLASS_DENIED: &str = "Breaking the glass is not allowed: the controller was started without \
    --allow-break-the-glass; set breakTheGlass: false, or remove the annotation, to resume";
const RETRYING: &str = "ProgressingWithRetry";
const RECONCILING: &str = "Reconciliation in progress";

fn ready(
    status: ConditionStatus,
    reason: impl Into<String>,
    message: impl Into<String>,
) -> ConditionUpdate<Kind> {
    ConditionUpdate::new(Kind::Ready, status, reason, message)
}

/// `Ready=Unknown`: work is in progress.
fn in_progress(message: impl Into<String>) -> ConditionUpdate<Kind> {
    ready(ConditionStatus::Unknown, PROGRESSING, message)
}

/// `Ready=False`.
fn not_ready(reason: impl Into<String>, message: impl Into<String>) -> ConditionUpdate<Kind> {
    ready(ConditionStatus::False, reason, message)
}

fn settled(ready: ConditionUpdate<Kind>) -> ReadyConditions {
    ReadyConditions {
        ready,
        reconciling: None,
        stalled: None,
    }
}

/// `Reconciling` with this reason and message.
fn reconciling(ready: ConditionUpdate<Kind>, reason: &str, message: impl Into<String>) -> ReadyConditions {
    let reconciling = ConditionUpdate::new(Kind::Reconciling, ConditionStatus::True, reason, message);
    ReadyConditions {
        ready,
        reconciling: Some(reconciling),
        stalled: None,
    }
}

/// In progress: `Reconciling` is set.
fn progressing(ready: ConditionUpdate<Kind>) -> ReadyConditions {
    reconciling(ready, PROGRESSING, "Fulfilling prerequisites")
}

/// Failed, to be retried.
fn retrying(ready: ConditionUpdate<Kind>) -> ReadyConditions {
    let first = ready.message.lines().next().unwrap_or_default().to_owned();
    reconciling(ready, RETRYING, first)
}

/// Failed, until the spec changes.
fn stalled(ready: ConditionUpdate<Kind>) -> ReadyConditions {
    let (reason, message) = (ready.reason.clone(), ready.message.clone());
    let stalled = ConditionUpdate::new(Kind::Stalled, ConditionStatus::True, reason, message);
    ReadyConditions {
        stalled: Some(stalled),
        ..settled(ready)
    }
}

/// Returns the conditions of this reconciliation.
pub(super) fn ready_conditions(report: &Report<'_>) -> ReadyConditions {
    if let Some(ready) = during_drift_check(report) {
        return settled(ready);
    }
    match report.step {
        Step::Start(run) => {
            if run.trigger == Trigger::Drift {
                return progressing(drifted(report, ""));
            }
            let text = if report.facts.deleting {
                "Deletion in progress"
            } else {
                "Initializing"
            };
            progressing(in_progress(text))
        }
        Step::WaitForSlot(wait) => progressing(in_progress(format!("Waiting for a free run slot: {wait}"))),
        Step::CreateFailed(why) => retrying(not_ready(
            Reason::TfExecNewFailed,
            if report.facts.deleting {
                blocked_destroy::without_run(why, &report.stack.spec)
            } else {
                why.clone()
            },
        )),
        Step::Release => progressing(in_progress("Deletion in progress")),
        Step::Follow => progressing(active_run(report)),
        Step::Idle(rest) => idle(report, rest),
    }
}

/// Keeps `Ready` during a scheduled drift check of a stack in sync. Most checks find nothing, so dependents need not wait for them.
fn during_drift_check(report: &Report<'_>) -> Option<ConditionUpdate<Kind>> {
    let is_check = |action, trigger| action == Action::Plan && trigger == Trigger::Interval;
    let checks = match report.step {
        Step::Start(run) => is_check(run.action, run.trigger),
        Step::Follow => {
            let active = report.facts.history.active.as_ref();
            active.is_some_and(|run| is_check(run.action, run.trigger))
        }
        Step::WaitForSlot(_) | Step::CreateFailed(_) | Step::Release | Step::Idle(_) => false,
    };
    ConditionUpdate::retained(Kind::Ready, report.conditions())
        .filter(|ready| checks && !report.facts.deleting && ready.status == ConditionStatus::True)
        .filter(|_| !report.is_silent)
}

/// Returns what the runner of a run waits for before it begins.
pub(super) fn pending_run(run: &TerraformRun) -> Option<String> {
    let status = waiting_status(run)?;
    let (name, reason, message) = (run.name_any(), &status.reason, &status.message);
    Some(format!("Waiting for the pod of run {name}: {reason}: {message}"))
}

/// The part of the message that names a silent run.
const SILENT: &str = "does not report";

/// Returns what is known about an active run that sends no heartbeats.
pub(super) fn silent_run(report: &Report<'_>) -> Option<String> {
    let run = report.runs.iter().find(|run| !phase(run).is_final())?;
    report.is_silent.then(|| {
        format!(
            "The runner of run {} {SILENT} (phase {}): its node or its process may not answer. The run lasts until its pod has \
             ended or is deleted, or its process has ended",
            run.name_any(),
            phase(run).as_str()
        )
    })
}

/// Returns whether the stack's `Ready` says that its active run sends no heartbeats.
pub(in crate::reconcile) fn says_silent(stack: &Terraform) -> bool {
    let conditions = stack.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|condition| condition.type_ == Kind::Ready.as_str());
    ready.any(|ready| ready.status == "Unknown" && ready.message.contains(SILENT))
}

/// Returns whether a run cannot begin until a user changes something. Any other begins by itself, perhaps together with all others that
/// wait, so it counts among the concurrent runs.
pub(in crate::reconcile) fn needs_change(run: &TerraformRun) -> bool {
    waiting_status(run).is_some_and(|status| waits_for_change(&status.reason, &status.message))
}

/// Returns the status of a run that has not begun, if it says why.
fn waiting_status(run: &TerraformRun) -> Option<&TerraformRunStatus> {
    let status = run.status.as_ref().filter(|status| !status.reason.is_empty())?;
    (status.phase == Phase::Pending && status.claim.is_none()).then_some(status)
}

/// Returns the phase of the active run in upstream's words.
fn active_run(report: &Report<'_>) -> ConditionUpdate<Kind> {
    let run = report.runs.iter().find(|run| !phase(run).is_final());
    // A run that ends with its plan reports it at its end, with the id.
    let has_plan = run.is_some_and(|run| {
        run.spec.action != Action::Plan && run.status.as_ref().is_some_and(|s| !s.plan_id.is_empty())
    });
    if let Some(text) = run.and_then(pending_run) {
        let is_blocked_destroy = report.facts.deleting && run.is_some_and(needs_change);
        return in_progress(if is_blocked_destroy {
            blocked_destroy::without_runner(&text, &report.stack.spec)
        } else {
            text
        });
    }
    if let Some(text) = silent_run(report) {
        return in_progress(text);
    }
    let text = match run.map(phase) {
        Some(Phase::Planning) if has_plan => {
            return ready(
                ConditionStatus::Unknown,
                Reason::TerraformPlannedWithChanges,
                "Plan generated",
            );
        }
        Some(Phase::BreakingTheGlass) => {
            return in_progress(run.map(message).unwrap_or_default());
        }
        Some(Phase::WritingOutputs | Phase::CheckingHealth) if run.is_some_and(has_applied) => {
            let revision = run
                .map(|run| run.spec.source.revision.as_str())
                .unwrap_or_default();
            return ready(
                ConditionStatus::Unknown,
                Reason::TerraformAppliedSucceed,
                format!("Applied successfully: {revision}"),
            );
        }
        Some(Phase::Planning | Phase::WritingOutputs | Phase::CheckingHealth) => "Terraform Planning",
        Some(Phase::Applying) => "Applying",
        _ => "Initializing",
    };
    in_progress(text)
}

fn idle(report: &Report<'_>, idle: &Idle) -> ReadyConditions {
    match idle {
        Idle::Suspended | Idle::DeletionSuspended => progressing(in_progress(
            "Deletion waits: the object is suspended; set spec.suspend to false to resume",
        )),
        Idle::UnsupportedField => match &report.facts.unsupported_field {
            Some(field) => stalled(not_ready(field.reason, field.text.as_str())),
            None => progressing(in_progress("")),
        },
        Idle::ContradictingFields => stalled(not_ready(
            "ContradictingFields",
            report.facts.contradiction.clone().unwrap_or_default(),
        )),
        Idle::Dependencies => dependencies(report),
        Idle::Dependents(names) => dependents(report, names),
        Idle::Source => source(report),
        Idle::InputsUnknown => match &report.facts.inputs {
            Inputs::Failed { reason, message } => retrying(not_ready(*reason, message.as_str())),
            Inputs::Known(_) | Inputs::Unresolved => progressing(in_progress(RECONCILING)),
        },
        Idle::AwaitApproval => awaiting_approval(report),
        Idle::PlanRejected => rejected_plan(report),
        Idle::ShowPlan { .. } => unapplied_plan(report),
        Idle::InputPause(until) => input_pause(report, *until),
        Idle::RetryAt(_) => retrying(refused_apply(report).unwrap_or_else(|| failed(report))),
        Idle::RetryLimit => retry_limit(report),
        Idle::BreakGlassDenied => progressing(in_progress(BREAK_GLASS_DENIED)),
        Idle::BreakGlassCompleted => {
            let message = report.ended().next().map(message).unwrap_or_default();
            progressing(in_progress(format!(
                "{message}; set breakTheGlass: false to resume"
            )))
        }
        Idle::InSync(_) => settled(in_sync(report)),
    }
}

/// The attempts that `remediation.retries` allows have failed.
fn retry_limit(report: &Report<'_>) -> ReadyConditions {
    let limit = "Resource reached maximum number of retries.";
    let stalled = ConditionUpdate::new(
        Kind::Stalled,
        ConditionStatus::True,
        Reason::RetryLimitReached,
        limit,
    );
    ReadyConditions {
        stalled: Some(stalled),
        ..settled(failed(report))
    }
}

/// The inputs change repeatedly: the next run waits.
fn input_pause(report: &Report<'_>, until: Timestamp) -> ReadyConditions {
    let count = report.facts.history.input_runs.map_or(0, |runs| runs.count);
    let text = format!(
        "The inputs changed again without a new revision or edit, as before the last {count} run(s): the next run starts \
         at {until:.0}. A stack that reads its own output, or two stacks that read each other's, run without end; a \
         reconcile request starts a run at once"
    );
    reconciling(in_progress(text.as_str()), "InputsChangeOften", text)
}

/// Reports a stack whose dependencies are not ready or can never be.
fn dependencies(report: &Report<'_>) -> ReadyConditions {
    match &report.facts.dependencies {
        Dependencies::Denied(text) => stalled(not_ready(Reason::AccessDenied, text.as_str())),
        Dependencies::Cycle(text) => stalled(not_ready(Reason::DependencyCycle, text.as_str())),
        Dependencies::Waiting(text) => retrying(not_ready(DEPENDENCY_NOT_READY, text.as_str())),
        Dependencies::Ready => retrying(not_ready(DEPENDENCY_NOT_READY, "")),
    }
}

/// Reports dependents that have to be removed first.
fn dependents(report: &Report<'_>, names: &[String]) -> ReadyConditions {
    let names = names.join(", ");
    let (reason, mut text) = if report.facts.deleting {
        let text = format!("Deletion in progress, but blocked. Please delete {names} to resume ...");
        ("DeletionBlockedByDependantsReason", text)
    } else {
        let text =
            format!("Destroy in progress, but blocked. Please destroy or delete {names} to resume ...");
        ("DestroyBlockedByDependants", text)
    };
    if let Dependencies::Cycle(cycle) = &report.facts.dependencies {
        text = format!("{text} ({cycle})");
    }
    retrying(not_ready(reason, text))
}

fn source(report: &Report<'_>) -> ReadyConditions {
    let failed = |text: &str| not_ready(Reason::ArtifactFailed, text);
    match &report.facts.source {
        SourceFact::Denied(text) => stalled(not_ready(Reason::AccessDenied, text.as_str())),
        SourceFact::NotFound(text) => retrying(failed(text)),
        SourceFact::Unreachable(text) => retrying(failed(&format!("could not get Source object: {text}"))),
        SourceFact::NoArtifact | SourceFact::NotRead | SourceFact::Found { .. } => {
            retrying(failed("Source is not ready, artifact not found"))
        }
    }
}

/// Keeps the condition of another program if nothing has changed since.
fn retained_ready(report: &Report<'_>) -> ConditionUpdate<Kind> {
    ConditionUpdate::retained(Kind::Ready, report.conditions())
        .filter(|existing| existing.status == ConditionStatus::True)
        .unwrap_or_else(|| in_progress(RECONCILING))
}

/// Reports a stack in sync.
fn in_sync(report: &Report<'_>) -> ConditionUpdate<Kind> {
    let Some(run) = report.ended().next() else {
        return retained_ready(report);
    };
    let revision = &run.spec.source.revision;
    if succeeded(run) && run.status.as_ref().is_some_and(|s| s.attempted_apply) {
        return applied(report, run);
    }
    let (reason, text) = match (run.spec.destroy, report.facts.history.checked) {
        (true, _) => (
            Reason::TerraformPlannedNoChanges.as_str(),
            "No objects need to be destroyed",
        ),
        (false, true) => ("NoDrift", "No drift"),
        (false, false) => (Reason::TerraformPlannedNoChanges.as_str(), "Plan no changes"),
    };
    let ignored = run
        .status
        .as_ref()
        .and_then(|s| s.effects.as_ref())
        .filter(|effects| effects.ignored != 0);
    let ignored = ignored.map(|effects| format!(" ({effects})")).unwrap_or_default();
    ready(
        ConditionStatus::True,
        reason,
        format!("{text}: {revision}{ignored}"),
    )
}

fn applied(report: &Report<'_>, run: &TerraformRun) -> ConditionUpdate<Kind> {
    let revision = &run.spec.source.revision;
    let has_outputs = run.status.as_ref().is_some_and(|s| !s.outputs.is_empty());
    let written = report.stack.spec.write_outputs_to_secret.is_some() && has_outputs;
    let (reason, text) = match (run.spec.destroy, written) {
        (true, _) => (
            Reason::TerraformAppliedSucceed.as_str(),
            "Destroy applied successfully",
        ),
        (false, true) => (Reason::TerraformOutputsWritten.as_str(), "Outputs written"),
        (false, false) => (Reason::TerraformAppliedSucceed.as_str(), "Applied successfully"),
    };
    ready(ConditionStatus::True, reason, format!("{text}: {revision}"))
}
