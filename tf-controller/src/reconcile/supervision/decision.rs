//! What to do with an active run. Pure.

use sluice_api::run::{TerraformRun, Trigger};

use crate::decide::{Facts, MutationPoint, RunAction, holds};

/// What is known about the runner of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconcile) enum RunnerState {
    /// It is alive, or sent a heartbeat a moment ago.
    Alive,
    /// It is accepted and has not begun.
    Pending,
    /// It cannot begin, because its ServiceAccount does not exist, and another account may replace it.
    WithoutAccount,
    /// It has ended.
    Ended,
    /// Neither a process nor a pod of it exists.
    Gone,
}

/// An active run as read last.
#[derive(Clone, Copy, Debug)]
pub(in crate::reconcile) struct RunState<'a> {
    /// Its runner.
    pub(in crate::reconcile) runner: RunnerState,
    /// Whether it has ended since the facts were read.
    pub(in crate::reconcile) ended: bool,
    /// Whether a runner has claimed it.
    pub(in crate::reconcile) claimed: bool,
    /// Digest of the inputs that it was created for.
    pub(in crate::reconcile) created_for: &'a str,
    /// Digest of the current inputs; `None`: they are not available.
    pub(in crate::reconcile) current: Option<&'a str>,
    /// The spec, compared with the one that it was created for.
    pub(in crate::reconcile) spec: SpecState,
}

/// The spec of the stack of an active run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconcile) enum SpecState {
    /// As at the creation of the run.
    Unchanged,
    /// It was edited since.
    Edited,
    /// The stack must not run now: it is suspended, deleted, or its spec is not valid.
    Stopped,
}

impl SpecState {
    pub(super) fn of(run: &TerraformRun, facts: &Facts) -> Self {
        // A destroy is part of the deletion, and so is the release of the lock before it: an edit replaces them, unless it makes the
        // destroy unnecessary.
        let destroys = run.spec.trigger == Trigger::Deletion || run.spec.action == RunAction::Unlock;
        let is_destroy = destroys && facts.policy.destroy_on_deletion;
        let is_stopped = facts.suspended || facts.unsupported_field.is_some();
        if is_stopped || facts.deleting && !is_destroy {
            Self::Stopped
        } else if run.spec.terraform.generation == facts.generation {
            Self::Unchanged
        } else {
            Self::Edited
        }
    }
}

/// What to do with an active run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconcile) enum Supervision {
    /// Wait for it.
    Wait,
    /// Report what its runner waits for.
    ReportPending,
    /// Mark it as lost: its runner is gone.
    MarkLost,
    /// Mark it as failed, or as interrupted: its runner ended before it claimed the run.
    MarkFailed,
    /// Start its runner: no runner has claimed it.
    Launch,
    /// End it: no runner has claimed it, and its inputs or the spec have changed.
    EndOutdated,
    /// End it: no runner has claimed it, and its inputs are not available, or the stack must not run now.
    EndWithoutInputs,
    /// End it: it cannot begin under its ServiceAccount, and the next run has another one.
    EndWithoutAccount,
}

