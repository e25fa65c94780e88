//! The commands, one file each.

mod approve;
mod begin;
mod cancel;
mod debug;
mod delete;
mod describe;
mod diff;
mod document;
mod events;
mod export;
mod get;
mod history;
mod logs;
mod outputs;
mod plan;
mod plan_approval;
mod reconcile;
mod reject;
pub(crate) mod state;
mod status;
mod suspend;
mod tree;
mod unlock;
mod waiting;

use std::fmt::Write as _;
use std::process::ExitCode;

pub use approve::{ApprovalRecord, approve_plan, plan_to_approve};
pub use begin::{BeginCommand, begin};
pub use plan::{describe_plan, shown_run};
pub use reject::{plan_to_reject, reject_plan};

use crate::cluster::{Cluster, ConnectionArgs};
use crate::output::{Console, Tone};
use crate::{CliError, ExitStatus};

/// The commands that talk to an API: a cluster, or `sluice up`.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// List sources, stacks and runs.
    Get(get::GetArgs),
    /// List the runs of a stack.
    History(history::HistoryArgs),
    /// Show what waits for you, what fails, what drifted and what runs.
    Status(status::StatusArgs),
    /// Show all that is known of a stack.
    Describe(describe::DescribeArgs),
    /// Compare the plan that waits with what was applied last.
    Diff(diff::DiffArgs),
    /// List events of a stack with its runs and its source, or all.
    Events(events::EventsArgs),
    /// Print the log of a run.
    Logs(logs::LogsArgs),
    /// Print the outputs of a stack.
    Outputs(outputs::OutputsArgs),
    /// Show sources, their stacks in the order of their dependencies, and the last run of each.
    Tree(tree::TreeArgs),
    /// Show the plan that waits for an approval.
    Plan(plan::PlanArgs),
    /// Approve the plan of a stack.
    Approve(approve::ApproveArgs),
    /// Reject the plan of a stack, so that it is never applied.
    Reject(reject::RejectArgs),
    /// Start a reconciliation of a stack or a source now.
    Reconcile(reconcile::ReconcileArgs),
    /// Make a new plan of a stack, and show it.
    Replan(reconcile::ReplanArgs),
    /// Start failed stacks again now.
    Retry(reconcile::RetryArgs),
    /// Suspend stacks or sources: nothing new is started.
    Suspend(suspend::SuspendArgs),
    /// Resume suspended stacks or sources.
    Resume(suspend::ResumeArgs),
    /// Release the state lock of a stack.
    #[command(visible_alias = "force-unlock")]
    Unlock(unlock::UnlockArgs),
    /// Interrupt an active run.
    Cancel(cancel::CancelArgs),
    /// Open a shell in the working directory of a stack (break the glass).
    #[command(visible_aliases = ["break-glass", "break-the-glass"])]
    Debug(debug::DebugArgs),
    /// Print objects as manifests, without their status.
    Export(export::ExportArgs),
    /// Delete a stack or a source, and say what happens to its resources first.
    Delete(delete::DeleteArgs),
}

impl Command {
    /// Returns the flags of the connection.
    const fn connection(&self) -> &ConnectionArgs {
        match self {
            Self::Get(args) => &args.connection,
            Self::History(args) => &args.connection,
            Self::Status(args) => &args.connection,
            Self::Describe(args) => &args.connection,
            Self::Diff(args) => &args.connection,
            Self::Events(args) => &args.connection,
            Self::Logs(args) => &args.connection,
            Self::Outputs(args) => &args.connection,
            Self::Tree(args) => &args.connection,
            Self::Plan(args) => args.connection(),
            Self::Approve(args) => &args.connection,
            Self::Reject(args) => &args.connection,
            Self::Reconcile(args) => &args.connection,
            Self::Replan(args) => &args.connection,
            Self::Retry(args) => &args.connection,
            Self::Suspend(args) => &args.connection,
            Self::Resume(args) => &args.connection,
            Self::Unlock(args) => &args.connection,
            Self::Cancel(args) => &args.connection,
            Self::Debug(args) => &args.connection,
            Self::Export(args) => &args.connection,
            Self::Delete(args) => &args.connection,
        }
    }
}

/// What each command works with.
pub(crate) struct Context {
    /// The API.
    pub(crate) cluster: Cluster,
    /// The terminal.
    pub(crate) console: Console,
}

impl Context {
    /// Reports the error of one of several objects.
    fn report(&self, error: &CliError) {
        report(self.console, error, &error.advice());
    }
}

/// Runs a command and reports its error: object, cause, and the next command to type.
pub async fn execute(command: Command) -> ExitCode {
    let connection = command.connection().clone();
    let console = Console::new(connection.no_color);
    finish(console, Some(&connection), run(command, console).await)
}

