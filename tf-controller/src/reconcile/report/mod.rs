//! What a pass says: the whole status, derived from the runs and the step, and the events of what is new in it.
//!
//! Pure: the same facts give the same status, so a pass that finds nothing new writes nothing.

mod events;
mod fields;
mod landed;
mod ready;
#[cfg(test)]
mod tests;

pub(super) use events::events;

use super::history::in_order;
use crate::decide::{Facts, Inputs, Rest, SourceFact, Step};
use ready::{Told, told};
use sluice_api::{
    condition::{TerraformCondition as Kind, Truth, Verdict, find, settle},
    run::{Action, Phase, TerraformRun},
    terraform::{Terraform, TerraformStatus},
};

/// The reason of a stack that waits for what it builds on.
pub(super) const DEPENDENCY_NOT_READY: &str = "DependencyNotReady";

/// What a pass knows at its end.
pub(super) struct Report<'a> {
    /// The object as it was read.
    pub(super) stack: &'a Terraform,
    /// What was decided on.
    pub(super) facts: &'a Facts,
    /// Its runs, in any order; the one that this pass made is not yet among them.
    pub(super) runs: &'a [TerraformRun],
    /// What was decided.
    pub(super) step: &'a Step,
    /// The reconcile request that this pass has dealt with.
    pub(super) handled: Option<&'a str>,
}

impl<'a> Report<'a> {
    /// The ended runs that count, newest first.
    fn ended(&self) -> impl Iterator<Item = &'a TerraformRun> {
        in_order(self.runs).into_iter().rev().filter(|run| {
            let phase = phase(run);
            phase.is_final() && phase != Phase::Superseded
        })
    }

    /// The newest ended run that got as far as a plan.
    fn last_plan(&self) -> Option<&'a TerraformRun> {
        self.ended().find(|run| {
            run.status.as_ref().is_some_and(|s| s.has_changes.is_some()) && run.spec.action != Action::Apply
        })
    }

    /// The revision of the source, where it has one.
    fn revision(&self) -> Option<&'a str> {
        match &self.facts.source {
            SourceFact::Found { revision, .. } => Some(revision),
            _ => None,
        }
    }

    /// Whether the newest run was made of just these inputs: nothing that the stack reads has changed since.
    pub(super) fn is_unchanged(&self) -> bool {
        let Inputs::Known(inputs) = &self.facts.inputs else {
            return false;
        };
        self.facts.history.active.is_none()
            && !matches!(self.step, Step::Start(_) | Step::NotMade(_))
            && self
                .facts
                .history
                .last
                .as_ref()
                .is_some_and(|last| last.inputs == *inputs)
    }
}

