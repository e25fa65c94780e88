//! `sluice approve`: shows the plan, asks, and writes its id into `spec.approvePlan`.

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::terraform::Terraform;

use super::Context;
use super::history::runs_of;
use super::plan::{describe_plan, shown_run};
use crate::cluster::{ConnectionArgs, describe};
use crate::stack::{self, StackState};
use crate::{CliError, ExitStatus};

/// The field manager of the command line. The run records it as the approver.
const FIELD_MANAGER: &str = "sluice-approve";

/// Arguments of `sluice approve`.
#[derive(clap::Args, Debug)]
pub struct ApproveArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Approve only the plan with this id.
    #[arg(long, value_name = "PLAN")]
    pub id: Option<String>,
    /// Do not ask.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Approves the plan that waits.
pub(super) async fn approve(context: &Context, args: &ApproveArgs) -> Result<ExitStatus, CliError> {
    let stack: Terraform = context.cluster.get(&args.name).await?;
    let plan = plan_to_approve(&stack, args.id.as_deref())?.to_owned();
    let runs = runs_of(&context.cluster, &stack).await?;
    if !args.yes {
        let run = shown_run(&stack, &runs)?;
        context.console.note(&describe_plan(&stack, run, context.console));
        if !context.console.confirm(&format!("Approve {plan}?"), "--yes")? {
            context.console.note("Nothing was approved.");
            return Ok(ExitStatus::Failed);
        }
    }
    write_approval(context, &stack, &plan).await?;
    let name = stack.name_any();
    context.console.note(&format!(
        "Approved {plan}. `sluice logs {name} -f` follows the apply."
    ));
    Ok(ExitStatus::Success)
}

/// Returns the id of the plan that waits.
fn plan_to_approve<'a>(stack: &'a Terraform, id: Option<&str>) -> Result<&'a str, CliError> {
    let refuse = |cause: String| CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause,
        next_command: format!("sluice get terraforms {}", stack.name_any()),
    };
    let Some(plan) = stack::pending_plan(stack) else {
        return Err(refuse("no plan waits for an approval".to_owned()));
    };
    if id.is_some_and(|id| id != plan) {
        return Err(refuse(format!("the plan that waits is {plan}")));
    }
    match stack::state(stack) {
        StackState::Planned | StackState::Drifted => Err(refuse(
            "its plans are never applied (planOnly: true, or approvePlan: disable)".to_owned(),
        )),
        StackState::Suspended => Err(refuse("it is suspended".to_owned())),
        _ => Ok(plan),
    }
}

/// Writes the id, if that plan still waits: the patch has a test of it (RFC 6902).
async fn write_approval(context: &Context, stack: &Terraform, plan: &str) -> Result<(), CliError> {
    let name = stack.name_any();
    let patch = json!([
        { "op": "test", "path": "/metadata/uid", "value": stack.uid() },
        { "op": "test", "path": "/status/plan/pending", "value": plan },
        { "op": "add", "path": "/spec/approvePlan", "value": plan },
    ]);
    let operations = serde_json::from_value(patch).map_err(|error| CliError::Format(error.to_string()))?;
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let stacks = context.cluster.objects::<Terraform>();
    let written = stacks
        .patch(&name, &params, &Patch::<Terraform>::Json(operations))
        .await;
    written.map(drop).map_err(|source| CliError::Api {
        action: "patch",
        object: describe::<Terraform>(context.cluster.namespace(), &name),
        source: Box::new(source),
    })
}
