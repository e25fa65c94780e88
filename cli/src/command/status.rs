//! `sluice status`: what waits for the user, what fails, what drifted and what runs, in one screen.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_api::condition::{SourceCondition, find};
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use super::{Context, document};
use crate::cluster::{ConnectionArgs, SelectionArgs};
use crate::output::{Console, ReportFormat, Tone, counted};
use crate::stack::{self, StackState};
use crate::{CliError, ExitStatus};

/// Stacks of one state that are listed; further ones are counted.
const LISTED: usize = 10;
/// The states that are listed, in this order. Of all other states only the number is shown.
const SECTIONS: [(StackState, &str); 8] = [
    (StackState::AwaitsApproval, "Wait for your approval"),
    (StackState::Failed, "Failed"),
    (StackState::Drifted, "Drifted"),
    (StackState::Rejected, "Plan rejected"),
    (StackState::Deleting, "Being deleted"),
    (StackState::Running, "Running"),
    (StackState::Waiting, "Wait for a source or a dependency"),
    (StackState::Planned, "Planned and not applied"),
];

/// Arguments of `sluice status`.
#[derive(clap::Args, Debug)]
pub struct StatusArgs {
    /// The objects.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ReportFormat,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints the overview. The exit code is 0 whatever the state of the stacks.
pub(super) async fn status(context: &Context, args: &StatusArgs) -> Result<ExitStatus, CliError> {
    let (stacks, sources) = tokio::try_join!(
        context.cluster.view::<Terraform>(&args.selection),
        context.cluster.view::<GitRepository>(&args.selection),
    )?;
    if let Some(document) = args
        .output
        .document("StatusReport", || Ok(fields(&stacks, &sources)))?
    {
        context.console.data(&document)?;
        return Ok(ExitStatus::Success);
    }
    context
        .console
        .data(&overview(&stacks, &sources, context.console))?;
    if stacks.is_empty() && sources.is_empty() {
        say_how_to_begin(context, &args.selection);
    }
    Ok(ExitStatus::Success)
}

/// Says what to do where nothing is there.
pub(super) fn say_how_to_begin(context: &Context, selection: &SelectionArgs) {
    let elsewhere = if selection.all_namespaces {
        ""
    } else {
        " With -A you see all namespaces."
    };
    context.console.note(&format!(
        "`sluice create source git --help` shows how to begin.{elsewhere}"
    ));
}

/// Returns the fields of the report: the stacks that the overview lists, all of them, the sources that fail, and the counts.
#[must_use]
fn fields(stacks: &[Terraform], sources: &[GitRepository]) -> Value {
    let rank = |stack: &Terraform| {
        let state = stack::state(stack);
        SECTIONS.iter().position(|(listed, _)| *listed == state)
    };
    let mut listed: Vec<(usize, &Terraform)> = stacks
        .iter()
        .filter_map(|stack| Some((rank(stack)?, stack)))
        .collect();
    listed.sort_by_key(|(rank, stack)| (*rank, stack::full_name(stack)));
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for stack in stacks {
        *states.entry(stack::state(stack).as_str()).or_default() += 1;
    }
    let failed = sources.iter().filter(|source| failed_source(source).is_some());
    let failed = failed.map(|source| {
        let observed = source.status.as_ref();
        let ready = observed.and_then(|status| find(&status.conditions, SourceCondition::Ready));
        json!({
            "namespace": source.namespace().unwrap_or_default(), "name": source.name_any(),
            "reason": ready.map(|ready| ready.reason.as_str()), "message": ready.map(|ready| ready.message.as_str()),
        })
    });
    json!({
        "stacks": listed.iter().map(|(_, stack)| document::stack(stack)).collect::<Vec<_>>(),
        "failedSources": failed.collect::<Vec<_>>(),
        "counts": { "stacks": stacks.len(), "sources": sources.len(), "states": states },
    })
}

/// Formats the overview: the sections with their stacks, then the sources that fail, then one line of counts.
#[must_use]
fn overview(stacks: &[Terraform], sources: &[GitRepository], console: Console) -> String {
    let mut by_state: BTreeMap<StackState, Vec<&Terraform>> = BTreeMap::new();
    for stack in stacks {
        by_state.entry(stack::state(stack)).or_default().push(stack);
    }
    let mut text = String::new();
    for (state, title) in SECTIONS {
        let Some(stacks) = by_state.get_mut(&state) else {
            continue;
        };
        stacks.sort_by_key(|stack| stack::full_name(stack));
        let rows = stacks
            .iter()
            .map(|stack| (stack::full_name(stack), detail(stack, state)));
        push_section(&mut text, title, state.tone(), &rows.collect::<Vec<_>>(), console);
    }
    let failed: Vec<_> = sources.iter().filter_map(failed_source).collect();
    push_section(&mut text, "Sources that fail", Tone::Bad, &failed, console);
    let counts = counts(&by_state, stacks.len(), sources.len());
    text.push_str(&console.block((Tone::Plain, ""), 2, (Tone::Plain, &counts)));
    text
}

fn push_section(text: &mut String, title: &str, tone: Tone, rows: &[(String, String)], console: Console) {
    if rows.is_empty() {
        return;
    }
    let title = format!("{title} ({})", rows.len());
    let _ = writeln!(text, "{}", console.paint(tone, &title));
    let shown = &rows[..rows.len().min(LISTED)];
    let name_width = shown
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or_default();
    for (name, detail) in shown {
        let line = format!("  {name:<name_width$}   {detail}");
        let _ = writeln!(text, "{}", console.line(&[(Tone::Plain, line.trim_end())]));
    }
    if rows.len() > LISTED {
        let _ = writeln!(text, "  and {} more", rows.len() - LISTED);
    }
    text.push('\n');
}

/// Returns what the user wants to know of a stack in this state.
fn detail(stack: &Terraform, state: StackState) -> String {
    let first_line = || {
        stack::message(stack)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    match state {
        StackState::AwaitsApproval => format!("sluice approve {} -n {}", stack.name_any(), namespace(stack)),
        StackState::Drifted => {
            let drift = stack.status.as_ref().and_then(|status| status.drift.as_ref());
            drift.map_or_else(first_line, ToString::to_string)
        }
        StackState::Failed => {
            let reason = stack::ready(stack)
                .map(|ready| ready.reason.as_str())
                .unwrap_or_default();
            format!("{reason}: {}", first_line())
        }
        StackState::Rejected
        | StackState::Deleting
        | StackState::Running
        | StackState::Waiting
        | StackState::Planned
        | StackState::Suspended
        | StackState::Ready => first_line(),
    }
}

fn namespace(stack: &Terraform) -> String {
    stack.namespace().unwrap_or_default()
}

/// Returns name and cause of a source that is not ready, unless it is suspended.
fn failed_source(source: &GitRepository) -> Option<(String, String)> {
    let status = source.status.as_ref()?;
    let ready = find(&status.conditions, SourceCondition::Ready)?;
    let name = format!("{}/{}", source.namespace().unwrap_or_default(), source.name_any());
    let first = ready.message.lines().next().unwrap_or_default();
    let fails = ready.status == "False" && !source.spec.suspend;
    fails.then(|| (name, format!("{}: {first}", ready.reason)))
}

/// Formats the last line: `12 stacks: 9 Ready, 2 Running, 1 Failed; 3 sources`.
fn counts(by_state: &BTreeMap<StackState, Vec<&Terraform>>, stacks: usize, sources: usize) -> String {
    let states = by_state.iter().rev();
    let parts: Vec<_> = states
        .map(|(state, stacks)| format!("{} {}", stacks.len(), state.as_str()))
        .collect();
    let colon = if parts.is_empty() { "" } else { ": " };
    let (stacks, sources) = (counted(stacks, "stack"), counted(sources, "source"));
    format!("{stacks}{colon}{}; {sources}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn stack(name: &str, ready: [&str; 3], more: &Value) -> Terraform {
        let mut status = json!({"conditions": [{"type": "Ready", "status": ready[0], "reason": ready[1], "message": ready[2],
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        fixture::merge(&mut status, more);
        fixture::stack(&json!({ "metadata": { "name": name, "namespace": "default" }, "status": status }))
    }

    #[test]
    fn what_needs_the_user_comes_first() {
        let plan = json!({"plan": {"pending": "plan-x"}});
        let stacks = [
            stack("ok", ["True", "TerraformAppliedSucceed", "Applied"], &json!({})),
            stack(
                "bad",
                ["False", "TFExecPlanFailed", "exit status 1\nError"],
                &json!({}),
            ),
            stack(
                "wait",
                ["Unknown", "TerraformPlannedWithChanges", "Plan generated"],
                &plan,
            ),
        ];
        assert_eq!(
            overview(&stacks, &[], Console::plain()),
            "Wait for your approval (1)\n  default/wait   sluice approve wait -n default\n\n\
             Failed (1)\n  default/bad   TFExecPlanFailed: exit status 1\n\n\
             3 stacks: 1 Ready, 1 Failed, 1 AwaitsApproval; 0 sources\n"
        );
        let fields = fields(&stacks, &[]);
        let names: Vec<_> = fields["stacks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|stack| &stack["name"])
            .collect();
        assert_eq!(names, [&json!("wait"), &json!("bad")]);
        assert_eq!(fields["stacks"][0]["pendingPlan"], "plan-x");
        assert_eq!(fields["stacks"][1]["reason"], "TFExecPlanFailed");
        assert_eq!(
            fields["counts"],
            json!({ "stacks": 3, "sources": 0, "states": { "AwaitsApproval": 1, "Failed": 1, "Ready": 1 } })
        );
    }

    #[test]
    fn a_long_section_is_counted() {
        let failed = |index: usize| {
            stack(
                &format!("s{index:02}"),
                ["False", "TFExecPlanFailed", "no"],
                &json!({}),
            )
        };
        let stacks: Vec<_> = (0..12).map(failed).collect();
        let text = overview(&stacks, &[], Console::plain());
        assert!(
            text.contains("Failed (12)\n") && text.contains("default/s09") && !text.contains("default/s10"),
            "{text}"
        );
        assert!(text.contains("  and 2 more\n"), "{text}");
    }

    #[test]
    fn nothing_is_no_error() {
        assert_eq!(overview(&[], &[], Console::plain()), "0 stacks; 0 sources\n");
    }
}
