//! The state of one stack as the gauges show it. Pure.

use std::time::Duration;

use jiff::Timestamp;
use sluice_api::condition::{TerraformCondition, find};
use sluice_api::run::{Action, Phase, TerraformRun};
use sluice_api::terraform::{Terraform, TerraformStatus};

use crate::decide::{Approval, Facts, Idle, Outcome, Pending, Step};
use crate::reconcile::history::{created_at, find_run};
use crate::reconcile::report::phase;

/// The time that a runner has after its deadline and the CLI's grace period to store the state and to report.
const REPORT_GRACE: Duration = Duration::from_mins(1);

/// The state of a stack after a reconciliation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StackState {
    pub(super) ready: ReadyStatus,
    pub(super) active: Option<ActiveRunState>,
    /// Since when a plan waits for its approval.
    pub(super) plan_waits_since: Option<Timestamp>,
    /// Whether its pending plan is drift. `false` while it is suspended, like the next two: nothing is expected of it.
    pub(super) drifted: bool,
    /// Whether a state lock blocks it.
    pub(super) locked: bool,
    /// Whether its newest run that counts failed or was lost.
    pub(super) failing: bool,
    pub(super) blocked: Option<BlockReason>,
}

/// The status of the condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReadyStatus {
    True,
    False,
    Unknown,
}

impl ReadyStatus {
    pub(super) const ALL: [Self; 3] = [Self::True, Self::False, Self::Unknown];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    fn of(status: Option<&TerraformStatus>) -> Self {
        let conditions = status
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default();
        match find(conditions, TerraformCondition::Ready).map(|ready| ready.status.as_str()) {
            Some("True") => Self::True,
            Some("False") => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// The run of a stack that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActiveRunState {
    pub(super) action: Action,
    pub(super) phase: Phase,
    pub(super) created: Timestamp,
    /// When it should have ended and reported; `None`: no runner has claimed it.
    pub(super) due: Option<Timestamp>,
}

impl ActiveRunState {
    fn of(run: &TerraformRun, stack: &Terraform) -> Self {
        let started = run.status.as_ref().and_then(|status| status.started_at.as_ref());
        let grace = u64::try_from(stack.spec.runner_termination_grace_period_seconds).unwrap_or_default();
        let deadline = run.spec.deadline.to_duration();
        let allowed = deadline
            .saturating_add(Duration::from_secs(grace))
            .saturating_add(REPORT_GRACE);
        Self {
            action: run.spec.action,
            phase: phase(run),
            created: created_at(run),
            due: started.and_then(|started| started.0.checked_add(allowed).ok()),
        }
    }
}

/// Why no run of a stack can start. A closed set, unlike the reasons of conditions: runners write some of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlockReason {
    /// A stack that it depends on is not ready, or stacks that depend on it exist.
    Dependencies,
    /// The inputs cannot be resolved.
    Inputs,
    /// The API server rejects the run.
    Rejected,
    /// All retries have failed.
    RetryLimit,
    /// A break-glass session is requested and not allowed, or has ended and is still requested.
    BreakGlass,
    /// The source has no usable artifact.
    Source,
    /// A field of the spec is unsupported or contradicts another one.
    Spec,
    /// The stack is suspended.
    Suspended,
}

impl BlockReason {
    pub(super) const ALL: [Self; 8] = [
        Self::Dependencies,
        Self::Inputs,
        Self::Rejected,
        Self::RetryLimit,
        Self::BreakGlass,
        Self::Source,
        Self::Spec,
        Self::Suspended,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Dependencies => "Dependencies",
            Self::Inputs => "Inputs",
            Self::Rejected => "Rejected",
            Self::RetryLimit => "RetryLimit",
            Self::BreakGlass => "BreakGlass",
            Self::Source => "Source",
            Self::Spec => "Spec",
            Self::Suspended => "Suspended",
        }
    }

    const fn of(step: &Step) -> Option<Self> {
        let idle = match step {
            Step::CreateFailed(_) => return Some(Self::Rejected),
            Step::Start(_) | Step::WaitForSlot(_) | Step::Follow | Step::Release => return None,
            Step::Idle(idle) => idle,
        };
        match idle {
            Idle::Suspended | Idle::DeletionSuspended => Some(Self::Suspended),
            Idle::UnsupportedField | Idle::ContradictingFields => Some(Self::Spec),
            Idle::Dependencies | Idle::Dependents(_) => Some(Self::Dependencies),
            Idle::Source => Some(Self::Source),
            Idle::InputsUnknown => Some(Self::Inputs),
            Idle::RetryLimit => Some(Self::RetryLimit),
            Idle::BreakGlassDenied | Idle::BreakGlassCompleted => Some(Self::BreakGlass),
            Idle::AwaitApproval
            | Idle::PlanRejected
            | Idle::ShowPlan { .. }
            | Idle::InputPause(_)
            | Idle::RetryAt(_)
            | Idle::InSync(_) => None,
        }
    }
}

