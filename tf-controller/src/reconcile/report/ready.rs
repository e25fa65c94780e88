//! `Ready`, `Reconciling` and `Stalled`: what the step and the newest run mean to whoever waits for the stack.

mod order;

use super::{Report, has_applied, phase, succeeded};
use crate::decide::{Approval, Inputs, Outcome, Rest, SourceFact, Step};
use crate::reconcile::history::made;
use jiff::Timestamp;
use sluice_api::{
    condition::{TerraformCondition as Kind, Truth, Verdict},
    run::{Action, Phase, TerraformRun, Trigger},
    terraform::approval,
};

/// The three verdicts that tools look at.
pub(super) struct Told {
    /// `Ready`; always there.
    pub(super) ready: Verdict<Kind>,
    /// `Reconciling`, while something is going on or will be tried again.
    pub(super) reconciling: Option<Verdict<Kind>>,
    /// `Stalled`, while only an edit helps.
    pub(super) stalled: Option<Verdict<Kind>>,
}

const PROGRESSING: &str = "Progressing";
/// Upstream's words first.
const GLASS_REFUSED: &str = "Breaking the glass is not allowed: the controller was started without \
    --allow-break-the-glass; set breakTheGlass: false, or remove the annotation, to go on";
/// The reason of a look for drift that failed.
pub(super) const LOOK_FAILED: &str = "DriftDetectionFailed";
/// The reason of a stack whose run the API does not take.
const NOT_MADE: &str = "TFExecNewFailed";
const RETRYING: &str = "ProgressingWithRetry";

fn ready(truth: Truth, reason: impl Into<String>, message: impl Into<String>) -> Verdict<Kind> {
    Verdict::new(Kind::Ready, truth, reason, message)
}

fn done(ready: Verdict<Kind>) -> Told {
    Told {
        ready,
        reconciling: None,
        stalled: None,
    }
}

/// Under way: `Reconciling` stands beside.
fn going(ready: Verdict<Kind>) -> Told {
    let reconciling = Verdict::new(
        Kind::Reconciling,
        Truth::True,
        PROGRESSING,
        "Fulfilling prerequisites",
    );
    Told {
        ready,
        reconciling: Some(reconciling),
        stalled: None,
    }
}

/// Failed, and tried again.
fn retried(ready: Verdict<Kind>) -> Told {
    let first = ready.message.lines().next().unwrap_or_default().to_owned();
    let reconciling = Verdict::new(Kind::Reconciling, Truth::True, RETRYING, first);
    Told {
        ready,
        reconciling: Some(reconciling),
        stalled: None,
    }
}

/// Failed, and waiting for an edit.
fn stalled(ready: Verdict<Kind>) -> Told {
    let stalled = Verdict::new(
        Kind::Stalled,
        Truth::True,
        ready.reason.clone(),
        ready.message.clone(),
    );
    Told {
        ready,
        reconciling: None,
        stalled: Some(stalled),
    }
}

/// The verdicts of this pass.
pub(super) fn told(report: &Report<'_>) -> Told {
    if let Some(ready) = during_a_check(report) {
        return done(ready);
    }
    match report.step {
        Step::Start(run) => {
            if run.trigger == Trigger::Drift {
                return going(drifted(report, ""));
            }
            let text = if report.facts.deleting {
                "Deletion in progress"
            } else {
                "Initializing"
            };
            going(ready(Truth::Unknown, PROGRESSING, text))
        }
        Step::Wait => going(ready(
            Truth::Unknown,
            PROGRESSING,
            "Waiting for a free place to run",
        )),
        Step::NotMade(why) => retried(ready(Truth::False, NOT_MADE, why.as_str())),
        Step::Release => going(ready(Truth::Unknown, PROGRESSING, "Deletion in progress")),
        Step::Follow => going(following(report)),
        Step::Rest(rest) => resting(report, rest),
    }
}

