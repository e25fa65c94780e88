//! `sluice reconcile`, `replan` and `retry`: requests for a reconciliation now.

use std::time::Duration;

use kube::ResourceExt as _;
use sluice_api::source::GitRepository;
use sluice_api::terraform::{SourceKind, Terraform};

use super::Context;
use super::plan::{describe_plan, read_shown_run};
use crate::change::request;
use crate::cluster::{ConnectionArgs, SelectionArgs};
use crate::object::{ObjectKind, Words};
use crate::output::printable;
use crate::run_row::{RunRow, rows_of, stack_with_rows};
use crate::stack::{self, StackState};
use crate::wait::{self, Progress, Target, WaitArgs, source_result, stack_result};
use crate::{CliError, ExitStatus};

/// Time in which the controller sees a new revision of a source.
const REVISION_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `sluice reconcile`.
#[derive(clap::Args, Debug)]
pub struct ReconcileArgs {
    /// The object: a stack, or `source NAME`.
    #[arg(value_name = "NAME", required = true, num_args = 1..=3)]
    pub object: Vec<String>,
    /// Fetch the source of the stack first, and wait for it.
    #[arg(long)]
    pub with_source: bool,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Arguments of `sluice replan`.
#[derive(clap::Args, Debug)]
pub struct ReplanArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// How long to wait for the plan.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = sluice_runtime::args::duration)]
    pub timeout: Duration,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Arguments of `sluice retry`.
#[derive(clap::Args, Debug)]
pub struct RetryArgs {
    /// The stack.
    #[arg(
        value_name = "NAME",
        required_unless_present_any = ["all", "all_namespaces", "selector"],
        conflicts_with_all = ["all", "all_namespaces", "selector"]
    )]
    pub name: Option<String>,
    /// All failed stacks of the namespace.
    #[arg(long)]
    pub all: bool,
    /// The objects.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Requests a reconciliation.
pub(super) async fn reconcile(context: &Context, args: &ReconcileArgs) -> Result<ExitStatus, CliError> {
    let (kind, name) = Words::one(&args.object)?;
    match kind {
        ObjectKind::Source if args.with_source => {
            return Err(CliError::Usage(
                "--with-source is for stacks: a source has none".to_owned(),
            ));
        }
        ObjectKind::Source => {
            reconcile_source(context, context.cluster.namespace(), &name, args.wait).await?;
        }
        ObjectKind::Stack if args.with_source => {
            // On the heap: it holds the stack and its runs.
            Box::pin(reconcile_with_source(context, &name, args.wait)).await?;
        }
        ObjectKind::Stack => {
            let stack: Terraform = context.cluster.get(&name).await?;
            check_running(&stack)?;
            reconcile_stack(context, &stack, args.wait).await?;
        }
    }
    Ok(ExitStatus::Success)
}

/// Fetches the source of a stack and waits for it. Then requests a plan, unless a run of a new revision has begun: a request after its
/// begin would make a second plan.
async fn reconcile_with_source(context: &Context, name: &str, wait: WaitArgs) -> Result<(), CliError> {
    let (stack, rows) = stack_with_rows(&context.cluster, name).await?;
    check_running(&stack)?;
    let (namespace, source) = git_source(&stack)?;
    let fetch = WaitArgs { wait: true, ..wait };
    let revision = reconcile_source(context, &namespace, &source, fetch).await?;
    let revision = revision.unwrap_or_default();
    if !is_revision_planned(context, &stack, &rows, &revision, wait.timeout).await? {
        return reconcile_stack(context, &stack, wait).await;
    }
    let object = stack::full_name(&stack);
    let text = format!("terraform {object} plans {revision} already, because it is new.");
    context.console.note(&printable(&text));
    if wait.wait {
        wait_for_stack(context, &stack, None, wait.timeout).await?;
    }
    Ok(())
}

