//! `sluice diff`: what the plan that waits adds to what was applied last.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use sluice_api::run::{Change, TerraformRun};
use sluice_api::terraform::Terraform;

use super::Context;
use super::history::stack_with_runs;
use super::plan::shown_run;
use crate::cluster::ConnectionArgs;
use crate::output::{Console, Tone};
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice diff`.
#[derive(clap::Args, Debug)]
pub struct DiffArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints the difference. Exit code 0 whether there is one or not.
pub(super) async fn diff(context: &Context, args: &DiffArgs) -> Result<ExitStatus, CliError> {
    let (stack, runs) = stack_with_runs(&context.cluster, &args.name).await?;
    let planned = shown_run(&stack, &runs)?;
    let applied = runs
        .iter()
        .find(|run| run.status.as_ref().is_some_and(|status| status.applied));
    context
        .console
        .data(&text(&stack, planned, applied, context.console))?;
    Ok(ExitStatus::Success)
}

fn text(
    stack: &Terraform,
    planned: &TerraformRun,
    applied: Option<&TerraformRun>,
    console: Console,
) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", console.paint(Tone::Heading, &stack::full_name(stack)));
    let row = |run: &TerraformRun| {
        let status = run.status.clone().unwrap_or_default();
        let changes = if status.changes.is_empty() {
            "no changes".to_owned()
        } else {
            status.changes
        };
        format!(
            "run {}  {}  {changes}",
            run::number(run),
            run.spec.source.revision
        )
    };
    let last = applied.map_or_else(|| "nothing yet".to_owned(), row);
    let _ = writeln!(text, "  applied  {}", console.paint(Tone::Plain, &last));
    let _ = writeln!(text, "  planned  {}", console.paint(Tone::Plain, &row(planned)));
    let status = planned.status.clone().unwrap_or_default();
    let changes = run::changes(&status);
    let before = applied.map(addresses).unwrap_or_default();
    for change in &changes.entries {
        let (sign, tone) = run::sign(&change.action);
        let again = if before.contains(change.address.as_str()) {
            "  (changed by the last apply too)"
        } else {
            ""
        };
        let line = format!("{sign:>3} {} ({}){again}", change.address, change.action);
        let _ = writeln!(text, "{}", console.paint(tone, &line));
    }
    if changes.omitted != 0 {
        let _ = writeln!(text, "    and {} more", changes.omitted);
    }
    text
}

/// Returns the addresses that a run changed.
fn addresses(run: &TerraformRun) -> BTreeSet<&str> {
    let entries = run.status.iter().flat_map(|status| &status.change_entries);
    entries.map(|Change { address, .. }| address.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{changed_run, stack};

    fn run(number: u64, status: &Value) -> TerraformRun {
        let source = json!({ "revision": format!("main@sha1:{number}") });
        changed_run(number, &json!({ "spec": { "source": source }, "status": status }))
    }

    #[test]
    fn the_plan_is_compared_with_the_last_apply() {
        let change = |action: &str, address: &str| json!({"action": action, "address": address});
        let applied = run(
            1,
            &json!({"applied": true, "changes": "+1 ~0 -0", "changeEntries": [change("create", "a.x")]}),
        );
        let planned = run(
            2,
            &json!({"changes": "+0 ~1 -1", "changeEntries": [change("update", "a.x"), change("delete", "a.y")]}),
        );
        assert_eq!(
            text(&stack(&json!({})), &planned, Some(&applied), Console::plain()),
            "team/app\n  applied  run 1  main@sha1:1  +1 ~0 -0\n  planned  run 2  main@sha1:2  +0 ~1 -1\n  \
             - a.y (delete)\n  ~ a.x (update)  (changed by the last apply too)\n"
        );
    }
}