/// `Ready` as it stands, while a stack that is as wanted is looked at because its interval has passed. Most such checks find nothing:
/// nobody who waits for the stack has to wait for them.
fn during_a_check(report: &Report<'_>) -> Option<Verdict<Kind>> {
    let is_check = |action, trigger| action == Action::Plan && trigger == Trigger::Interval;
    let checks = match report.step {
        Step::Start(run) => is_check(run.action, run.trigger),
        Step::Follow => {
            let active = report.facts.history.active.as_ref();
            active.is_some_and(|run| is_check(run.action, run.trigger))
        }
        Step::Wait | Step::NotMade(_) | Step::Release | Step::Rest(_) => false,
    };
    let held = report
        .stack
        .status
        .as_ref()
        .filter(|_| checks && !report.facts.deleting)?;
    Verdict::carried(Kind::Ready, &held.conditions).filter(|ready| ready.truth == Truth::True)
}

/// The phase of the run in progress, in upstream's words.
fn following(report: &Report<'_>) -> Verdict<Kind> {
    let run = report.runs.iter().find(|run| !phase(run).is_final());
    // A run that ends with its plan says so at its end, with the id.
    let has_plan = run.is_some_and(|run| {
        run.spec.action != Action::Plan && run.status.as_ref().is_some_and(|s| !s.plan_id.is_empty())
    });
    let text = match run.map(phase) {
        Some(Phase::Planning) if has_plan => {
            return ready(Truth::Unknown, "TerraformPlannedWithChanges", "Plan generated");
        }
        Some(Phase::BreakingTheGlass) => {
            let status = run.and_then(|run| run.status.as_ref());
            return ready(
                Truth::Unknown,
                PROGRESSING,
                status.map(|s| s.message.clone()).unwrap_or_default(),
            );
        }
        Some(Phase::WritingOutputs | Phase::CheckingHealth) if run.is_some_and(has_applied) => {
            let revision = run
                .map(|run| run.spec.source.revision.as_str())
                .unwrap_or_default();
            return ready(
                Truth::Unknown,
                "TerraformAppliedSucceed",
                format!("Applied successfully: {revision}"),
            );
        }
        Some(Phase::Planning | Phase::WritingOutputs | Phase::CheckingHealth) => "Terraform Planning",
        Some(Phase::Applying) => "Applying",
        _ => "Initializing",
    };
    ready(Truth::Unknown, PROGRESSING, text)
}

fn resting(report: &Report<'_>, rest: &Rest) -> Told {
    match rest {
        Rest::Suspended | Rest::DeletionSuspended => going(ready(
            Truth::Unknown,
            PROGRESSING,
            "Deletion waits: the object is suspended; set spec.suspend to false to let it go on",
        )),
        Rest::Refused => match &report.facts.refused {
            Some(refused) => stalled(ready(Truth::False, refused.reason, refused.text.as_str())),
            None => going(ready(Truth::Unknown, PROGRESSING, "")),
        },
        Rest::Contradiction => stalled(ready(
            Truth::False,
            "ContradictingFields",
            report.facts.contradiction.clone().unwrap_or_default(),
        )),
        Rest::Dependencies => order::dependencies(report),
        Rest::Dependants => order::dependants(report),
        Rest::Source => source(report),
        Rest::InputsUnknown => match &report.facts.inputs {
            Inputs::Failed { reason, message } => retried(ready(Truth::False, *reason, message.as_str())),
            Inputs::Known(_) | Inputs::Unresolved => {
                going(ready(Truth::Unknown, PROGRESSING, "Reconciliation in progress"))
            }
        },
        Rest::AwaitApproval => awaiting(report),
        Rest::ShowPlan { .. } => shown(report),
        Rest::InputPause(until) => paused(report, *until),
        Rest::RetryAt(_) => retried(failed(report)),
        Rest::RetryLimit => {
            let limit = "Resource reached maximum number of retries.";
            let stalled = Verdict::new(Kind::Stalled, Truth::True, "RetryLimitReached", limit);
            Told {
                ready: failed(report),
                reconciling: None,
                stalled: Some(stalled),
            }
        }
        Rest::GlassRefused => going(ready(Truth::Unknown, PROGRESSING, GLASS_REFUSED)),
        Rest::GlassOver => {
            let last = report.ended().next().and_then(|run| run.status.as_ref());
            let message = last.map(|s| s.message.clone()).unwrap_or_default();
            let text = format!("{message}; set breakTheGlass: false to go on");
            going(ready(Truth::Unknown, PROGRESSING, text))
        }
        Rest::Steady(_) => done(steady(report)),
    }
}

