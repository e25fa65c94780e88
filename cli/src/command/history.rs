//! `sluice history`: the runs of one stack.

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_api::run::{Action, TerraformRun};
use sluice_api::terraform::Terraform;
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::Context;
use super::get::short_revision;
use crate::cluster::{Cluster, ConnectionArgs};
use crate::output::{Cell, OutputFormat, Table, duration, lines, list_of, to_json, to_yaml};
use crate::run_row::{RunRow, params_of_stack, stack_with_rows};
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice history`.
#[derive(clap::Args, Debug)]
pub struct HistoryArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: OutputFormat,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints the runs of a stack, newest first. A table needs only rows of them.
pub(super) async fn history(context: &Context, args: &HistoryArgs) -> Result<ExitStatus, CliError> {
    let (cluster, console) = (&context.cluster, context.console);
    match args.output {
        OutputFormat::Json => {
            let (_, runs) = stack_with_runs(cluster, &args.name).await?;
            console.data(&to_json(&list_of(&runs)?)?)?;
        }
        OutputFormat::Yaml => {
            let (_, runs) = stack_with_runs(cluster, &args.name).await?;
            console.data(&to_yaml(&list_of(&runs)?)?)?;
        }
        OutputFormat::Name => {
            let (_, rows) = stack_with_rows(cluster, &args.name).await?;
            console.data(&lines(rows.iter().map(|row| &row.name)))?;
        }
        OutputFormat::Table => {
            let (stack, rows) = stack_with_rows(cluster, &args.name).await?;
            print(context, &stack, &table(&rows, SystemClock.now()), rows.len())?;
        }
        OutputFormat::Wide => {
            let (stack, runs) = stack_with_runs(cluster, &args.name).await?;
            print(context, &stack, &wide_table(&runs, SystemClock.now()), runs.len())?;
        }
    }
    Ok(ExitStatus::Success)
}

/// Prints the table of this many runs.
fn print(context: &Context, stack: &Terraform, table: &Table, runs: usize) -> Result<(), CliError> {
    if runs > 0 {
        return context.console.table(table);
    }
    let object = stack::full_name(stack);
    context
        .console
        .note(&format!("terraform {object} has no run yet."));
    Ok(())
}

/// Reads the runs of a stack as a whole, newest first. The API selects them by their label; a namesake of another uid is left out.
///
/// # Errors
/// The API rejects the request.
pub(super) async fn runs_of(cluster: &Cluster, stack: &Terraform) -> Result<Vec<TerraformRun>, CliError> {
    let runs = labelled(cluster, &stack.name_any()).await?;
    Ok(of_stack(runs, stack))
}

/// Reads a stack and, at the same time, its runs, as [`runs_of`] returns them: their label has the name of the stack.
///
/// # Errors
/// The stack does not exist, or the API rejects a request.
pub(super) async fn stack_with_runs(
    cluster: &Cluster,
    name: &str,
) -> Result<(Terraform, Vec<TerraformRun>), CliError> {
    let (stack, runs) = tokio::join!(cluster.get::<Terraform>(name), labelled(cluster, name));
    // A stack that does not exist is the first thing to know.
    let stack = stack?;
    let runs = of_stack(runs?, &stack);
    Ok((stack, runs))
}

async fn labelled(cluster: &Cluster, name: &str) -> Result<Vec<TerraformRun>, CliError> {
    let api = cluster.objects::<TerraformRun>();
    cluster.list_with(&api, params_of_stack(name)).await
}

fn of_stack(mut runs: Vec<TerraformRun>, stack: &Terraform) -> Vec<TerraformRun> {
    let uid = stack.uid().unwrap_or_default();
    runs.retain(|run| run.spec.terraform.uid == uid);
    run::sort_newest_first(&mut runs);
    runs
}

/// The columns of a row.
const COLUMNS: [&str; 11] = [
    "RUN",
    "AGE",
    "ACTION",
    "TRIGGER",
    "REVISION",
    "SUBJECT",
    "PHASE",
    "CHANGES",
    "DURATION",
    "APPROVED BY",
    "MESSAGE",
];

/// Builds the table of runs, in their order. A terminal that has no room for all columns shows first what no other column says.
#[must_use]
pub(super) fn table(rows: &[RunRow], now: Timestamp) -> Table {
    let mut table = Table::new(&COLUMNS).optional_columns(&["DURATION", "ACTION", "TRIGGER"]);
    for (position, row) in rows.iter().enumerate() {
        table.push(cells(row, &rows[position + 1..], now));
    }
    table
}

/// Builds the table of runs that were read as a whole: with the approvals of users, which no row has.
fn wide_table(runs: &[TerraformRun], now: Timestamp) -> Table {
    let columns: Vec<&str> = COLUMNS.into_iter().chain(["APPROVALS"]).collect();
    let mut table = Table::new(&columns);
    let rows: Vec<RunRow> = runs.iter().map(|run| RunRow::of(run, now)).collect();
    for (position, (run, row)) in runs.iter().zip(&rows).enumerate() {
        let mut cells = cells(row, &rows[position + 1..], now);
        cells.push(approvals(run).into());
        table.push(cells);
    }
    table
}

/// Returns the cells of [`COLUMNS`].
///
/// - `earlier`: the runs before it, newest first.
fn cells(row: &RunRow, earlier: &[RunRow], now: Timestamp) -> Vec<Cell> {
    vec![
        row.number().to_string().into(),
        row.age.as_str().into(),
        row.action.as_str().into(),
        row.trigger.as_str().into(),
        short_revision(&row.revision).into(),
        row.subject.as_str().into(),
        Cell::new(row.phase.as_str(), run::tone(row.phase)),
        changes(row, earlier).into(),
        row.lasted(now).map(duration).unwrap_or_default().into(),
        row.approved_by.as_str().into(),
        row.message.as_str().into(),
    ]
}

/// Returns who approved the plan of an apply, when, and with which comment: `alice 2026-01-08T09:05:00Z reviewed`. Pure.
fn approvals(run: &TerraformRun) -> String {
    let given = run.status.iter().flat_map(|status| &status.approvals);
    let given = given.map(|one| {
        let at = one.approved_at.as_ref().map(|at| at.0.to_string());
        let texts = [one.approver.clone(), at.unwrap_or_default(), one.comment.clone()];
        let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        texts.join(" ")
    });
    given.collect::<Vec<_>>().join("; ")
}

/// Returns the counts of a run's plan. The plan of an apply is that of the newest earlier run that made one with changes. Pure.
///
/// - `earlier`: the runs before it, newest first.
fn changes<'a>(row: &'a RunRow, earlier: &'a [RunRow]) -> &'a str {
    if row.action != Action::Apply.as_str() || !row.changes.is_empty() {
        return &row.changes;
    }
    let plan = earlier.iter().find(|run| !run.plan_id.is_empty());
    plan.map_or("", |run| &run.changes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;
    use crate::output::Console;

    fn row(action: Action, changes: &str, plan_id: &str) -> RunRow {
        RunRow {
            action: action.as_str().to_owned(),
            changes: changes.to_owned(),
            plan_id: plan_id.to_owned(),
            ..RunRow::default()
        }
    }

    #[test]
    fn an_apply_has_the_counts_of_its_plan() {
        let apply = row(Action::Apply, "", "");
        let earlier = [
            row(Action::Unlock, "", ""),
            row(Action::Plan, "+1 ~0 -0", "plan-main-2"),
            row(Action::Plan, "+3 ~0 -0", "plan-main-1"),
        ];
        assert_eq!(changes(&apply, &earlier), "+1 ~0 -0");
        assert_eq!(changes(&apply, &earlier[..1]), "");
        let unlock = row(Action::Unlock, "", "");
        assert_eq!(changes(&unlock, &earlier), "");
    }

    #[test]
    fn the_wide_table_says_who_approved_when_and_why() {
        let approvals = json!([
            { "name": "a", "approver": "alice", "approvedAt": "2026-01-08T09:05:00Z", "comment": "reviewed" },
            { "name": "b", "approver": "bob", "approvedAt": "2026-01-08T09:06:00Z" },
        ]);
        let apply = fixture::run(4, &json!({ "phase": "Succeeded", "approvals": approvals }));
        let plan = fixture::run(3, &json!({ "phase": "Succeeded" }));
        let expected = "alice 2026-01-08T09:05:00Z reviewed; bob 2026-01-08T09:06:00Z";
        assert_eq!(super::approvals(&apply), expected);
        assert_eq!(super::approvals(&plan), "");
        let table = wide_table(&[apply, plan], Timestamp::UNIX_EPOCH);
        let text = table.render(&Console::plain());
        assert!(text.lines().next().unwrap().ends_with("APPROVALS"), "{text}");
        assert!(text.lines().nth(1).unwrap().ends_with(expected), "{text}");
    }
}