pub(super) fn phase(run: &TerraformRun) -> Phase {
    run.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

pub(super) fn succeeded(run: &TerraformRun) -> bool {
    phase(run) == Phase::Succeeded
}

/// Whether the run's apply ended well, whatever became of the outputs and the health checks after it.
pub(super) fn has_applied(run: &TerraformRun) -> bool {
    let status = run.status.as_ref();
    status.is_some_and(|s| s.attempted_apply && (s.applied || succeeded(run)))
}

/// The status after the pass.
pub(super) fn status(report: &Report<'_>) -> TerraformStatus {
    let mut status = report.stack.status.clone().unwrap_or_default();
    if let Some(token) = report.handled {
        token.clone_into(&mut status.last_handled_reconcile_at);
    }
    fields::owed(report, &mut status);
    if *report.step == Step::Rest(Rest::Suspended) {
        // Who is as wanted stays so for those who wait for it: nobody looks at the object again until it is resumed.
        if find(&status.conditions, Kind::Ready).is_some_and(|ready| ready.status == "True") {
            status.observed_generation = Some(report.facts.generation);
        }
        return status;
    }
    fields::planned(report, &mut status);
    fields::applied(report, &mut status);
    fields::outcome(report, &mut status);
    let verdicts = verdicts(report, &status);
    let generation = Some(report.facts.generation);
    status.conditions = settle(&status.conditions, &verdicts, generation, report.facts.now);
    status
}

/// The reason of a run whose plan a webhook did not let go on.
const REFUSED_BY_WEBHOOK: &str = "PostPlanningWebhookFailed";

/// One verdict per condition type; a type without one disappears.
fn verdicts(report: &Report<'_>, status: &TerraformStatus) -> Vec<Verdict<Kind>> {
    let Told {
        ready,
        reconciling,
        stalled,
    } = told(report);
    let mut verdicts = vec![ready];
    verdicts.extend(reconciling);
    verdicts.extend(stalled);
    verdicts.extend(plan(report).or_else(|| Verdict::carried(Kind::Plan, &status.conditions)));
    verdicts.extend(apply(report).or_else(|| Verdict::carried(Kind::Apply, &status.conditions)));
    verdicts.extend(output(report).or_else(|| Verdict::carried(Kind::Output, &status.conditions)));
    if !report.stack.spec.health_checks.is_empty() {
        verdicts.extend(health(report).or_else(|| Verdict::carried(Kind::HealthCheck, &status.conditions)));
    }
    verdicts.extend(state_lock(report, status));
    verdicts
}

/// The lock that is in the way; or that it was released, until a run gets past it.
fn state_lock(report: &Report<'_>, status: &TerraformStatus) -> Option<Verdict<Kind>> {
    if let Some(lock) = status.lock.as_ref().filter(|lock| !lock.pending.is_empty()) {
        let message = format!("Terraform Locked with Lock Identifier: {}", lock.pending);
        return Some(Verdict::new(Kind::StateLocked, Truth::True, "LockHeld", message));
    }
    let last = report.ended().next()?;
    let released = last.spec.action == Action::Unlock && succeeded(last);
    let message = last
        .status
        .as_ref()
        .map(|s| s.message.clone())
        .unwrap_or_default();
    released.then(|| Verdict::new(Kind::StateLocked, Truth::False, "ForceUnlock", message))
}

/// What the newest health checks came to.
fn health(report: &Report<'_>) -> Option<Verdict<Kind>> {
    let checked = |run: &&TerraformRun| run.status.as_ref().is_some_and(|s| s.health.is_some());
    let status = report.ended().find(checked)?.status.as_ref()?;
    let verdict = if status.health.as_ref()?.passed {
        Verdict::new(
            Kind::HealthCheck,
            Truth::True,
            "HealthChecksSucceed",
            "Health checks succeeded",
        )
    } else {
        Verdict::new(
            Kind::HealthCheck,
            Truth::False,
            "HealthChecksFailed",
            status.message.clone(),
        )
    };
    Some(steady(report, verdict))
}

/// A verdict that stays as it was when it says the same, so that its generation is that of the pass that found it.
fn steady(report: &Report<'_>, verdict: Verdict<Kind>) -> Verdict<Kind> {
    let held = report
        .stack
        .status
        .as_ref()
        .map(|s| s.conditions.as_slice())
        .unwrap_or_default();
    match Verdict::carried(verdict.kind, held) {
        Some(old)
            if (old.truth, &old.reason, &old.message)
                == (verdict.truth, &verdict.reason, &verdict.message) =>
        {
            old
        }
        _ => verdict,
    }
}

fn plan(report: &Report<'_>) -> Option<Verdict<Kind>> {
    if let Some(run) = report.ended().next()
        && let Some(status) = run.status.as_ref()
        && status.reason == REFUSED_BY_WEBHOOK
    {
        let verdict = Verdict::new(
            Kind::Plan,
            Truth::False,
            REFUSED_BY_WEBHOOK,
            status.message.clone(),
        );
        return Some(steady(report, verdict));
    }
    let run = report.last_plan()?;
    let changes = run.status.as_ref()?.has_changes?;
    let verdict = match (changes, run.spec.destroy) {
        (true, _) => Verdict::new(
            Kind::Plan,
            Truth::True,
            "TerraformPlannedWithChanges",
            "Plan generated",
        ),
        (false, true) => Verdict::new(
            Kind::Plan,
            Truth::False,
            "TerraformPlannedNoChanges",
            "No objects need to be destroyed",
        ),
        (false, false) => Verdict::new(
            Kind::Plan,
            Truth::False,
            "TerraformPlannedNoChanges",
            "Plan no changes",
        ),
    };
    Some(steady(report, verdict))
}

fn apply(report: &Report<'_>) -> Option<Verdict<Kind>> {
    let applying = report.runs.iter().any(|run| phase(run) == Phase::Applying);
    if applying {
        return Some(Verdict::new(
            Kind::Apply,
            Truth::Unknown,
            "Progressing",
            "Apply started",
        ));
    }
    // A run that has applied and still writes outputs says more than those before it.
    let going = report
        .runs
        .iter()
        .find(|run| !phase(run).is_final() && has_applied(run));
    let run = going.or_else(|| report.last_apply())?;
    let verdict = if report.proof(run).is_some() {
        let text = if run.spec.destroy {
            "Destroy applied successfully"
        } else {
            "Applied successfully"
        };
        Verdict::new(Kind::Apply, Truth::True, "TerraformAppliedSucceed", text)
    } else {
        let message = run.status.as_ref().map(|s| s.message.clone()).unwrap_or_default();
        Verdict::new(Kind::Apply, Truth::False, "TerraformAppliedFail", message)
    };
    Some(steady(report, verdict))
}

fn output(report: &Report<'_>) -> Option<Verdict<Kind>> {
    let mut made = report.ended().filter(|apply| !apply.spec.destroy);
    let run = made.find_map(|apply| report.proof(apply))?;
    if run.status.as_ref()?.outputs.is_empty() {
        return None;
    }
    let verdict = if report.stack.spec.write_outputs_to_secret.is_some() && report.has_written(run) {
        Verdict::new(
            Kind::Output,
            Truth::True,
            "TerraformOutputsWritten",
            "Outputs written",
        )
    } else {
        Verdict::new(
            Kind::Output,
            Truth::True,
            "TerraformOutputsAvailable",
            "Outputs available",
        )
    };
    Some(steady(report, verdict))
}
