//! `sluice approve`: shows the plan, asks, and creates a PlanApproval of the user. Who may not create one writes the id into
//! `spec.approvePlan`, unless the stack requires approvals of users.

use std::path::{Path, PathBuf};

use k8s_openapi::api::authentication::v1::UserInfo;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::run::rejection_of;
use sluice_api::terraform::approval::{ApprovalDecision, ApprovalPolicy, evaluate_spec};
use sluice_api::terraform::{Reason, Terraform};

use super::plan::{describe_plan, read_shown_run};
use super::{Context, plan_approval, waiting};
use crate::cluster::{Cluster, ConnectionArgs, SelectionArgs, describe};
use crate::manifest::{self, Identity};
use crate::run_row::rows_of;
use crate::stack::{self, StackState};
use crate::wait::WaitArgs;
use crate::{CliError, ExitStatus, file};

/// The beginning of the field manager of the command line; the name of the user follows. The run records it as the approver.
const FIELD_MANAGER: &str = "sluice-approve";
/// The longest field manager (`FieldManagerMaxLength` of k8s.io/apimachinery).
const MANAGER_LENGTH: usize = 128;

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
        if approve_stack(context, args, stack).await? != ExitStatus::Success {
            result = ExitStatus::Failed;
        }
    }
    Ok(result)
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
    if let Some(path) = &args.file {
        write_manifest(context, stack, plan, path)?;
        context
            .console
            .note(&format!("{} approves {plan}. Commit it.", path.display()));
        return Ok(ExitStatus::Success);
    }
    let record = write_approval(&context.cluster, stack, plan, args.comment.as_deref()).await?;
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

/// Approves the plan with this id without a question. `cluster` has the namespace of the stack.
///
/// # Errors
/// Another plan waits or none, the plans of the stack are never applied, or the API rejects the approval.
pub async fn approve_plan(
    cluster: &Cluster,
    stack: &Terraform,
    plan: &str,
) -> Result<ApprovalRecord, CliError> {
    let plan = plan_to_approve(stack, Some(plan))?;
    write_approval(cluster, stack, plan, None).await
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

/// Creates a PlanApproval. If the API does not permit that, writes the id, which has no comment and is no approval that `spec.approval`
/// requires.
async fn write_approval(
    cluster: &Cluster,
    stack: &Terraform,
    plan: &str,
    comment: Option<&str>,
) -> Result<ApprovalRecord, CliError> {
    let user = plan_approval::who_am_i(cluster.client()).await;
    let manager = field_manager(user.as_ref().ok());
    if needs_id(stack, plan) {
        write_id(cluster, stack, plan, manager).await?;
        return Ok(ApprovalRecord::ApprovePlan);
    }
    let created = match user {
        Ok(user) => plan_approval::create(cluster, stack, plan, comment.unwrap_or_default(), &user).await,
        Err(error) => Err(error),
    };
    let Err(refusal) = created else {
        return Ok(ApprovalRecord::PlanApproval);
    };
    let must_be_object = stack.spec.approval.is_some() || comment.is_some();
    if must_be_object || !refusal.is_refused_request() {
        return Err(refusal);
    }
    match write_id(cluster, stack, plan, manager).await {
        Ok(()) => Ok(ApprovalRecord::ApprovePlan),
        // Of both rights, that to create a PlanApproval is the smaller one: its error names the role to ask for.
        Err(error) if error.is_forbidden() && refusal.is_forbidden() => Err(refusal),
        Err(error) => Err(error),
    }
}

/// Returns the field manager of an approval by the id: `sluice-approve:alice`. The API server does not verify the name. Pure.
fn field_manager(user: Option<&UserInfo>) -> String {
    let name = user.and_then(|user| user.username.as_deref()).unwrap_or_default();
    let separator = if name.is_empty() { "" } else { ":" };
    let manager = format!("{FIELD_MANAGER}{separator}{name}");
    // The length is counted in bytes.
    let is_within = |(index, letter): &(usize, char)| index + letter.len_utf8() <= MANAGER_LENGTH;
    let kept = manager.char_indices().take_while(is_within);
    kept.map(|(_, letter)| letter)
        .filter(|letter| !letter.is_control())
        .collect()
}

/// Writes the id, if that plan still waits: the patch has a test of it (RFC 6902).
async fn write_id(cluster: &Cluster, stack: &Terraform, plan: &str, manager: String) -> Result<(), CliError> {
    let name = stack.name_any();
    let patch = json!([
        { "op": "test", "path": "/metadata/uid", "value": stack.uid() },
        { "op": "test", "path": "/status/plan/pending", "value": plan },
        { "op": "add", "path": "/spec/approvePlan", "value": plan },
    ]);
    let operations = serde_json::from_value(patch).map_err(|error| CliError::Format(error.to_string()))?;
    let params = PatchParams {
        field_manager: Some(manager),
        ..PatchParams::default()
    };
    let (stacks, object) = (
        cluster.objects::<Terraform>(),
        describe::<Terraform>(cluster.namespace(), &name),
    );
    let patch = Patch::<Terraform>::Json(operations);
    let written = cluster
        .answer(&object, stacks.patch(&name, &params, &patch))
        .await;
    written.map(drop).map_err(|source| CliError::Api {
        action: "patch",
        object,
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

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

    #[test]
    fn the_field_manager_names_the_user() {
        let named = |name: &str| UserInfo {
            username: Some(name.to_owned()),
            ..UserInfo::default()
        };
        assert_eq!(field_manager(Some(&named("alice"))), "sluice-approve:alice");
        assert_eq!(field_manager(Some(&named(""))), "sluice-approve");
        assert_eq!(field_manager(None), "sluice-approve");
        let long = field_manager(Some(&named(&"ä".repeat(200))));
        assert_eq!(long, format!("sluice-approve:{}", "ä".repeat(56)));
    }
}
