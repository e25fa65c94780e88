//! What `sluice plan show --wait` and `sluice approve --wait` wait for.

use std::time::Duration;

use sluice_api::terraform::Terraform;

use super::Context;
use super::reconcile::stack_target;
use crate::output::printable;
use crate::wait::{self, Progress, stack_result};
use crate::{CliError, stack};

/// Waits until a plan waits for an approval, or the stack is ready without one.
///
/// # Errors
/// The stack does not exist, is suspended, or fails; the timeout is over.
pub(super) async fn for_plan(context: &Context, name: &str, timeout: Duration) -> Result<(), CliError> {
    let stack: Terraform = context.cluster.get(name).await?;
    let target = stack_target(&stack, timeout);
    let progress_of = |found: Option<&Terraform>| stack_result(found, None);
    match wait::until(&context.cluster, &target, progress_of).await {
        Ok(_) | Err(CliError::AwaitsApproval { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Waits until the approved plan is applied and the stack is ready, and says so.
///
/// # Errors
/// The apply fails, or another plan waits instead; the stack is suspended; the timeout is over.
pub(super) async fn for_apply(
    context: &Context,
    stack: &Terraform,
    plan: &str,
    timeout: Duration,
) -> Result<(), CliError> {
    let target = stack_target(stack, timeout);
    let progress_of = |found: Option<&Terraform>| apply_result(found, plan);
    let message = wait::until(&context.cluster, &target, progress_of).await?;
    let name = stack::full_name(stack);
    context
        .console
        .note(&printable(&format!("terraform {name}: {message}")));
    Ok(())
}

/// Returns whether a stack is ready after the approval of a plan. Until its apply begins, that plan still waits. Pure.
fn apply_result(found: Option<&Terraform>, plan: &str) -> Result<Progress<String>, CliError> {
    match stack_result(found, None) {
        Err(CliError::AwaitsApproval { plan: waiting, .. }) if waiting == plan => {
            let message = found.map(stack::message).unwrap_or_default();
            Ok(Progress::Waiting(message.to_owned()))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ExitStatus;

    fn stack(ready: &Value, pending: &str) -> Terraform {
        serde_json::from_value(json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": {"name": "app", "namespace": "default", "generation": 2},
            "spec": {"interval": "1m", "approvePlan": "plan-a", "sourceRef": {"kind": "GitRepository", "name": "repo"}},
            "status": {"observedGeneration": 2, "plan": {"pending": pending}, "conditions": [ready]},
        }))
        .unwrap()
    }

    fn ready(status: &str, reason: &str, message: &str) -> Value {
        json!({"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn the_approved_plan_waits_until_its_apply_begins() {
        let waits = ready("Unknown", "TerraformPlannedWithChanges", "Plan generated");
        let approved = apply_result(Some(&stack(&waits, "plan-a")), "plan-a").unwrap();
        assert_eq!(approved, Progress::Waiting("Plan generated".to_owned()));
        let replaced = apply_result(Some(&stack(&waits, "plan-b")), "plan-a").unwrap_err();
        assert_eq!(replaced.exit_status(), ExitStatus::AwaitsApproval);
        let applied = ready("True", "TerraformAppliedSucceed", "Applied");
        let applied = apply_result(Some(&stack(&applied, "")), "plan-a").unwrap();
        assert_eq!(applied, Progress::Done("Applied".to_owned()));
        let failed = ready("False", "TFExecApplyFailed", "exit status 1");
        let failed = apply_result(Some(&stack(&failed, "")), "plan-a").unwrap_err();
        assert_eq!(failed.exit_status(), ExitStatus::Failed);
    }
}
