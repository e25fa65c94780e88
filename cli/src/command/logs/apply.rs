//! Waits for the run of an approved apply: after an approval, the controller needs a moment to create it.

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_api::run::{Action, PlanApproval, approvals_of, rejection_of};
use sluice_api::terraform::Terraform;
use sluice_api::terraform::approval::{ApprovalDecision, CandidatePlan, evaluate};
use sluice_api::terraform::required_approvals::ApprovalEvidence;

use super::follow::PAUSE;
use crate::cluster::SelectionArgs;
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
    let approvals = read_approvals(context, &stack, &rows).await?;
    // A handler of Ctrl-C stays once it is set, and the requests that follow must end at Ctrl-C.
    if approved_without_run(&stack, &rows, &approvals).is_none() {
        return Ok((stack, rows));
    }
    let interrupted = CliError::Interrupted {
        object: format!("terraform {}", stack::full_name(&stack)),
        next_command: format!("sluice logs {} -f", stack.name_any()),
    };
    tokio::select! {
        found = poll(context, stack, rows, approvals) => found,
        _ = tokio::signal::ctrl_c() => Err(interrupted),
    }
}

async fn poll(
    context: &Context,
    mut stack: Terraform,
    mut rows: Vec<RunRow>,
    mut approvals: Vec<PlanApproval>,
) -> Result<(Terraform, Vec<RunRow>), CliError> {
    let name = stack.name_any();
    let mut shown = String::new();
    while let Some(plan) = approved_without_run(&stack, &rows, &approvals) {
        let text = format!(
            "{plan} is approved, waiting for the run of its apply: {}",
            stack::message(&stack)
        );
        note_once(context, &mut shown, text);
        tokio::time::sleep(PAUSE).await;
        match Box::pin(read(context, &name)).await {
            Ok(found) => (stack, rows, approvals) = found,
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

/// Reads the stack, the rows of its runs, and the approvals of its plan.
async fn read(
    context: &Context,
    name: &str,
) -> Result<(Terraform, Vec<RunRow>, Vec<PlanApproval>), CliError> {
    let (stack, rows) = stack_with_rows(&context.cluster, name).await?;
    let approvals = read_approvals(context, &stack, &rows).await?;
    Ok((stack, rows, approvals))
}

/// Reads the approvals of users, if they can be those of the plan. A user who may not read them, and an API without the kind, have none.
async fn read_approvals(
    context: &Context,
    stack: &Terraform,
    rows: &[RunRow],
) -> Result<Vec<PlanApproval>, CliError> {
    if stack.spec.approval.is_some() || plan_without_apply(stack, rows).is_none() {
        return Ok(Vec::new());
    }
    let listed = context
        .cluster
        .list::<PlanApproval>(&SelectionArgs::default())
        .await;
    match listed {
        Ok(listed) => Ok(approvals_of(&stack.name_any(), listed)),
        Err(error) if error.is_refused_read() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Prints a text that is not the one that was printed last.
fn note_once(context: &Context, shown: &mut String, text: String) {
    if text != *shown {
        let console = context.console;
        console.note(&console.paint(Tone::Muted, &text));
        *shown = text;
    }
}

/// Returns the plan that waits, if the newest run is the one that made it. Pure.
fn plan_without_apply<'a>(stack: &'a Terraform, rows: &[RunRow]) -> Option<&'a str> {
    let plan = stack::pending_plan(stack)?;
    let newest = rows.first()?;
    let is_planned =
        newest.plan_id == plan && newest.phase.is_final() && newest.action != Action::Apply.as_str();
    let is_stopped = stack.spec.suspend || stack.metadata.deletion_timestamp.is_some();
    (is_planned && !is_stopped).then_some(plan)
}

/// Returns the plan that a user has approved and whose apply has no run yet. Where approvals of users are required, the stack does not say
/// whether they are all there. Pure.
fn approved_without_run<'a>(
    stack: &'a Terraform,
    rows: &[RunRow],
    approvals: &[PlanApproval],
) -> Option<&'a str> {
    let plan = plan_without_apply(stack, rows).filter(|_| stack.spec.approval.is_none())?;
    // The controller writes into the status of an approval that it does not count: for example, because it is older than the plan.
    let counting: Vec<_> = approvals.iter().filter(|one| !is_refused(one)).cloned().collect();
    let rejection = rejection_of(stack, plan, None);
    let decision = evaluate(
        &stack.spec,
        CandidatePlan {
            id: plan,
            evidence: ApprovalEvidence {
                approvals: &counting,
                author: "",
                since: Some(Timestamp::UNIX_EPOCH),
            },
            rejection: rejection.as_ref(),
            ..CandidatePlan::default()
        },
    );
    let is_approved = matches!(
        decision,
        ApprovalDecision::Approved(_) | ApprovalDecision::Agreed(_)
    );
    is_approved.then_some(plan)
}

/// Returns whether the controller has found that an approval does not count.
fn is_refused(approval: &PlanApproval) -> bool {
    let status = approval.status.as_ref();
    status.is_some_and(|status| !status.accepted && !status.reason.is_empty())
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
                approved_without_run(&found, &[planned()], &[]),
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
            assert_eq!(approved_without_run(&stack, &[newest, planned()], &[]), None);
        }
        assert_eq!(approved_without_run(&stack, &[], &[]), None);
    }

    #[test]
    fn the_apply_of_a_plan_that_a_user_approved_is_awaited() {
        let approval = |plan: &str, status: &Value| -> PlanApproval {
            serde_json::from_value(json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval",
                "metadata": { "name": "one", "creationTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "approver": "alice", "planID": plan, "terraformRef": { "name": "app" } }, "status": status }))
            .unwrap()
        };
        let other = PLAN.replace('0', "1");
        let refused = json!({ "accepted": false, "reason": "BeforePlan" });
        let counted = json!({ "accepted": true, "reason": "Counted" });
        let waits = json!({ "approvePlan": "" });
        for (spec, approval, is_awaited) in [
            (waits.clone(), approval(PLAN, &Value::Null), true),
            (waits.clone(), approval(PLAN, &counted), true),
            (waits.clone(), approval(PLAN, &refused), false),
            (waits.clone(), approval(&other, &Value::Null), false),
            (
                json!({ "approvePlan": "disable" }),
                approval(PLAN, &counted),
                false,
            ),
            (json!({ "approval": {} }), approval(PLAN, &counted), false),
        ] {
            let found = stack(&json!({ "spec": spec }));
            assert_eq!(
                approved_without_run(&found, &[planned()], std::slice::from_ref(&approval)),
                is_awaited.then_some(PLAN),
                "{spec} {:?}",
                approval.status
            );
        }
    }
}
