//! `sluice describe`: all that is known of one stack, in one screen.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{Terraform, TerraformStatus};
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::events::{events_of, newest, table as events_table};
use super::history::table as runs_table;
use super::plan::describe_plan;
use super::{Context, document};
use crate::cluster::{Cluster, ConnectionArgs};
use crate::output::{Console, ReportFormat, Tone, age, to_values};
use crate::run_row::{self, RunRow, stack_with_rows};
use crate::{CliError, ExitStatus, stack};

/// Runs and events that are shown.
const SHOWN: usize = 5;
/// Columns before the other lines of a text that is broken: those of the labels.
const INDENT: usize = 17;

/// Arguments of `sluice describe`.
#[derive(clap::Args, Debug)]
pub struct DescribeArgs {
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

/// Prints a stack.
pub(super) async fn describe(context: &Context, args: &DescribeArgs) -> Result<ExitStatus, CliError> {
    let (stack, runs) = stack_with_rows(&context.cluster, &args.name).await?;
    let (planned, events) = tokio::join!(
        pending_run(&context.cluster, &stack, &runs),
        // On the heap: it holds three requests.
        Box::pin(events_of(&context.cluster, &stack, &runs)),
    );
    let events = match events {
        // The role sluice-view does not contain events; the rest is of use without them.
        Err(error) if error.is_forbidden() => {
            context.report(&error);
            Vec::new()
        }
        found => found?,
    };
    let known = Known {
        stack,
        planned: planned?,
        runs,
        events,
    };
    let text = match args.output.document("StackReport", || report_fields(&known))? {
        Some(document) => document,
        None => text(&known, context.console, SystemClock.now()),
    };
    context.console.data(&text)?;
    Ok(ExitStatus::Success)
}

/// Returns the fields of the report: all runs and events, and objects as the API has them.
fn report_fields(known: &Known) -> Result<Value, CliError> {
    let runs: Vec<Value> = known.runs.iter().map(document::run).collect();
    Ok(json!({
        "summary": document::stack(&known.stack),
        "stack": to_values(std::slice::from_ref(&known.stack))?.pop(),
        "plannedRun": to_values(known.planned.as_slice())?.pop(),
        "runs": runs,
        "events": to_values(&newest(&known.events, usize::MAX))?,
    }))
}

/// What the API knows of a stack.
struct Known {
    stack: Terraform,
    /// The run of the plan that waits.
    planned: Option<TerraformRun>,
    /// Its runs, newest first.
    runs: Vec<RunRow>,
    events: Vec<Event>,
}

/// Reads the run of the plan that waits; of no other run the plan is shown.
async fn pending_run(
    cluster: &Cluster,
    stack: &Terraform,
    runs: &[RunRow],
) -> Result<Option<TerraformRun>, CliError> {
    let pending = stack::pending_plan(stack).and_then(|plan| run_row::of_plan(runs, plan));
    match pending {
        Some(row) => cluster.get(&row.name).await.map(Some),
        None => Ok(None),
    }
}

fn text(known: &Known, console: Console, now: Timestamp) -> String {
    let Known {
        stack,
        planned,
        runs,
        events,
    } = known;
    let mut text = String::new();
    let state = stack::state(stack);
    let title = format!("terraform {}", stack::full_name(stack));
    let parts = [
        (Tone::Heading, title.as_str()),
        (Tone::Plain, "  "),
        (state.tone(), state.as_str()),
    ];
    let _ = writeln!(text, "{}", console.line(&parts));
    for (label, value) in fields(stack, now) {
        if !value.is_empty() {
            let front = format!("  {label:<14} ");
            text.push_str(&console.block((Tone::Plain, &front), INDENT, (Tone::Plain, &value)));
        }
    }
    push_conditions(&mut text, stack, console, now);
    if let Some(run) = planned {
        let _ = write!(text, "\n{}", describe_plan(stack, run, console));
    }
    if !runs.is_empty() {
        let newest = &runs[..runs.len().min(SHOWN)];
        let _ = write!(
            text,
            "\n{}\n{}",
            console.paint(Tone::Heading, "Runs"),
            runs_table(newest, now).render(&console)
        );
    }
    if !events.is_empty() {
        let newest = newest(events, SHOWN);
        let _ = write!(
            text,
            "\n{}\n{}",
            console.paint(Tone::Heading, "Events"),
            events_table(&newest, now).render(&console)
        );
    }
    text
}

/// Returns the fields that a user asks for first.
fn fields(stack: &Terraform, now: Timestamp) -> Vec<(&'static str, String)> {
    let spec = &stack.spec;
    let status = stack.status.clone().unwrap_or_default();
    let source = &spec.source_ref;
    let created = stack.metadata.creation_timestamp.as_ref();
    let depends_on: Vec<_> = spec.depends_on.iter().map(|other| other.name.as_str()).collect();
    let (approve, path) = (
        approval_mode(stack),
        if spec.path.is_empty() { "." } else { &spec.path },
    );
    vec![
        ("source", format!("{} {}", source.kind.as_str(), source.name)),
        ("path", path.to_owned()),
        ("workspace", spec.workspace_name().to_owned()),
        ("approval", approve),
        ("depends on", depends_on.join(", ")),
        ("applied", status.last_applied_revision.clone()),
        ("attempted", status.last_attempted_revision.clone()),
        (
            "drift",
            status.drift.as_ref().map(ToString::to_string).unwrap_or_default(),
        ),
        ("state lock", lock(&status)),
        (
            "failures",
            if status.reconciliation_failures == 0 {
                String::new()
            } else {
                status.reconciliation_failures.to_string()
            },
        ),
        (
            "age",
            created.map(|created| age(created.0, now)).unwrap_or_default(),
        ),
    ]
}

/// Describes who approves plans.
fn approval_mode(stack: &Terraform) -> String {
    let spec = &stack.spec;
    if let Some(required) = spec.approval.as_ref().filter(|_| spec.approve_plan != "disable") {
        return format!("{} PlanApprovals", required.count.unwrap_or(1));
    }
    let mode = match spec.approve_plan.as_str() {
        "auto" if spec.auto_apply.is_some() => "automatic, limited by autoApply",
        "auto" => "automatic",
        "disable" => "never: only drift is reported",
        _ => "each plan waits for one",
    };
    let only = if spec.plan_only {
        "; planOnly: nothing is applied"
    } else {
        ""
    };
    let force = if spec.force { "; force" } else { "" };
    format!("{mode}{only}{force}")
}

fn lock(status: &TerraformStatus) -> String {
    let pending = status
        .lock
        .as_ref()
        .map(|lock| lock.pending.as_str())
        .unwrap_or_default();
    if pending.is_empty() {
        String::new()
    } else {
        format!("held: {pending}")
    }
}

fn push_conditions(text: &mut String, stack: &Terraform, console: Console, now: Timestamp) {
    let conditions = stack.status.iter().flat_map(|status| &status.conditions);
    let _ = writeln!(text, "\n{}", console.paint(Tone::Heading, "Conditions"));
    for condition in conditions {
        let since = age(condition.last_transition_time.0, now);
        let first = condition.message.lines().next().unwrap_or_default();
        let front = format!("  {:<12} {:<7} ", condition.type_, condition.status);
        let message = format!("{} ({since}): {first}", condition.reason);
        text.push_str(&console.block((Tone::Plain, &front), INDENT, (Tone::Plain, &message)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::stack;

    #[test]
    fn a_stack_is_one_screen() {
        let stack = stack(&json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"approvePlan": "auto"},
            "status": {"lastAppliedRevision": "main@sha1:b8e3", "conditions": [
                {"type": "Ready", "status": "True", "reason": "TerraformAppliedSucceed", "message": "Applied",
                 "lastTransitionTime": "2026-01-01T00:00:30Z"}]},
        }));
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let known = Known {
            stack,
            planned: None,
            runs: Vec::new(),
            events: Vec::new(),
        };
        assert_eq!(
            text(&known, Console::plain(), now),
            "terraform team/app  Ready\n  source         GitRepository repo\n  path           .\n  workspace      default\n  \
             approval       automatic\n  applied        main@sha1:b8e3\n  age            60s\n\nConditions\n  \
             Ready        True    TerraformAppliedSucceed (30s): Applied\n"
        );
        let fields = report_fields(&known).unwrap();
        assert_eq!(fields["summary"]["state"], "Ready");
        assert_eq!(fields["stack"]["spec"]["approvePlan"], "auto");
        assert_eq!(
            (&fields["plannedRun"], &fields["runs"]),
            (&Value::Null, &json!([]))
        );
    }
}
