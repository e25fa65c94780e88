//! Parts of the reports of `status`, `tree`, `describe` and `diff` as JSON and YAML. Their fields are part of the interface
//! (docs/reference/cli.md). Pure.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_api::run::Change;
use sluice_api::terraform::Terraform;

use crate::run_row::RunRow;
use crate::stack;

/// Returns what lists show of a stack.
pub(super) fn stack(stack: &Terraform) -> Value {
    let ready = stack::ready(stack);
    json!({
        "namespace": stack.namespace().unwrap_or_default(),
        "name": stack.name_any(),
        "state": stack::state(stack).as_str(),
        "reason": ready.map(|ready| ready.reason.as_str()),
        "message": stack::message(stack),
        "pendingPlan": stack::pending_plan(stack),
    })
}

/// Returns what lists show of a run.
pub(super) fn run(row: &RunRow) -> Value {
    let time = |time: Option<jiff::Timestamp>| time.map(|time| time.to_string());
    json!({
        "name": row.name,
        "number": row.number(),
        "action": row.action,
        "trigger": row.trigger,
        "phase": row.phase.as_str(),
        "message": row.message,
        "revision": row.revision,
        "subject": row.subject,
        "changes": row.changes,
        "planID": row.plan_id,
        "approvedBy": row.approved_by,
        "startedAt": time(row.started),
        "finishedAt": time(row.finished),
    })
}

/// Returns a change of a plan.
pub(super) fn change(change: &Change) -> Value {
    json!({ "action": change.action, "address": change.address })
}