impl StackState {
    /// Returns the state of a stack with these runs, the started one included.
    pub(super) fn of(
        stack: &Terraform,
        facts: &Facts,
        step: &Step,
        runs: &[TerraformRun],
        started: Option<&TerraformRun>,
    ) -> Self {
        let active = facts.history.active.as_ref();
        let active = active.and_then(|active| find_run(runs, &active.name)).or(started);
        let status = stack.status.as_ref();
        let lock = status.and_then(|status| status.lock.as_ref());
        let pending = facts.history.pending.as_ref();
        let (last, is_expected_to_run) = (facts.history.last.as_ref(), !facts.suspended);
        let has_failed = |outcome| matches!(outcome, Outcome::Failed | Outcome::Lost);
        Self {
            ready: ReadyStatus::of(status),
            active: active.map(|run| ActiveRunState::of(run, stack)),
            plan_waits_since: pending
                .filter(|pending| waits_for_approval(facts, pending))
                .map(|pending| planned_since(facts, pending)),
            drifted: is_expected_to_run && pending.is_some_and(|pending| pending.drift),
            locked: is_expected_to_run && lock.is_some_and(|lock| !lock.pending.is_empty()),
            failing: is_expected_to_run && last.is_some_and(|last| has_failed(last.outcome)),
            blocked: BlockReason::of(step),
        }
    }
}

/// Returns whether nothing but an approval is missing for the apply of the pending plan.
fn waits_for_approval(facts: &Facts, pending: &Pending) -> bool {
    let is_unapproved = match facts.approval {
        Approval::None => true,
        Approval::Auto => pending.held,
        Approval::Given { .. } | Approval::Replan | Approval::Disabled => false,
    };
    is_unapproved
        && pending.rejection.is_none()
        && !facts.policy.plan_only
        && !facts.suspended
        && !facts.deleting
}