/// Inputs change again and again: the next run waits.
fn paused(report: &Report<'_>, until: Timestamp) -> Told {
    let count = report.facts.history.input_runs.map_or(0, |runs| runs.count);
    let text = format!(
        "The inputs changed again, with no new revision and no edit, as they did before the last {count} run(s): the next run \
         starts at {until:.0}. A stack that reads what its own apply writes, or two that read each other, never come to rest; a \
         reconcile request starts it at once"
    );
    let reconciling = Verdict::new(Kind::Reconciling, Truth::True, "InputsChangeOften", text.clone());
    Told {
        ready: ready(Truth::Unknown, PROGRESSING, text),
        reconciling: Some(reconciling),
        stalled: None,
    }
}

fn source(report: &Report<'_>) -> Told {
    let failed = |text: &str| ready(Truth::False, "ArtifactFailed", text);
    match &report.facts.source {
        SourceFact::Denied(text) => stalled(ready(Truth::False, "AccessDenied", text.as_str())),
        SourceFact::NotFound(text) => retried(failed(text)),
        SourceFact::Unreachable(text) => retried(failed(&format!("could not get Source object: {text}"))),
        SourceFact::NoArtifact | SourceFact::NotRead | SourceFact::Found { .. } => {
            retried(failed("Source is not ready, artifact not found"))
        }
    }
}

/// A plan that waits: its id, and why what stands in `approvePlan` does not approve it.
fn awaiting(report: &Report<'_>) -> Told {
    let Some(pending) = &report.facts.history.pending else {
        return done(steady(report));
    };
    let set = format!("set approvePlan: \"{}\" to approve this plan", pending.plan_id);
    let advice = match approval::judge(&report.stack.spec, made(pending, report.runs)) {
        approval::Approval::NotThis(mismatch) => format!("{set}. ({mismatch})"),
        approval::Approval::Held(held) => {
            format!("{set}. It is not applied by itself: {held}. Set approvePlan back afterwards.")
        }
        _ => format!("{set}."),
    };
    if pending.drift {
        return retried(drifted(report, &advice));
    }
    going(ready(
        Truth::Unknown,
        "TerraformPlannedWithChanges",
        format!("Plan generated: {advice}"),
    ))
}

/// A plan that nobody is to apply. Under `disable` any difference is drift, unless drift is not looked for.
fn shown(report: &Report<'_>) -> Told {
    let spec = &report.stack.spec;
    let disabled = report.facts.approval == Approval::Disabled;
    let pending = report.facts.history.pending.as_ref();
    let any_is = disabled && !spec.disable_drift_detection && !spec.destroy;
    if any_is || pending.is_some_and(|plan| plan.drift) {
        return retried(drifted(report, ""));
    }
    let why = if disabled {
        "Plan generated: nothing is applied while approvePlan is \"disable\"."
    } else {
        "Plan generated: This object is in the plan only mode."
    };
    going(ready(Truth::Unknown, "TerraformPlannedWithChanges", why))
}

/// What has drifted, by class: ` (1 delete, 2 in-place)`.
pub(super) fn classes(report: &Report<'_>) -> String {
    let effects = report
        .last_plan()
        .and_then(|run| run.status.as_ref()?.effects.as_ref());
    let told = effects.map(ToString::to_string).unwrap_or_default();
    if told.is_empty() {
        told
    } else {
        format!(" ({told})")
    }
}