/// Returns whether a run of this revision has begun since `rows` were read. A stack that has not attempted the revision in time waits for
/// something else. The next run then answers a request that is made now.
async fn is_revision_planned(
    context: &Context,
    stack: &Terraform,
    rows: &[RunRow],
    revision: &str,
    timeout: Duration,
) -> Result<bool, CliError> {
    if revision.is_empty() || has_attempted(stack, revision) {
        return Ok(false);
    }
    let target = stack_target(stack, timeout.min(REVISION_TIMEOUT));
    let progress_of = |found: Option<&Terraform>| match found {
        Some(stack) if !has_attempted(stack, revision) => Ok(Progress::Waiting(format!(
            "the controller has not seen {revision} yet"
        ))),
        _ => Ok(Progress::Done(())),
    };
    match wait::until(&context.cluster, &target, progress_of).await {
        Ok(()) => {}
        Err(CliError::TimedOut { .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    let now = rows_of(&context.cluster, stack).await?;
    Ok(has_new_run(rows, &now, revision))
}

/// Returns whether the stack has seen this revision: a run of it has begun, or none of its inputs has changed.
fn has_attempted(stack: &Terraform, revision: &str) -> bool {
    let status = stack.status.as_ref();
    status.is_some_and(|status| status.last_attempted_revision == revision)
}

/// Returns whether the newest run is of this revision and newer than those before. Both lists begin with the newest run. Pure.
fn has_new_run(before: &[RunRow], now: &[RunRow], revision: &str) -> bool {
    let last = before.first().map(RunRow::number);
    now.first()
        .is_some_and(|newest| newest.revision == revision && Some(newest.number()) > last)
}

/// Requests a plan, waits for it, and prints it.
pub(super) async fn replan(context: &Context, args: &ReplanArgs) -> Result<ExitStatus, CliError> {
    let stack: Terraform = context.cluster.get(&args.name).await?;
    check_running(&stack)?;
    let wait = WaitArgs {
        wait: true,
        timeout: args.timeout,
    };
    let result = reconcile_stack(context, &stack, wait).await;
    if !matches!(result, Ok(()) | Err(CliError::AwaitsApproval { .. })) {
        return result.map(|()| ExitStatus::Success);
    }
    let (stack, rows) = stack_with_rows(&context.cluster, &args.name).await?;
    let run = read_shown_run(&context.cluster, &stack, &rows).await?;
    let console = context.console;
    console.data(&describe_plan(&stack, &run, console))?;
    result.map(|()| ExitStatus::Success)
}

/// Starts failed stacks again at once: a request resets the count of their failures.
pub(super) async fn retry(context: &Context, args: &RetryArgs) -> Result<ExitStatus, CliError> {
    if let Some(name) = &args.name {
        let stack: Terraform = context.cluster.get(name).await?;
        check_running(&stack)?;
        if !has_failed(&stack) {
            return Err(CliError::Refused {
                object: format!("terraform {}", stack::full_name(&stack)),
                cause: format!("it has not failed: it is {}", stack::state(&stack).as_str()),
                next_command: format!("sluice reconcile {name}"),
            });
        }
        reconcile_stack(context, &stack, args.wait).await?;
        return Ok(ExitStatus::Success);
    }
    let mut stacks: Vec<Terraform> = context.cluster.list(&args.selection).await?;
    stacks.retain(has_failed);
    if stacks.is_empty() {
        context.console.note("No stack has failed.");
    }
    let mut status = ExitStatus::Success;
    for stack in &stacks {
        if let Err(error) = reconcile_stack(context, stack, args.wait).await {
            if matches!(error, CliError::Interrupted { .. }) {
                return Err(error);
            }
            context.report(&error);
            status = ExitStatus::Failed;
        }
    }
    Ok(status)
}

/// Returns whether a request can help: the last run failed, or something that the stack needs is not ready.
fn has_failed(stack: &Terraform) -> bool {
    matches!(stack::state(stack), StackState::Failed | StackState::Waiting)
}

/// Refuses a suspended stack: it starts no run.
///
/// # Errors
/// The stack is suspended.
pub(super) fn check_running(stack: &Terraform) -> Result<(), CliError> {
    if !stack.spec.suspend {
        return Ok(());
    }
    Err(CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: "it is suspended".to_owned(),
        next_command: format!("sluice resume {}", stack.name_any()),
    })
}

/// Returns namespace and name of the stack's source.
fn git_source(stack: &Terraform) -> Result<(String, String), CliError> {
    let source = &stack.spec.source_ref;
    let word = match source.kind {
        SourceKind::GitRepository => return Ok((source_namespace(stack), source.name.clone())),
        SourceKind::Bucket => "bucket",
        SourceKind::OCIRepository => "oci",
    };
    let kind = source.kind.as_str();
    Err(CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: format!("its source is of the kind {kind}, which another controller serves"),
        next_command: format!(
            "flux reconcile source {word} {} -n {}",
            source.name,
            source_namespace(stack)
        ),
    })
}

fn source_namespace(stack: &Terraform) -> String {
    let named = &stack.spec.source_ref.namespace;
    if named.is_empty() {
        stack.namespace().unwrap_or_default()
    } else {
        named.clone()
    }
}

/// Requests a fetch of a source. Returns its revision, if it is waited for.
async fn reconcile_source(
    context: &Context,
    namespace: &str,
    name: &str,
    wait: WaitArgs,
) -> Result<Option<String>, CliError> {
    let token = request::<GitRepository>(&context.cluster, namespace, name).await?;
    context
        .console
        .note(&format!("Requested a fetch of gitrepository {namespace}/{name}."));
    if !wait.wait {
        return Ok(None);
    }
    let target = Target {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        timeout: wait.timeout,
        return_command: format!("sluice get sources {name} -n {namespace}"),
    };
    let progress_of = |found: Option<&GitRepository>| source_result(found, Some(&token));
    let revision = wait::until(&context.cluster, &target, progress_of).await?;
    context.console.note(&printable(&format!(
        "gitrepository {namespace}/{name} is at {revision}."
    )));
    Ok(Some(revision))
}

/// Requests a reconciliation of a stack, and waits for its result if that is asked for.
async fn reconcile_stack(context: &Context, stack: &Terraform, wait: WaitArgs) -> Result<(), CliError> {
    let namespace = stack.namespace().unwrap_or_default();
    let name = stack.name_any();
    let token = request::<Terraform>(&context.cluster, &namespace, &name).await?;
    context
        .console
        .note(&format!("Requested a plan of terraform {namespace}/{name}."));
    if wait.wait {
        wait_for_stack(context, stack, Some(&token), wait.timeout).await?;
    }
    Ok(())
}

/// Waits for the result of a request, or for that of the run in progress, and prints it.
async fn wait_for_stack(
    context: &Context,
    stack: &Terraform,
    request: Option<&str>,
    timeout: Duration,
) -> Result<(), CliError> {
    let target = stack_target(stack, timeout);
    let progress_of = |found: Option<&Terraform>| stack_result(found, request);
    let message = wait::until(&context.cluster, &target, progress_of).await?;
    let object = stack::full_name(stack);
    context
        .console
        .note(&printable(&format!("terraform {object}: {message}")));
    Ok(())
}

/// Returns a stack as the object that is waited for.
#[must_use]
pub(super) fn stack_target(stack: &Terraform, timeout: Duration) -> Target {
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    Target {
        return_command: format!("sluice get terraforms {name} -n {namespace}"),
        namespace,
        name,
        timeout,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;

    fn stack(source: &serde_json::Value) -> Terraform {
        fixture::stack(&json!({ "spec": { "sourceRef": source } }))
    }

    #[test]
    fn the_source_is_that_of_the_stack() {
        let own = stack(&json!({"kind": "GitRepository", "name": "repo"}));
        assert_eq!(git_source(&own).unwrap(), ("team".to_owned(), "repo".to_owned()));
        let other = stack(&json!({"kind": "GitRepository", "name": "repo", "namespace": "git"}));
        assert_eq!(git_source(&other).unwrap(), ("git".to_owned(), "repo".to_owned()));
        let bucket = stack(&json!({"kind": "Bucket", "name": "b"}));
        assert_eq!(
            git_source(&bucket).unwrap_err().to_string(),
            "terraform team/app: its source is of the kind Bucket, which another controller serves"
        );
    }

    #[test]
    fn only_a_new_run_of_the_revision_has_begun() {
        let row = |number: u64, revision: &str| RunRow {
            name: format!("app-0123456789-{number}"),
            revision: revision.to_owned(),
            ..RunRow::default()
        };
        let before = [row(2, "a"), row(1, "b")];
        for (newest, expected) in [
            (row(3, "b"), true),
            // A commit that the stack does not read starts no run, also if an older run had it.
            (row(2, "a"), false),
            (row(3, "c"), false),
        ] {
            assert_eq!(
                has_new_run(&before, std::slice::from_ref(&newest), "b"),
                expected,
                "{newest:?}"
            );
        }
        assert!(!has_new_run(&[row(2, "b")], &[row(2, "b")], "b"));
        assert!(has_new_run(&[], &[row(1, "b")], "b"));
        assert!(!has_new_run(&[], &[], "b"));
    }
}
