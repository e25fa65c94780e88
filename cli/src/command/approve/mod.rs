//! `sluice approve`: shows the plan, asks, and creates a PlanApproval of the user. Who may not create one writes the id into
//! `spec.approvePlan`, unless the stack requires approvals of users.

mod write;

use std::path::{Path, PathBuf};

use kube::ResourceExt as _;
use sluice_api::run::rejection_of;
use sluice_api::terraform::approval::{ApprovalDecision, ApprovalPolicy, evaluate_spec};
use sluice_api::terraform::{Reason, Terraform};

use super::plan::{describe_plan, read_shown_run};
use super::{Context, waiting};
use crate::cluster::{Cluster, ConnectionArgs, SelectionArgs};
use crate::manifest::{self, Identity};
use crate::run_row::rows_of;
use crate::stack::{self, StackState};
use crate::wait::WaitArgs;
use crate::{CliError, ExitStatus, file, permission};

/// Arguments of `sluice approve`.
#[derive(clap::Args, Debug)]
pub struct ApproveArgs {
    /// The stack.
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    pub name: Option<String>,
    /// All stacks whose plans wait, one after the other.
    #[arg(long)]
    pub all: bool,
    /// With --all: stacks with these labels.
    #[arg(short = 'l', long, value_name = "LABELS", requires = "all")]
    pub selector: Option<String>,
    /// Approve only the plan with this id.
    #[arg(long, value_name = "PLAN", conflicts_with = "all")]
    pub id: Option<String>,
    /// Write the approval into this manifest of the stack, for GitOps. The API is not changed.
    #[arg(short = 'f', long, value_name = "MANIFEST", conflicts_with = "all")]
    pub file: Option<PathBuf>,
    /// Why you approve. The run records it.
    #[arg(short = 'm', long, value_name = "TEXT", conflicts_with = "file")]
    pub comment: Option<String>,
    /// Do not ask.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// How long to wait for the apply.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Where an approval was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalRecord {
    /// A PlanApproval, which names the user.
    PlanApproval,
    /// `spec.approvePlan`, which names no user.
    ApprovePlan,
}

/// Approves the plan that waits.
pub(super) async fn approve(context: &Context, args: &ApproveArgs) -> Result<ExitStatus, CliError> {
    if args.wait.wait && (args.all || args.file.is_some()) {
        return Err(CliError::Usage(
            "--wait is for one plan that is approved in the API: leave out --all and --file".to_owned(),
        ));
    }
    let Some(name) = &args.name else {
        return approve_all(context, args).await;
    };
    let stack: Terraform = context.cluster.get(name).await?;
    approve_stack(context, args, &stack).await
}

