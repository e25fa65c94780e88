//! Waits for the run of an approved apply: after an approval, the controller needs a moment to create it.

use kube::ResourceExt as _;
use sluice_api::run::{Action, rejection_of};
use sluice_api::terraform::Terraform;
use sluice_api::terraform::approval::{ApprovalDecision, ApprovalPolicy, evaluate_spec};

use super::follow::PAUSE;
use crate::command::Context;
use crate::output::Tone;
use crate::run_row::{RunRow, stack_with_rows};
use crate::{CliError, stack};

/// Returns a stack with the rows of its runs, newest first, as soon as the apply of an approved plan has a run; at once if no plan waits
/// for its apply.
///
/// # Errors
/// The API rejects a request, the stack is gone, or the user pressed Ctrl-C.
pub(super) async fn wait_for_apply_run(
    context: &Context,
    stack: Terraform,
    rows: Vec<RunRow>,
) -> Result<(Terraform, Vec<RunRow>), CliError> {
    // A handler of Ctrl-C stays once it is set, and the requests that follow must end at Ctrl-C.
    if approved_without_run(&stack, &rows).is_none() {
        return Ok((stack, rows));
    }
    let interrupted = CliError::Interrupted {
        object: format!("terraform {}", stack::full_name(&stack)),
        next_command: format!("sluice logs {} -f", stack.name_any()),
    };
    tokio::select! {
        found = poll(context, stack, rows) => found,
        _ = tokio::signal::ctrl_c() => Err(interrupted),
    }
}

async fn poll(
    context: &Context,
    mut stack: Terraform,
    mut rows: Vec<RunRow>,
) -> Result<(Terraform, Vec<RunRow>), CliError> {
    let name = stack.name_any();
    let mut shown = String::new();
    while let Some(plan) = approved_without_run(&stack, &rows) {
        let text = format!(
            "{plan} is approved, waiting for the run of its apply: {}",
            stack::message(&stack)
        );
        note_once(context, &mut shown, text);
        tokio::time::sleep(PAUSE).await;
        match Box::pin(stack_with_rows(&context.cluster, &name)).await {
            Ok(found) => (stack, rows) = found,
            Err(error) if error.is_temporary() => {
                note_once(
                    context,
                    &mut shown,
                    format!("The waiting is interrupted, trying again: {error}"),
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok((stack, rows))
}

/// Prints a text that is not the one that was printed last.
fn note_once(context: &Context, shown: &mut String, text: String) {
    if text != *shown {
        let console = context.console;
        console.note(&console.paint(Tone::Muted, &text));
        *shown = text;
    }
}

/// Returns the plan that is approved by `approvePlan` and whose apply has no run yet. Where PlanApprovals of users are required, the stack
/// does not say whether they are all there. Pure.
fn approved_without_run<'a>(stack: &'a Terraform, rows: &[RunRow]) -> Option<&'a str> {
    let plan = stack::pending_plan(stack)?;
    let newest = rows.first()?;
    let is_planned =
        newest.plan_id == plan && newest.phase.is_final() && newest.action != Action::Apply.as_str();
    let decision = evaluate_spec(ApprovalPolicy::from(&stack.spec), plan);
    let is_approved = stack.spec.approval.is_none()
        && matches!(decision, ApprovalDecision::Approved(_))
        && rejection_of(stack, plan, None).is_none();
    let is_stopped = stack.spec.suspend || stack.metadata.deletion_timestamp.is_some();
    (is_planned && is_approved && !is_stopped).then_some(plan)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_api::annotation::REJECTED_PLAN;
    use sluice_api::run::Phase;

    use super::*;
    use crate::fixture;

    const PLAN: &str = "plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567";

    /// The row of the run that made the plan.
    fn planned() -> RunRow {
        RunRow {
            action: "Plan".to_owned(),
            plan_id: PLAN.to_owned(),
            phase: Phase::Succeeded,
            ..RunRow::default()
        }
    }

    fn stack(changes: &Value) -> Terraform {
        let mut object =
            json!({ "spec": { "approvePlan": PLAN }, "status": { "plan": { "pending": PLAN } } });
        fixture::merge(&mut object, changes);
        fixture::stack(&object)
    }

    #[test]
    fn the_apply_of_an_approved_plan_is_awaited() {
        let rejected = json!({ "metadata": { "annotations": { REJECTED_PLAN: PLAN } } });
        for (changes, is_awaited) in [
            (json!({}), true),
            (json!({ "spec": { "approvePlan": "" } }), false),
            (json!({ "spec": { "approvePlan": "auto" } }), false),
            (json!({ "spec": { "planOnly": true } }), false),
            (json!({ "spec": { "suspend": true } }), false),
            (json!({ "spec": { "approval": { "count": 1 } } }), false),
            (json!({ "status": { "plan": { "pending": "" } } }), false),
            (rejected, false),
        ] {
            let found = stack(&changes);
            assert_eq!(
                approved_without_run(&found, &[planned()]),
                is_awaited.then_some(PLAN),
                "{changes}"
            );
        }
    }

    #[test]
    fn a_newer_run_ends_the_waiting() {
        let stack = stack(&json!({}));
        let apply = RunRow {
            action: "Apply".to_owned(),
            ..planned()
        };
        let active = RunRow {
            phase: Phase::Planning,
            ..planned()
        };
        let other = RunRow {
            plan_id: String::new(),
            ..planned()
        };
        for newest in [apply, active, other] {
            assert_eq!(approved_without_run(&stack, &[newest, planned()]), None);
        }
        assert_eq!(approved_without_run(&stack, &[]), None);
    }
}