/// Drift, with the plan that would undo it.
fn drifted(report: &Report<'_>, advice: &str) -> Verdict<Kind> {
    let plan = report
        .last_plan()
        .and_then(|run| run.status.as_ref())
        .map(|s| s.human_plan.trim().to_owned());
    let plan = plan.unwrap_or_default();
    let classes = classes(report);
    let text = match (advice.is_empty(), classes.is_empty()) {
        (true, true) => plan,
        (true, false) => format!("Drift detected{classes}\n{plan}"),
        (false, _) => format!("Drift detected{classes}: {advice}\n{plan}"),
    };
    ready(Truth::False, "DriftDetected", text)
}

/// The newest run failed.
fn failed(report: &Report<'_>) -> Verdict<Kind> {
    let run = report.ended().next();
    let status = run.and_then(|run| run.status.as_ref());
    let word = status
        .map(|s| s.reason.clone())
        .filter(|reason| !reason.is_empty());
    let word = match word {
        Some(reason) if report.facts.history.checked && reason == "TFExecPlanFailed" => {
            Some(LOOK_FAILED.to_owned())
        }
        word => word,
    };
    let text = status
        .map(|s| s.message.clone())
        .filter(|message| !message.is_empty());
    let lost = report
        .facts
        .history
        .last
        .as_ref()
        .is_some_and(|last| last.outcome == Outcome::Lost);
    let fallback = if lost {
        "the run's process is gone without a report"
    } else {
        "the run failed"
    };
    ready(
        Truth::False,
        word.unwrap_or_else(|| "RunFailed".to_owned()),
        text.unwrap_or_else(|| fallback.to_owned()),
    )
}

/// As another program left it, where nothing has changed since.
fn as_left(report: &Report<'_>) -> Verdict<Kind> {
    let held = report
        .stack
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice());
    Verdict::carried(Kind::Ready, held.unwrap_or_default())
        .filter(|held| held.truth == Truth::True)
        .unwrap_or_else(|| ready(Truth::Unknown, PROGRESSING, "Reconciliation in progress"))
}

/// All is as wanted.
fn steady(report: &Report<'_>) -> Verdict<Kind> {
    let Some(run) = report.ended().next() else {
        return as_left(report);
    };
    let revision = &run.spec.source.revision;
    if succeeded(run) && run.status.as_ref().is_some_and(|s| s.attempted_apply) {
        return applied(report, run);
    }
    let (reason, text) = match (run.spec.destroy, report.facts.history.checked) {
        (true, _) => ("TerraformPlannedNoChanges", "No objects need to be destroyed"),
        (false, true) => ("NoDrift", "No drift"),
        (false, false) => ("TerraformPlannedNoChanges", "Plan no changes"),
    };
    let ignored = run
        .status
        .as_ref()
        .and_then(|s| s.effects.as_ref())
        .filter(|effects| effects.ignored != 0);
    let ignored = ignored.map(|effects| format!(" ({effects})")).unwrap_or_default();
    ready(Truth::True, reason, format!("{text}: {revision}{ignored}"))
}

fn applied(report: &Report<'_>, run: &TerraformRun) -> Verdict<Kind> {
    let revision = &run.spec.source.revision;
    let has_outputs = run.status.as_ref().is_some_and(|s| !s.outputs.is_empty());
    let written = report.stack.spec.write_outputs_to_secret.is_some() && has_outputs;
    let (reason, text) = match (run.spec.destroy, written) {
        (true, _) => ("TerraformAppliedSucceed", "Destroy applied successfully"),
        (false, true) => ("TerraformOutputsWritten", "Outputs written"),
        (false, false) => ("TerraformAppliedSucceed", "Applied successfully"),
    };
    ready(Truth::True, reason, format!("{text}: {revision}"))
}