/// Returns since when the pending plan waits: one that is only made again with the same effect waits since the first.
fn planned_since(facts: &Facts, pending: &Pending) -> Timestamp {
    let effect = facts.history.planned_effect.as_ref();
    effect.map_or(pending.planned, |effect| effect.since)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_api::run::PlanRejection;

    use super::*;
    use crate::decide::{PlannedEffect, RunFact, ended_run, facts_of_a_new_stack};

    fn run(number: u32, status: &Value) -> TerraformRun {
        let run = json!({
            "metadata": { "name": format!("net-u1-{number}"), "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "2h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u1", "generation": 1 } },
            "status": status,
        });
        serde_json::from_value(run).unwrap()
    }

    fn net(status: &Value) -> Terraform {
        let stack = json!({
            "metadata": { "name": "net", "namespace": "team", "uid": "u1", "generation": 1 },
            "spec": { "interval": "10m", "runnerTerminationGracePeriodSeconds": 30,
                "sourceRef": { "kind": "GitRepository", "name": "code" } },
            "status": status,
        });
        serde_json::from_value(stack).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn pending(drift: bool) -> Pending {
        Pending {
            plan_id: "aa".into(),
            run: "net-u1-3".into(),
            drift,
            held: false,
            rejection: None,
            planned: at("2026-01-03T00:00:00Z"),
        }
    }

    fn with_plan(edit: &dyn Fn(&mut Facts)) -> Facts {
        let mut facts = facts_of_a_new_stack();
        facts.history.pending = Some(pending(false));
        edit(&mut facts);
        facts
    }

    fn state(facts: &Facts, step: &Step, runs: &[TerraformRun]) -> StackState {
        StackState::of(&net(&Value::Null), facts, step, runs, None)
    }

    fn fact(name: &str, outcome: Outcome) -> RunFact {
        RunFact {
            name: name.into(),
            finished: at("2026-01-01T00:00:00Z"),
            ..ended_run(outcome, 0)
        }
    }

    #[test]
    fn a_plan_waits_only_while_nothing_but_its_approval_is_missing() {
        let waits = |edit: &dyn Fn(&mut Facts)| {
            let idle = Step::Idle(Idle::AwaitApproval);
            state(&with_plan(edit), &idle, &[]).plan_waits_since.is_some()
        };
        assert!(waits(&|_| ()));
        assert!(waits(&|f| {
            f.approval = Approval::Auto;
            f.history.pending.as_mut().unwrap().held = true;
        }));
        assert!(!waits(&|f| f.approval = Approval::Auto));
        assert!(!waits(&|f| f.approval = Approval::Disabled));
        assert!(!waits(&|f| f.approval = Approval::Replan));
        assert!(!waits(&|f| f.approval = Approval::Given { by: "kubectl".into() }));
        assert!(!waits(&|f| f.policy.plan_only = true));
        assert!(!waits(&|f| f.suspended = true));
        assert!(!waits(&|f| f.deleting = true));
        assert!(!waits(&|f| f.history.pending = None));
        assert!(!waits(&|f| {
            f.history.pending.as_mut().unwrap().rejection = Some(PlanRejection::default());
        }));
    }

    #[test]
    fn a_plan_waits_since_the_first_one_with_its_effect() {
        let since = |edit: &dyn Fn(&mut Facts)| {
            let idle = Step::Idle(Idle::AwaitApproval);
            state(&with_plan(edit), &idle, &[]).plan_waits_since.unwrap()
        };
        assert_eq!(since(&|_| ()), at("2026-01-03T00:00:00Z"));
        let first = |facts: &mut Facts| {
            let (digest, since) = ("aa".to_owned(), at("2026-01-01T00:00:00Z"));
            facts.history.planned_effect = Some(PlannedEffect { digest, since });
        };
        assert_eq!(since(&first), at("2026-01-01T00:00:00Z"));
    }

    #[test]
    fn a_suspended_stack_is_not_failing_drifted_or_locked() {
        let stack = net(&json!({ "lock": { "pending": "l1" } }));
        let mut facts = with_plan(&|facts| facts.history.pending.as_mut().unwrap().drift = true);
        facts.history.last = Some(fact("net-u1-2", Outcome::Failed));
        for suspended in [false, true] {
            facts.suspended = suspended;
            let shown = StackState::of(&stack, &facts, &Step::Idle(Idle::RetryLimit), &[], None);
            let [failing, drifted, locked] = [shown.failing, shown.drifted, shown.locked];
            assert_eq!([failing, drifted, locked], [!suspended; 3]);
        }
    }

    #[test]
    fn drift_failures_locks_and_readiness_follow_from_facts_and_status() {
        let (mut facts, idle) = (facts_of_a_new_stack(), Step::Idle(Idle::RetryLimit));
        let quiet = state(&facts, &idle, &[]);
        assert!(!quiet.drifted && !quiet.failing && !quiet.locked && quiet.active.is_none());
        assert_eq!(
            (quiet.ready, quiet.blocked),
            (ReadyStatus::Unknown, Some(BlockReason::RetryLimit))
        );
        facts.history.pending = Some(pending(true));
        for (outcome, failing) in [
            (Outcome::Failed, true),
            (Outcome::Lost, true),
            (Outcome::Succeeded, false),
        ] {
            facts.history.last = Some(fact("net-u1-2", outcome));
            assert_eq!(state(&facts, &idle, &[]).failing, failing);
        }
        let status = json!({ "lock": { "pending": "l1" }, "conditions": [{ "type": "Ready", "status": "False",
            "reason": "DriftDetected", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
        let shown = StackState::of(&net(&status), &facts, &idle, &[], None);
        assert!(shown.drifted && shown.locked);
        assert_eq!(shown.ready, ReadyStatus::False);
    }

    #[test]
    fn the_active_run_is_the_one_in_progress_or_the_one_that_was_started() {
        let mut facts = facts_of_a_new_stack();
        let new = run(1, &json!({}));
        let pending = ActiveRunState {
            action: Action::Plan,
            phase: Phase::Pending,
            created: at("2026-01-01T00:00:00Z"),
            due: None,
        };
        let started = StackState::of(&net(&Value::Null), &facts, &Step::Follow, &[], Some(&new));
        assert_eq!(started.active, Some(pending));
        facts.history.active = Some(fact("net-u1-2", Outcome::Active));
        let claimed = json!({ "phase": "Planning", "startedAt": "2026-01-01T01:00:00Z" });
        let runs = [run(1, &json!({ "phase": "Succeeded" })), run(2, &claimed)];
        let planning = ActiveRunState {
            phase: Phase::Planning,
            // Two hours, half a minute for the CLI and one for the report.
            due: Some(at("2026-01-01T03:01:30Z")),
            ..pending
        };
        let followed = state(&facts, &Step::Follow, &runs);
        assert_eq!((followed.active, followed.blocked), (Some(planning), None));
    }
}
