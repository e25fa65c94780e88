//! What a user wants to know of a Terraform object: its state in one word, and why. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use sluice_api::condition::{TerraformCondition, find};
use sluice_api::terraform::{Reason, Terraform};

use crate::output::Tone;

/// The state of a stack, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StackState {
    /// A plan waits for an approval.
    AwaitsApproval,
    /// The last run failed, or only a change of the spec helps.
    Failed,
    /// The resources differ from the configuration, and no plan waits for an approval.
    Drifted,
    /// The plan that waited was rejected.
    Rejected,
    /// The object is being deleted.
    Deleting,
    /// A run is in progress or queued.
    Running,
    /// The source or a dependency is not ready.
    Waiting,
    /// A plan is shown and not applied (`planOnly`, `disable`).
    Planned,
    /// The object is not reconciled.
    Suspended,
    /// The resources match the configuration.
    Ready,
}

impl StackState {
    /// Returns the word for the state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AwaitsApproval => "AwaitsApproval",
            Self::Failed => "Failed",
            Self::Drifted => "Drifted",
            Self::Rejected => "Rejected",
            Self::Deleting => "Deleting",
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Planned => "Planned",
            Self::Suspended => "Suspended",
            Self::Ready => "Ready",
        }
    }

    /// Returns the colour of the word.
    #[must_use]
    pub const fn tone(self) -> Tone {
        match self {
            Self::AwaitsApproval | Self::Drifted | Self::Rejected => Tone::Attention,
            Self::Failed => Tone::Bad,
            Self::Ready => Tone::Good,
            Self::Suspended | Self::Planned => Tone::Muted,
            Self::Deleting | Self::Running | Self::Waiting => Tone::Plain,
        }
    }
}

/// Returns the state of a stack.
#[must_use]
pub fn state(stack: &Terraform) -> StackState {
    if stack.metadata.deletion_timestamp.is_some() {
        return StackState::Deleting;
    }
    if stack.spec.suspend {
        return StackState::Suspended;
    }
    if !is_observed(stack) {
        return StackState::Running;
    }
    let Some(ready) = ready(stack) else {
        return StackState::Running;
    };
    if ready.reason == Reason::PlanRejected {
        return StackState::Rejected;
    }
    if stalled(stack).is_some() {
        return StackState::Failed;
    }
    let is_planned =
        ready.reason == Reason::TerraformPlannedWithChanges || ready.reason == Reason::DriftDetected;
    if is_planned && pending_plan(stack).is_some() {
        return state_of_plan(stack);
    }
    match ready.status.as_str() {
        "True" => StackState::Ready,
        "False" if ready.reason == Reason::DriftDetected => StackState::Drifted,
        "False" if is_waiting(&ready.reason) => StackState::Waiting,
        "False" => StackState::Failed,
        _ => StackState::Running,
    }
}

fn state_of_plan(stack: &Terraform) -> StackState {
    let disabled = stack.spec.approve_plan == "disable";
    if disabled || stack.spec.plan_only {
        let drifted = stack.status.as_ref().is_some_and(|status| status.drift.is_some());
        return if drifted {
            StackState::Drifted
        } else {
            StackState::Planned
        };
    }
    StackState::AwaitsApproval
}

/// Returns the plan that waits, if there is one.
#[must_use]
pub fn pending_plan(stack: &Terraform) -> Option<&str> {
    let plan = stack.status.as_ref()?.plan.as_ref()?;
    (!plan.pending.is_empty()).then_some(plan.pending.as_str())
}

/// Returns the condition `Ready`.
#[must_use]
pub fn ready(stack: &Terraform) -> Option<&Condition> {
    find(&stack.status.as_ref()?.conditions, TerraformCondition::Ready)
}

fn stalled(stack: &Terraform) -> Option<&Condition> {
    find(&stack.status.as_ref()?.conditions, TerraformCondition::Stalled)
        .filter(|condition| condition.status == "True")
}

/// Returns whether the controller has seen the spec. Otherwise the conditions are those of an earlier spec.
fn is_observed(stack: &Terraform) -> bool {
    let observed = stack
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    observed.is_some_and(|observed| stack.metadata.generation.is_none_or(|now| observed >= now))
}