/// Approves the plans of all selected stacks that wait, each after a question of its own.
async fn approve_all(context: &Context, args: &ApproveArgs) -> Result<ExitStatus, CliError> {
    let selection = SelectionArgs {
        all_namespaces: false,
        selector: args.selector.clone(),
    };
    let mut stacks: Vec<Terraform> = context.cluster.list(&selection).await?;
    stacks.retain(|stack| stack::state(stack) == StackState::AwaitsApproval);
    stacks.sort_by_key(stack::full_name);
    if stacks.is_empty() {
        context.console.note("No plan waits for an approval.");
    }
    let mut result = ExitStatus::Success;
    for stack in &stacks {
        match approve_stack(context, args, stack).await {
            Ok(ExitStatus::Success) => {}
            Ok(_) => result = ExitStatus::Failed,
            Err(error) if concerns_one_stack(&error) => {
                context.report(&error);
                result = ExitStatus::Failed;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(result)
}

/// Returns whether the same command may succeed for another stack: this one is in the wrong state or gone, or an admission policy, a quota or a
/// validation refuses its approval. A permission that the user lacks concerns all. Pure.
fn concerns_one_stack(error: &CliError) -> bool {
    match error.api_status() {
        Some(status) if status.code == 403 => !permission::is_missing(&status.message),
        Some(status) => matches!(status.code, 409 | 422),
        None => matches!(error, CliError::Refused { .. } | CliError::NotFound { .. }),
    }
}

async fn approve_stack(
    context: &Context,
    args: &ApproveArgs,
    stack: &Terraform,
) -> Result<ExitStatus, CliError> {
    let plan = plan_to_approve(stack, args.id.as_deref())?;
    check_form(stack, plan, args)?;
    if !args.yes {
        let rows = rows_of(&context.cluster, stack).await?;
        let run = read_shown_run(&context.cluster, stack, &rows).await?;
        context.console.note(&describe_plan(stack, &run, context.console));
        if !context.console.confirm(&format!("Approve {plan}?"), "--yes")? {
            context.console.note("Nothing was approved.");
            return Ok(ExitStatus::Failed);
        }
    }
    // On the heap: it has the stack once more.
    Box::pin(approve_shown(context, args, stack, plan)).await
}

/// Approves the plan that was shown, if it waits after the answer too.
async fn approve_shown(
    context: &Context,
    args: &ApproveArgs,
    shown: &Terraform,
    plan: &str,
) -> Result<ExitStatus, CliError> {
    let stack = &write::read_again(&context.cluster, shown, plan).await?;
    check_form(stack, plan, args)?;
    if let Some(path) = &args.file {
        write_manifest(context, stack, plan, path)?;
        context
            .console
            .note(&format!("{} approves {plan}. Commit it.", path.display()));
        return Ok(ExitStatus::Success);
    }
    let record = write::approval(&context.cluster, stack, plan, args.comment.as_deref()).await?;
    note_next_step(context, stack, plan, record);
    if args.wait.wait {
        waiting::for_apply(context, stack, plan, args.wait.timeout).await?;
    }
    Ok(ExitStatus::Success)
}

/// Says what was approved, and what the user can do now.
fn note_next_step(context: &Context, stack: &Terraform, plan: &str, record: ApprovalRecord) {
    let name = stack.name_any();
    let next = if stack.spec.approval.is_some() {
        format!("`sluice describe {name}` says which approvals are missing.")
    } else {
        format!("`sluice logs {name} -f` follows the apply.")
    };
    context.console.note(&format!("Approved {plan}. {next}"));
    if record == ApprovalRecord::PlanApproval {
        return;
    }
    if !needs_id(stack, plan) {
        context.console.note(
            "It is in spec.approvePlan, where nothing verifies your name: you may not create a PlanApproval (role sluice-approve).",
        );
    }
    if stack.spec.approve_plan == "auto" {
        context
            .console
            .note("The plan was held. Set approvePlan back to \"auto\" after its apply.");
    }
}

/// Returns whether only an id in `spec.approvePlan` approves the plan: of the destroy of a deleted object, and where `replan-…` is there,
/// which comes before PlanApprovals. Pure.
fn needs_id(stack: &Terraform, plan: &str) -> bool {
    let by_spec = evaluate_spec(ApprovalPolicy::from(&stack.spec), plan);
    let is_replan = stack.spec.approval.is_none() && by_spec == ApprovalDecision::Replan;
    is_replan || stack.metadata.deletion_timestamp.is_some()
}

/// Refuses flags that have no meaning for the approval of this plan.
fn check_form(stack: &Terraform, plan: &str, args: &ApproveArgs) -> Result<(), CliError> {
    let cause = match (&stack.spec.approval, &args.file, &args.comment) {
        (Some(_), Some(_), _) => {
            "its spec.approval requires PlanApprovals of users: an id in a manifest approves nothing"
        }
        (_, _, Some(_)) if needs_id(stack, plan) => {
            "only an id in spec.approvePlan approves this plan, and that has no comment"
        }
        _ => return Ok(()),
    };
    Err(CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: cause.to_owned(),
        next_command: format!("sluice approve {}", stack.name_any()),
    })
}

/// Writes the id into the manifest of the stack and leaves the rest of the file as it is.
fn write_manifest(context: &Context, stack: &Terraform, plan: &str, path: &Path) -> Result<(), CliError> {
    let failed = |action: &str, source| CliError::File {
        what: format!("cannot {action} {}", path.display()),
        source,
    };
    let text = std::fs::read_to_string(path).map_err(|source| failed("read", source))?;
    let name = stack.name_any();
    let identity = Identity {
        kind: "Terraform",
        namespace: context.cluster.namespace(),
        name: &name,
    };
    let edited =
        manifest::set_spec_text(&text, identity, "approvePlan", plan).map_err(|error| CliError::Refused {
            object: path.display().to_string(),
            cause: error.to_string(),
            next_command: String::new(),
        })?;
    file::replace(path, &edited).map_err(|source| failed("write", source))
}

/// Approves the plan with this id without a question, if it still waits. `cluster` has the namespace of the stack.
///
/// # Errors
/// Another plan waits or none, it is another object, the plans of the stack are never applied, or the API rejects the approval.
pub async fn approve_plan(
    cluster: &Cluster,
    stack: &Terraform,
    plan: &str,
) -> Result<ApprovalRecord, CliError> {
    let stack = write::read_again(cluster, stack, plan).await?;
    write::approval(cluster, &stack, plan, None).await
}

/// Returns the id of the plan that waits; it must be `id`, if there is one.
///
/// # Errors
/// Another plan waits or none, it was rejected, or the plans of the stack are never applied.
pub fn plan_to_approve<'a>(stack: &'a Terraform, id: Option<&str>) -> Result<&'a str, CliError> {
    let plan = waiting_plan(stack, id)?;
    if stack::state(stack) == StackState::Suspended {
        return Err(refused(stack, "it is suspended".to_owned(), "resume"));
    }
    Ok(plan)
}