/// Decides what to do with an active run. Pure.
pub(in crate::reconcile) fn decide_supervision(run: RunState<'_>) -> Supervision {
    let is_alive = match run.runner {
        RunnerState::Alive => true,
        RunnerState::Pending | RunnerState::WithoutAccount => run.claimed,
        RunnerState::Ended | RunnerState::Gone => false,
    };
    if holds(MutationPoint::ProcessAlive, is_alive) || run.ended {
        return Supervision::Wait;
    }
    if holds(MutationPoint::Claimed, run.claimed) {
        return Supervision::MarkLost;
    }
    let is_outdated = |current| holds(MutationPoint::InputsOutdated, current != run.created_for);
    match (run.current, run.runner) {
        (Some(current), _) if is_outdated(current) => Supervision::EndOutdated,
        (_, RunnerState::Ended) => Supervision::MarkFailed,
        // Also with its inputs: the destroy of a deletion does not wait for a run before it.
        _ if run.spec == SpecState::Stopped => Supervision::EndWithoutInputs,
        // The edit may correct the pod template, which is not an input of the plan.
        (Some(_), RunnerState::Pending | RunnerState::WithoutAccount) if run.spec == SpecState::Edited => {
            Supervision::EndOutdated
        }
        (_, RunnerState::WithoutAccount) => Supervision::EndWithoutAccount,
        (_, RunnerState::Pending) => Supervision::ReportPending,
        (Some(_), _) => Supervision::Launch,
        (None, _) => Supervision::EndWithoutInputs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::facts_of_a_new_stack;

    fn run_with(spec: &serde_json::Value) -> TerraformRun {
        let mut full_spec = serde_json::json!({ "action": "PlanAndApply", "attempt": 1, "deadline": "1h", "trigger": "Deletion",
            "destroy": true, "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
            "terraform": { "name": "net", "uid": "u", "generation": 1 } });
        let fields = spec.as_object().unwrap().clone();
        full_spec.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": full_spec })).unwrap()
    }

    #[test]
    fn an_edit_replaces_the_destroy_of_a_deletion_or_makes_it_unnecessary() {
        let state = |trigger: &str, edit: &dyn Fn(&mut Facts)| {
            let mut facts = facts_of_a_new_stack();
            (facts.deleting, facts.generation) = (true, 1);
            facts.policy.destroy_on_deletion = true;
            edit(&mut facts);
            let action = if trigger == "Retry" {
                "Unlock"
            } else {
                "PlanAndApply"
            };
            let run = run_with(&serde_json::json!({ "trigger": trigger, "action": action }));
            SpecState::of(&run, &facts)
        };
        assert_eq!(state("Deletion", &|_| ()), SpecState::Unchanged);
        assert_eq!(
            state("Deletion", &|facts| facts.generation = 2),
            SpecState::Edited
        );
        assert_eq!(
            state("Deletion", &|facts| facts.policy.destroy_on_deletion = false),
            SpecState::Stopped
        );
        // The release of a lock before the destroy.
        assert_eq!(state("Retry", &|facts| facts.generation = 2), SpecState::Edited);
        assert_eq!(
            state("Retry", &|facts| facts.policy.destroy_on_deletion = false),
            SpecState::Stopped
        );
        assert_eq!(
            state("Deletion", &|facts| facts.suspended = true),
            SpecState::Stopped
        );
        assert_eq!(
            state("Approval", &|_| ()),
            SpecState::Stopped,
            "a run before the deletion"
        );
    }

    /// Every combination of what is known about a run.
    fn all_states() -> Vec<RunState<'static>> {
        let runners = [
            RunnerState::Alive,
            RunnerState::Pending,
            RunnerState::WithoutAccount,
            RunnerState::Ended,
            RunnerState::Gone,
        ];
        let specs = [SpecState::Unchanged, SpecState::Edited, SpecState::Stopped];
        let mut all = Vec::new();
        for (runner, spec) in runners
            .into_iter()
            .flat_map(|runner| specs.map(|spec| (runner, spec)))
        {
            for current in [None, Some("a"), Some("b")] {
                for (ended, claimed) in [(false, false), (false, true), (true, false), (true, true)] {
                    all.push(RunState {
                        runner,
                        ended,
                        claimed,
                        created_for: "a",
                        current,
                        spec,
                    });
                }
            }
        }
        all
    }

    /// The rules that keep a run from starting twice and from being lost without a proof.
    #[test]
    fn a_runner_is_started_only_where_there_is_no_trace_of_one() {
        let mut steps = std::collections::BTreeSet::new();
        for state in all_states() {
            let RunState {
                runner,
                claimed,
                current,
                spec,
                ..
            } = state;
            let (is_open, step) = (!state.ended, decide_supervision(state));
            let is_unclaimed = |of: RunnerState| runner == of && !claimed && is_open;
            let is_current = current == Some("a");
            let is_kept = match spec {
                SpecState::Unchanged => current != Some("b"),
                SpecState::Edited => current.is_none(),
                SpecState::Stopped => false,
            };
            let can_wait = matches!(runner, RunnerState::Pending | RunnerState::WithoutAccount);
            let has_begun = runner == RunnerState::Alive || can_wait && claimed;
            let is_gone = matches!(runner, RunnerState::Ended | RunnerState::Gone);
            let rules = [
                (
                    Supervision::Launch,
                    is_unclaimed(RunnerState::Gone) && is_current && spec != SpecState::Stopped,
                ),
                (Supervision::MarkLost, claimed && is_open && is_gone),
                (
                    Supervision::ReportPending,
                    is_unclaimed(RunnerState::Pending) && is_kept,
                ),
                (
                    Supervision::MarkFailed,
                    is_unclaimed(RunnerState::Ended) && current != Some("b"),
                ),
                (
                    Supervision::EndWithoutAccount,
                    is_unclaimed(RunnerState::WithoutAccount) && is_kept,
                ),
                (
                    Supervision::EndWithoutInputs,
                    match spec {
                        SpecState::Stopped => {
                            let can_start = can_wait || runner == RunnerState::Gone;
                            can_start && !claimed && is_open && current != Some("b")
                        }
                        _ => is_unclaimed(RunnerState::Gone) && current.is_none(),
                    },
                ),
                (Supervision::Wait, !is_open || has_begun),
            ];
            for (rule, expected) in rules {
                assert_eq!(step == rule, expected, "{step:?} of {state:?}");
            }
            steps.insert(format!("{step:?}"));
        }
        assert_eq!(steps.len(), 8, "each step is possible: {steps:?}");
    }
}
