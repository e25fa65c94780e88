//! `sluice diff`: what the plan that waits adds to what was applied last.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_api::run::{Change, TerraformRun};
use sluice_api::terraform::Terraform;

use super::history::stack_with_runs;
use super::plan::shown_run;
use super::{Context, document};
use crate::cluster::ConnectionArgs;
use crate::output::{Console, ReportFormat, Tone};
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice diff`.
#[derive(clap::Args, Debug)]
pub struct DiffArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ReportFormat,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints the difference. Exit code 0 whether there is one or not.
pub(super) async fn diff(context: &Context, args: &DiffArgs) -> Result<ExitStatus, CliError> {
    let (stack, runs) = stack_with_runs(&context.cluster, &args.name).await?;
    let planned = shown_run(&stack, &runs)?;
    let is_applied = |run: &&TerraformRun| run.status.as_ref().is_some_and(|status| status.applied);
    let applied = runs.iter().find(is_applied).map(|run| LastApply::of(run, &runs));
    let fields = || Ok(fields(&stack, planned, applied));
    let text = match args.output.document("DiffReport", fields)? {
        Some(document) => document,
        None => text(&stack, planned, applied, context.console),
    };
    context.console.data(&text)?;
    Ok(ExitStatus::Success)
}

/// Returns the fields of the report.
fn fields(stack: &Terraform, planned: &TerraformRun, applied: Option<LastApply<'_>>) -> Value {
    let of_run = |run: &TerraformRun, plan: Option<&TerraformRun>| {
        let status = plan.and_then(|plan| plan.status.as_ref());
        json!({
            "name": run.name_any(), "number": run::number(run), "revision": run.spec.source.revision,
            "changes": status.map(|status| status.changes.as_str()),
        })
    };
    let status = planned.status.clone().unwrap_or_default();
    let list = run::changes(&status);
    let before = applied.map_or_else(BTreeSet::new, |last| last.other_changes(planned));
    let changes = list.entries.iter().map(|change| {
        let mut fields = document::change(change);
        fields["changedByLastApply"] = json!(before.contains(change.address.as_str()));
        fields
    });
    json!({
        "namespace": stack.namespace().unwrap_or_default(),
        "name": stack.name_any(),
        "applied": applied.map(|last| of_run(last.run, last.plan)),
        "planned": of_run(planned, Some(planned)),
        "isApplied": applied.is_some_and(|last| last.is_of(planned)),
        "changes": changes.collect::<Vec<_>>(),
        "omittedChanges": list.omitted,
    })
}

/// The last apply.
#[derive(Clone, Copy, Debug)]
struct LastApply<'a> {
    run: &'a TerraformRun,
    /// The run with its plan: an apply of a stored plan records neither counts nor changes.
    plan: Option<&'a TerraformRun>,
}

impl<'a> LastApply<'a> {
    fn of(run: &'a TerraformRun, runs: &'a [TerraformRun]) -> Self {
        let plan = match &run.spec.plan {
            Some(source) => runs.iter().find(|run| run.name_any() == source.run),
            None => Some(run),
        };
        Self { run, plan }
    }

    /// Returns whether it applied the plan that this run made.
    fn is_of(&self, planned: &TerraformRun) -> bool {
        self.plan
            .is_some_and(|plan| plan.name_any() == planned.name_any())
    }

    /// Returns the addresses that it changed by another plan than that of this run.
    fn other_changes(&self, planned: &TerraformRun) -> BTreeSet<&'a str> {
        let plan = self.plan.filter(|_| !self.is_of(planned));
        plan.map_or_else(BTreeSet::new, addresses)
    }
}

fn text(
    stack: &Terraform,
    planned: &TerraformRun,
    applied: Option<LastApply<'_>>,
    console: Console,
) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", console.paint(Tone::Heading, &stack::full_name(stack)));
    let last = applied.map_or_else(|| "nothing yet".to_owned(), |last| row(last.run, last.plan));
    let _ = writeln!(text, "  applied  {}", console.paint(Tone::Plain, &last));
    let applied_by = applied.filter(|last| last.is_of(planned));
    let end = applied_by.map_or_else(String::new, |last| {
        format!("  (applied by run {})", run::number(last.run))
    });
    let planned_row = format!("{}{end}", row(planned, Some(planned)));
    let _ = writeln!(text, "  planned  {}", console.paint(Tone::Plain, &planned_row));
    let status = planned.status.clone().unwrap_or_default();
    let changes = run::changes(&status);
    let before = applied.map_or_else(BTreeSet::new, |last| last.other_changes(planned));
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

/// Returns number, revision and counts of a run. The counts are those of its plan, whose run may not be retained any more.
fn row(run: &TerraformRun, plan: Option<&TerraformRun>) -> String {
    let changes = plan.map_or("changes unknown", |plan| {
        let changes = plan.status.as_ref().map_or("", |status| status.changes.as_str());
        if changes.is_empty() { "no changes" } else { changes }
    });
    let revision = &run.spec.source.revision;
    format!("run {}  {revision}  {changes}", run::number(run))
}

/// Returns the addresses that a run changed.
fn addresses(run: &TerraformRun) -> BTreeSet<&str> {
    let entries = run.status.iter().flat_map(|status| &status.change_entries);
    entries.map(|Change { address, .. }| address.as_str()).collect()
}

#[cfg(test)]
mod tests {
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
        let runs = [planned.clone(), applied.clone()];
        let last = LastApply::of(&applied, &runs);
        assert_eq!(
            text(&stack(&json!({})), &planned, Some(last), Console::plain()),
            "team/app\n  applied  run 1  main@sha1:1  +1 ~0 -0\n  planned  run 2  main@sha1:2  +0 ~1 -1\n  \
             - a.y (delete)\n  ~ a.x (update)  (changed by the last apply too)\n"
        );
        let fields = fields(&stack(&json!({})), &planned, Some(last));
        assert_eq!(
            (&fields["applied"]["number"], &fields["planned"]["number"]),
            (&json!(1), &json!(2))
        );
        assert_eq!(fields["isApplied"], json!(false));
        assert_eq!(
            fields["changes"],
            json!([
                { "action": "delete", "address": "a.y", "changedByLastApply": false },
                { "action": "update", "address": "a.x", "changedByLastApply": true },
            ])
        );
    }

    #[test]
    fn the_changes_of_an_apply_are_those_of_its_plan() {
        let changes = json!([{"action": "create", "address": "a.x"}]);
        let planned = run(2, &json!({"changes": "+1 ~0 -0", "changeEntries": changes}));
        let source = json!({"id": "plan-x", "run": planned.name_any()});
        let applied = changed_run(
            3,
            &json!({"spec": {"action": "Apply", "plan": source, "source": {"revision": "main@sha1:2"}}, "status": {"applied": true}}),
        );
        let runs = [applied.clone(), planned.clone()];
        let shown = |runs: &[TerraformRun]| {
            let last = LastApply::of(&applied, runs);
            text(&stack(&json!({})), &planned, Some(last), Console::plain())
        };
        assert_eq!(
            shown(&runs),
            "team/app\n  applied  run 3  main@sha1:2  +1 ~0 -0\n  planned  run 2  main@sha1:2  +1 ~0 -0  (applied by run 3)\n  \
             + a.x (create)\n"
        );
        assert!(shown(&runs[..1]).contains("run 3  main@sha1:2  changes unknown\n"));
    }
}
