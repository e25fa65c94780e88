//! `sluice logs`: the output of the CLI of a run, of one that has ended or while it works.

mod apply;
mod follow;
mod section;
mod stored;

use kube::ResourceExt as _;
use section::PhaseSection;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;
use sluice_tf_core::run_log::LogPart;

use super::Context;
use crate::cluster::ConnectionArgs;
use crate::output::printable;
use crate::run_row::{RunRow, stack_with_rows};
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice logs`.
#[derive(clap::Args, Debug)]
pub struct LogsArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print the log while the run works, until it ends. A dropped connection is opened again. After an approval, it is the run of the apply.
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Number of the run, as `sluice history` shows it. Default: the newest.
    #[arg(long, value_name = "N")]
    pub run: Option<u64>,
    /// Print only the output of this command.
    #[arg(long, value_enum, value_name = "PHASE", conflicts_with = "follow")]
    pub phase: Option<LogPhase>,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// A command of the CLI whose output can be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogPhase {
    /// `init`.
    Init,
    /// `plan`, and `show` of the plan.
    Plan,
    /// `apply`.
    Apply,
}

/// Prints the log of a run.
pub(super) async fn logs(context: &Context, args: &LogsArgs) -> Result<ExitStatus, CliError> {
    let (mut stack, mut rows) = stack_with_rows(&context.cluster, &args.name).await?;
    if args.follow && args.run.is_none() {
        // On the heap: it holds the stack and the rows twice.
        (stack, rows) = Box::pin(apply::wait_for_apply_run(context, stack, rows)).await?;
    }
    let row = selected_row(&stack, &rows, args.run)?;
    let run: TerraformRun = context.cluster.get(&row.name).await?;
    if !run::phase(&run).is_final() {
        if args.follow {
            // On the heap: it holds copies of the run.
            return Box::pin(follow::follow(context, &run)).await;
        }
        context.console.note(&format!(
            "Run {} goes on ({}). -f follows it.",
            run::number(&run),
            run::phase(&run).as_str()
        ));
    }
    let mut printer = LogPrinter {
        context,
        section: args.phase.map(PhaseSection::new),
    };
    stored::print(&mut printer, &run).await?;
    Ok(ExitStatus::Success)
}

/// Prints the parts of a log in their order, or what belongs to one phase.
struct LogPrinter<'a> {
    context: &'a Context,
    section: Option<PhaseSection>,
}

impl LogPrinter<'_> {
    /// Prints the next part.
    fn print(&mut self, text: &str) -> Result<(), CliError> {
        let console = self.context.console;
        match &mut self.section {
            Some(section) => console.data(&printable(&section.select(text))),
            None => console.data(&printable(text)),
        }
    }

    /// Prints a line in place of a part that is missing.
    fn print_gap(&self, part: LogPart) -> Result<(), CliError> {
        self.context
            .console
            .data(&format!("({part} of the log is missing here)\n"))
    }
}

/// Returns the row of the run with this number, or of the newest.
fn selected_row<'a>(
    stack: &Terraform,
    rows: &'a [RunRow],
    number: Option<u64>,
) -> Result<&'a RunRow, CliError> {
    let found = match number {
        Some(number) => rows.iter().find(|row| row.number() == number),
        None => rows.first(),
    };
    found.ok_or_else(|| CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: match number {
            Some(number) => format!("it has no run {number}, or the run is not retained any more"),
            None => "it has no run yet".to_owned(),
        },
        next_command: match number {
            Some(_) => format!("sluice history {}", stack.name_any()),
            None => format!("sluice describe {}", stack.name_any()),
        },
    })
}