/// Returns whether the reason says that something else has to become ready first.
fn is_waiting(reason: &str) -> bool {
    matches!(
        reason,
        "DependencyNotReady"
            | "ArtifactFailed"
            | "DeletionBlockedByDependantsReason"
            | "DestroyBlockedByDependants"
    )
}

/// Returns the message for the state: that of `Ready`, or why there is none.
#[must_use]
pub fn message(stack: &Terraform) -> &str {
    if stack.spec.suspend && stack.metadata.deletion_timestamp.is_none() {
        return "suspended: sluice resume starts it again";
    }
    match ready(stack) {
        Some(ready) if is_observed(stack) => ready.message.as_str(),
        Some(_) => progress(stack).unwrap_or("the controller has not seen the last change yet"),
        None => "no controller has reconciled it yet",
    }
}

/// Returns what a run of the present spec does. The controller observes the generation of an object only after its run.
#[must_use]
pub fn progress(stack: &Terraform) -> Option<&str> {
    let ready = ready(stack)?;
    let is_current = ready.observed_generation == stack.metadata.generation;
    (is_current && ready.reason == "Progressing").then_some(ready.message.as_str())
}

/// Returns namespace and name: `default/app`.
#[must_use]
pub fn full_name(stack: &Terraform) -> String {
    format!("{}/{}", stack.namespace().unwrap_or_default(), stack.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{self, condition, ready};

    fn stack(spec: &Value, status: &Value) -> Terraform {
        fixture::stack(&json!({ "spec": spec, "status": status }))
    }

    #[test]
    fn the_state_follows_ready() {
        for (status, expected) in [
            (ready("True", "TerraformAppliedSucceed"), StackState::Ready),
            (ready("Unknown", "Progressing"), StackState::Running),
            (ready("False", "ArtifactFailed"), StackState::Waiting),
            (ready("False", "DependencyNotReady"), StackState::Waiting),
            (ready("False", "TFExecPlanFailed"), StackState::Failed),
            (ready("False", "DriftDetected"), StackState::Drifted),
            (ready("False", "PlanRejected"), StackState::Rejected),
            (json!({}), StackState::Running),
        ] {
            assert_eq!(state(&stack(&json!({}), &status)), expected, "{status}");
        }
    }

    #[test]
    fn a_plan_waits_for_an_approval_unless_it_is_never_applied() {
        let mut status = ready("Unknown", "TerraformPlannedWithChanges");
        status["plan"] = json!({"pending": "plan-main-0123456789-x"});
        for (spec, expected) in [
            (json!({}), StackState::AwaitsApproval),
            (json!({"approvePlan": "auto"}), StackState::AwaitsApproval),
            (json!({"approvePlan": "disable"}), StackState::Planned),
            (json!({"planOnly": true}), StackState::Planned),
            (json!({"suspend": true}), StackState::Suspended),
        ] {
            assert_eq!(state(&stack(&spec, &status)), expected, "{spec}");
        }
    }

    #[test]
    fn conditions_of_an_earlier_spec_do_not_count() {
        let mut status = ready("True", "TerraformAppliedSucceed");
        status["observedGeneration"] = json!(1);
        let stack = stack(&json!({}), &status);
        assert_eq!(state(&stack), StackState::Running);
        assert_eq!(message(&stack), "the controller has not seen the last change yet");
    }

    #[test]
    fn a_run_of_the_present_spec_has_its_message() {
        for (generation, expected) in [
            (1, "the controller has not seen the last change yet"),
            (2, "Applying"),
        ] {
            let mut status = ready("Unknown", "Progressing");
            status["observedGeneration"] = json!(1);
            status["conditions"][0]["observedGeneration"] = json!(generation);
            status["conditions"][0]["message"] = json!("Applying");
            assert_eq!(message(&stack(&json!({}), &status)), expected);
        }
    }

    #[test]
    fn a_stalled_stack_has_failed_whatever_ready_says() {
        let conditions = [
            condition("Stalled", "True", "AccessDenied"),
            condition("Ready", "False", "ArtifactFailed"),
        ];
        assert_eq!(
            state(&stack(&json!({}), &json!({"conditions": conditions}))),
            StackState::Failed
        );
    }
}
