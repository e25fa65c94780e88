//! `sluice plan`: what a plan does, what it destroys first, and what holds it.

mod page;

use std::fmt::Write as _;
use std::path::PathBuf;

use sluice_api::run::{TerraformRun, TerraformRunStatus};
use sluice_api::terraform::Terraform;

use super::{Context, waiting};
use crate::cluster::{Cluster, ConnectionArgs};
use crate::output::{Console, Tone, to_json};
use crate::run_row::{self, RunRow, stack_with_rows};
use crate::wait::WaitArgs;
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice plan`: those of `sluice plan show`, with or without the word `show`.
#[derive(Debug)]
pub struct PlanArgs(ShowArgs);

#[derive(clap::Args, Debug)]
struct ShowArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    name: String,
    /// Print what terraform or tofu has printed, too.
    #[arg(long, conflicts_with = "json")]
    full: bool,
    /// Print the run that made the plan as JSON.
    #[arg(long)]
    json: bool,
    /// Write the plan to this file as one HTML page, which loads nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["full", "json"])]
    web: Option<PathBuf>,
    /// How long to wait for a plan.
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl clap::Args for PlanArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        // After the arguments: those with the comments of flattened structs set a text of their own.
        let show = ShowArgs::augment_args(clap::Command::new("show"))
            .about("Show the plan that waits, or else the newest one");
        ShowArgs::augment_args(command)
            .subcommand(show)
            .subcommand_negates_reqs(true)
            .args_conflicts_with_subcommands(true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for PlanArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let of_show = matches.subcommand_matches("show").unwrap_or(matches);
        ShowArgs::from_arg_matches(of_show).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl PlanArgs {
    /// Returns the flags of the connection.
    pub(super) const fn connection(&self) -> &ConnectionArgs {
        &self.0.connection
    }
}

/// Prints a plan.
pub(super) async fn plan(context: &Context, args: &PlanArgs) -> Result<ExitStatus, CliError> {
    let args = &args.0;
    if args.wait.wait {
        waiting::for_plan(context, &args.name, args.wait.timeout).await?;
    }
    let (stack, rows) = stack_with_rows(&context.cluster, &args.name).await?;
    let run = read_shown_run(&context.cluster, &stack, &rows).await?;
    let console = context.console;
    if let Some(path) = &args.web {
        std::fs::write(path, page::page(&stack, &run)).map_err(|source| CliError::File {
            what: format!("cannot write {}", path.display()),
            source,
        })?;
        console.note(&format!("The plan is in {}.", path.display()));
    } else if args.json {
        console.data(&to_json(&run)?)?;
    } else {
        console.data(&describe_plan(&stack, &run, console))?;
        if args.full {
            let text = run.status.as_ref().map(|status| status.human_plan.as_str());
            console.data(&format!(
                "\n{}",
                console.paint(Tone::Plain, text.unwrap_or_default())
            ))?;
        }
    }
    Ok(ExitStatus::Success)
}

/// Returns the run of the pending plan, or else the newest run that made a plan. `runs` are those of the stack, newest first.
///
/// # Errors
/// There is no plan.
pub fn shown_run<'a>(stack: &Terraform, runs: &'a [TerraformRun]) -> Result<&'a TerraformRun, CliError> {
    let pending = stack::pending_plan(stack).and_then(|plan| run::of_plan(runs, plan));
    let has_plan = |run: &&TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|status| status.has_changes.is_some())
    };
    pending
        .or_else(|| runs.iter().find(has_plan))
        .ok_or_else(|| no_plan(stack))
}

/// Reads the run that [`shown_run`] would return, and no other one. `rows` are those of the stack, newest first.
///
/// # Errors
/// There is no plan, or the API rejects the request.
pub(super) async fn read_shown_run(
    cluster: &Cluster,
    stack: &Terraform,
    rows: &[RunRow],
) -> Result<TerraformRun, CliError> {
    let pending = stack::pending_plan(stack).and_then(|plan| run_row::of_plan(rows, plan));
    // The counts are recorded with each plan, also with one without changes.
    let has_plan = |row: &&RunRow| !row.changes.is_empty();
    let shown = pending.or_else(|| rows.iter().find(has_plan));
    let shown = shown.ok_or_else(|| no_plan(stack))?;
    cluster.get(&shown.name).await
}

fn no_plan(stack: &Terraform) -> CliError {
    CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: "there is no plan".to_owned(),
        next_command: format!(
            "sluice plan show {} --wait",
            stack.metadata.name.as_deref().unwrap_or_default()
        ),
    }
}

/// Returns what is known of a plan, with a label; an empty text is not shown.
fn rows(stack: &Terraform, run: &TerraformRun, status: &TerraformRunStatus) -> [(&'static str, String); 7] {
    let or = |text: &str, empty: &str| {
        if text.is_empty() {
            empty.to_owned()
        } else {
            text.to_owned()
        }
    };
    let destroys = if run.spec.destroy {
        " (destroys the stack)"
    } else {
        ""
    };
    let rejection = status
        .rejection
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let rejected = rejection.trim_start_matches("rejected").trim_start();
    let plans = stack.status.as_ref().and_then(|status| status.plan.as_ref());
    let is_applied = !status.plan_id.is_empty()
        && plans.is_some_and(|plans| plans.last_applied == status.plan_id && plans.pending != status.plan_id);
    [
        ("id", or(&status.plan_id, "-")),
        ("revision", run.spec.source.revision.clone()),
        ("changes", format!("{}{destroys}", or(&status.changes, "none"))),
        (
            "applied",
            if is_applied {
                "yes, no plan waits".to_owned()
            } else {
                String::new()
            },
        ),
        ("held", status.auto_apply_hold.clone()),
        ("state", status.state_mismatch.clone()),
        ("rejected", rejected.to_owned()),
    ]
}

/// Describes a plan: its counts, what holds it, and its changes, most severe first.
#[must_use]
pub fn describe_plan(stack: &Terraform, run: &TerraformRun, console: Console) -> String {
    let status = run.status.clone().unwrap_or_default();
    let mut text = String::new();
    let title = format!("Plan of {}", stack::full_name(stack));
    let _ = writeln!(text, "{}", console.paint(Tone::Heading, &title));
    for (label, value) in rows(stack, run, &status) {
        if !value.is_empty() {
            let _ = writeln!(text, "  {label:<9} {}", console.paint(Tone::Plain, &value));
        }
    }
    let list = run::changes(&status);
    if !list.entries.is_empty() {
        text.push('\n');
    }
    for change in &list.entries {
        let (sign, tone) = run::sign(&change.action);
        let line = format!("{sign:>3} {} ({})", change.address, change.action);
        let _ = writeln!(text, "{}", console.paint(tone, &line));
    }
    if list.omitted != 0 {
        let _ = writeln!(
            text,
            "    and {} more; --full shows all that terraform or tofu has printed",
            list.omitted
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::fixture::{changed_run, stack};

    #[test]
    fn the_word_show_may_be_left_out() {
        let name = |words: &[&str]| {
            let program = PlanArgs::augment_args(clap::Command::new("plan"));
            program.debug_assert();
            let program = PlanArgs::augment_args(clap::Command::new("plan"));
            let matches = program.try_get_matches_from([&["plan"][..], words].concat())?;
            PlanArgs::from_arg_matches(&matches).map(|args| (args.0.name, args.0.full))
        };
        for (words, expected, full) in [
            (["app"].as_slice(), "app", false),
            (["show", "app"].as_slice(), "app", false),
            (["app", "--full"].as_slice(), "app", true),
            (["show", "app", "--full"].as_slice(), "app", true),
            (["show", "show"].as_slice(), "show", false),
            (["show", "help"].as_slice(), "help", false),
        ] {
            assert_eq!(name(words).unwrap(), (expected.to_owned(), full), "{words:?}");
        }
        for words in [["show"].as_slice(), &[], &["app", "web"], &["app", "show"]] {
            assert!(name(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_plan_shows_what_it_destroys_first() {
        let planned = json!({
            "spec": {"source": {"revision": "main@sha1:b8e3"}},
            "status": {"planId": "plan-main-b8e3-x", "changes": "+1 ~0 -1", "autoApplyHold": "1 delete (autoApply.hold)",
                "changeEntries": [{"action": "create", "address": "a.new"}, {"action": "delete", "address": "a.old"}]},
        });
        assert_eq!(
            describe_plan(&stack(&json!({})), &changed_run(4, &planned), Console::plain()),
            "Plan of team/app\n  id        plan-main-b8e3-x\n  revision  main@sha1:b8e3\n  changes   +1 ~0 -1\n  \
             held      1 delete (autoApply.hold)\n\n  - a.old (delete)\n  + a.new (create)\n"
        );
    }

    #[test]
    fn a_plan_that_is_applied_is_not_taken_for_one_that_waits() {
        let planned = changed_run(4, &json!({"status": {"planId": "plan-x", "changes": "+1 ~0 -0"}}));
        for (plans, is_shown) in [
            (json!({"lastApplied": "plan-x"}), true),
            (json!({"lastApplied": "plan-x", "pending": "plan-x"}), false),
            (json!({"pending": "plan-x"}), false),
        ] {
            let stack = stack(&json!({ "status": { "plan": plans } }));
            let text = describe_plan(&stack, &planned, Console::plain());
            assert_eq!(text.contains("  applied   yes"), is_shown, "{text}");
        }
    }
}