async fn run(command: Command, console: Console) -> Result<ExitStatus, CliError> {
    let cluster = Cluster::connect(command.connection()).await?;
    let context = Context { cluster, console };
    match command {
        Command::Get(args) => get::get(&context, &args).await,
        Command::History(args) => history::history(&context, &args).await,
        Command::Status(args) => status::status(&context, &args).await,
        Command::Describe(args) => describe::describe(&context, &args).await,
        Command::Diff(args) => diff::diff(&context, &args).await,
        Command::Events(args) => events::events(&context, &args).await,
        Command::Logs(args) => logs::logs(&context, &args).await,
        Command::Outputs(args) => outputs::outputs(&context, &args).await,
        Command::Tree(args) => tree::tree(&context, &args).await,
        Command::Plan(args) => plan::plan(&context, &args).await,
        Command::Approve(args) => approve::approve(&context, &args).await,
        Command::Reject(args) => reject::reject(&context, &args).await,
        Command::Reconcile(args) => reconcile::reconcile(&context, &args).await,
        Command::Replan(args) => reconcile::replan(&context, &args).await,
        Command::Retry(args) => reconcile::retry(&context, &args).await,
        Command::Suspend(args) => suspend::suspend(&context, &args).await,
        Command::Resume(args) => suspend::resume(&context, &args).await,
        Command::Unlock(args) => unlock::unlock(&context, &args).await,
        Command::Cancel(args) => cancel::cancel(&context, &args).await,
        Command::Debug(args) => debug::debug(&context, &args).await,
        Command::Export(args) => export::export(&context, &args).await,
        Command::Delete(args) => delete::delete(&context, &args).await,
    }
}

/// Runs a command about the state of a stack, as [`execute`] runs the others.
pub async fn execute_state(command: state::StateCommand) -> ExitCode {
    let connection = command.connection();
    let console = Console::new(connection.no_color);
    let result = match Cluster::connect(connection).await {
        Ok(cluster) => state::state(&Context { cluster, console }, &command).await,
        Err(error) => Err(error),
    };
    finish(console, Some(connection), result)
}

/// Reports the error of a command, and returns its exit code. `connection` has the flags of its connection, if it has one.
#[must_use]
pub fn finish(
    console: Console,
    connection: Option<&ConnectionArgs>,
    result: Result<ExitStatus, CliError>,
) -> ExitCode {
    match result {
        Ok(status) => status.into(),
        Err(error) => {
            let advice = match connection {
                Some(connection) => with_flags(&error.advice(), connection),
                None => error.advice(),
            };
            report(console, &error, &advice);
            error.exit_status().into()
        }
    }
}

fn report(console: Console, error: &CliError, advice: &str) {
    let text = error.to_string();
    console.note(&format!("sluice: {}", console.paint(Tone::Plain, &text)));
    if !advice.is_empty() {
        console.note(&format!("  next: {}", console.paint(Tone::Plain, advice)));
    }
}

/// Adds the flags of the connection that the user has typed to the next command, so that it reaches the same objects. `kubectl` has the same
/// flags. Advice that is not a command stays as it is. Pure.
fn with_flags(advice: &str, connection: &ConnectionArgs) -> String {
    let mut text = advice.to_owned();
    if !advice.starts_with("sluice ") && !advice.starts_with("kubectl ") {
        return text;
    }
    let names_namespace = advice.contains(" -n ") || advice.contains(" -A");
    let kubeconfig = connection
        .kubeconfig
        .as_ref()
        .map(|path| path.display().to_string());
    for (flag, value) in [
        ("-n", connection.namespace.clone().filter(|_| !names_namespace)),
        ("--context", connection.context.clone()),
        ("--kubeconfig", kubeconfig),
    ] {
        match value {
            Some(value) if value.contains(char::is_whitespace) => {
                let _ = write!(text, " {flag} '{value}'");
            }
            Some(value) => {
                let _ = write!(text, " {flag} {value}");
            }
            None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;

    #[test]
    fn the_next_command_reaches_the_same_objects() {
        let connection = |namespace: Option<&str>, kubeconfig: Option<&str>| ConnectionArgs {
            kubeconfig: kubeconfig.map(Into::into),
            context: Some("prod".to_owned()),
            namespace: namespace.map(str::to_owned),
            request_timeout: std::time::Duration::from_secs(30),
            no_color: false,
        };
        for (advice, expected) in [
            ("sluice history app", "sluice history app -n team --context prod"),
            (
                "sluice approve app -n net",
                "sluice approve app -n net --context prod",
            ),
            ("sluice get runs -A", "sluice get runs -A --context prod"),
            (
                "kubectl auth can-i update terraform",
                "kubectl auth can-i update terraform -n team --context prod",
            ),
            ("set KUBECONFIG", "set KUBECONFIG"),
            ("", ""),
        ] {
            assert_eq!(with_flags(advice, &connection(Some("team"), None)), expected);
        }
        assert_eq!(
            with_flags("sluice tree", &connection(None, Some("my files/config"))),
            "sluice tree --context prod --kubeconfig 'my files/config'"
        );
    }

    #[test]
    fn the_arguments_are_consistent() {
        Command::augment_subcommands(clap::Command::new("sluice")).debug_assert();
        BeginCommand::augment_subcommands(clap::Command::new("sluice")).debug_assert();
        state::StateCommand::augment_subcommands(clap::Command::new("state")).debug_assert();
    }
}