/// Returns the id of the plan that waits, as [`plan_to_approve`] does; also of a suspended stack.
///
/// # Errors
/// As [`plan_to_approve`].
pub(super) fn waiting_plan<'a>(stack: &'a Terraform, id: Option<&str>) -> Result<&'a str, CliError> {
    let Some(plan) = stack::pending_plan(stack) else {
        let ready = stack::ready(stack);
        return Err(match ready.filter(|ready| ready.reason == Reason::PlanRejected) {
            Some(ready) => refused(stack, ready.message.clone(), "replan"),
            None => CliError::Refused {
                object: format!("terraform {}", stack::full_name(stack)),
                cause: "no plan waits for an approval".to_owned(),
                next_command: format!("sluice plan show {} --wait", stack.name_any()),
            },
        });
    };
    if id.is_some_and(|id| id != plan) {
        return Err(refused(
            stack,
            format!("the plan that waits is {plan}"),
            "plan show",
        ));
    }
    // The controller may not have seen the rejection yet.
    if let Some(rejection) = rejection_of(stack, plan, None) {
        return Err(refused(stack, format!("{plan} was {rejection}"), "replan"));
    }
    match stack::state(stack) {
        StackState::Planned | StackState::Drifted => Err(refused(
            stack,
            "its plans are never applied (planOnly: true, or approvePlan: disable)".to_owned(),
            "get terraforms",
        )),
        _ => Ok(plan),
    }
}

/// Returns the error of a stack in the wrong state, with the next command without the name of the stack.
pub(super) fn refused(stack: &Terraform, cause: String, next_command: &str) -> CliError {
    CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause,
        next_command: format!("sluice {next_command} {}", stack.name_any()),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use crate::fixture;

    #[test]
    fn only_an_error_of_one_stack_leaves_the_others_to_do() {
        let missing = "planapprovals.infra.sluice.dev is forbidden: User \"edda\" cannot create resource \"planapprovals\" in API group \
                       \"infra.sluice.dev\" in the namespace \"team\"";
        let policy = "planapprovals.infra.sluice.dev \"a\" is forbidden: ValidatingAdmissionPolicy 'freeze' denied request: not today";
        for (code, message, expected) in [
            (403, policy, true),
            (403, missing, false),
            (409, "conflict", true),
            (422, "invalid", true),
            (401, "unauthorized", false),
            (500, "away", false),
        ] {
            let status = Status {
                code,
                message: message.to_owned(),
                ..Status::default()
            };
            let error = CliError::Api {
                action: "create",
                object: "planapproval team/a".to_owned(),
                source: Box::new(kube::Error::Api(Box::new(status))),
            };
            assert_eq!(concerns_one_stack(&error), expected, "{code} {message}");
        }
        let stack = fixture::stack(&json!({}));
        assert!(concerns_one_stack(&refused(
            &stack,
            "it is suspended".to_owned(),
            "resume"
        )));
        assert!(!concerns_one_stack(&CliError::Usage(String::new())));
    }

    #[test]
    fn only_an_id_approves_a_destroy_on_deletion_and_ends_a_requested_plan() {
        let plan = "plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567";
        let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        for (changes, expected) in [
            (json!({}), false),
            (json!({ "spec": { "approvePlan": "auto" } }), false),
            (json!({ "spec": { "approvePlan": "replan-main-b8e3" } }), true),
            (
                json!({ "spec": { "approvePlan": "replan-main-b8e3", "approval": {} } }),
                false,
            ),
            (deleted, true),
        ] {
            assert_eq!(needs_id(&fixture::stack(&changes), plan), expected, "{changes}");
        }
    }
}
