//! The pages that are shown instead of the overview: a plan, a log, the keys. Pure.

use std::fmt::Write as _;

use jiff::Timestamp;
use sluice_api::run::TerraformRun;
use sluice_cli::command::{describe_plan, shown_run};
use sluice_cli::output::{Console, Tone, duration, printable};
use sluice_cli::{run, stack};

use super::keys::Move;
use super::model::Model;
use super::text::wrap;

/// Rows around the text of a page: its heading with an empty line, and the notice and the keys at the bottom.
pub(super) const ROWS_AROUND_PAGE: u16 = 4;

/// The page of the keys.
const HELP: &str = "\
Keys

  up, down, j, k      select a stack, or move the text
  page up, page down  one page up or down
  home, end, g, G     the first line, the last line
  enter, p            the plan of the stack
  a                   approve its plan, after a question
  x                   reject its plan, after a question
  l                   the log of its newest run
  /                   show stacks with this name or state
  escape              back; on the overview: all stacks
  q                   end the program, after a question
  Ctrl-C              end without a question
  ?                   this page

A run that plans or applies finishes before the program ends; one that
only downloads ends, and the next start repeats it. Ctrl-C again
interrupts the runs; a third Ctrl-C ends without waiting.
";

/// What a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    /// The plan of the selected stack.
    Plan,
    /// The log of the newest run of the selected stack.
    Log,
    /// The keys.
    Help,
}

/// A text that can be moved.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// What it shows.
    pub(super) kind: PageKind,
    /// Its lines, not wider than the terminal.
    pub(super) lines: Vec<(Tone, String)>,
    top: usize,
    /// Whether the last lines are shown while the text grows.
    follows_end: bool,
}

impl Page {
    /// Creates a page without text.
    pub(super) fn new(kind: PageKind) -> Self {
        Self {
            kind,
            lines: Vec::new(),
            top: 0,
            follows_end: kind == PageKind::Log,
        }
    }

    /// Reads the text from the objects again.
    pub(super) fn refresh(&mut self, model: &Model, columns: u16) {
        let text = match self.kind {
            PageKind::Plan => plan_text(model),
            PageKind::Log => log_text(model),
            PageKind::Help => HELP.to_owned(),
        };
        let mut lines = Vec::new();
        for line in printable(&text).lines() {
            let tone = self.tone(line);
            let rows = wrap(&line.replace('\t', "    "), usize::from(columns));
            lines.extend(rows.into_iter().map(|row| (tone, row)));
        }
        self.lines = lines;
    }

    /// Returns the index of the first line that is shown on a terminal of this height.
    pub(super) fn first_line(&self, rows: u16) -> usize {
        let last = self.last_top(rows);
        if self.follows_end {
            last
        } else {
            self.top.min(last)
        }
    }

    /// Moves the text.
    pub(super) fn scroll(&mut self, movement: Move, rows: u16) {
        let last = self.last_top(rows);
        let height = usize::from(rows.saturating_sub(ROWS_AROUND_PAGE));
        self.top = movement.apply(self.first_line(rows), last, height);
        self.follows_end = self.kind == PageKind::Log && self.top == last;
    }

    fn last_top(&self, rows: u16) -> usize {
        let height = usize::from(rows.saturating_sub(ROWS_AROUND_PAGE));
        self.lines.len().saturating_sub(height)
    }

    /// Returns the colour of a line of a plan by the sign of its change, as the CLI has it.
    fn tone(&self, line: &str) -> Tone {
        if self.kind != PageKind::Plan {
            return Tone::Plain;
        }
        match line.split_whitespace().next() {
            Some("+") => Tone::Good,
            Some("-" | "-/+" | "+/-") => Tone::Bad,
            Some("~") => Tone::Attention,
            Some("Plan" | "Plan:") => Tone::Heading,
            _ => Tone::Plain,
        }
    }
}

fn plan_text(model: &Model) -> String {
    let Some(stack) = model.stacks.get(&model.selected) else {
        return "The stack does not exist any more.".to_owned();
    };
    let runs = model.runs_of(stack);
    let run = match shown_run(stack, &runs) {
        Ok(run) => run,
        Err(error) => return error.to_string(),
    };
    let mut text = describe_plan(stack, run, Console::plain());
    let human_plan = run.status.as_ref().map(|status| status.human_plan.as_str());
    if let Some(human_plan) = human_plan.filter(|plan| !plan.is_empty()) {
        let _ = write!(text, "\n{human_plan}");
    }
    text
}

fn log_text(model: &Model) -> String {
    let runs = model
        .stacks
        .get(&model.selected)
        .map(|stack| model.runs_of(stack));
    let Some(run) = runs.as_ref().and_then(|runs| runs.first()) else {
        return "The stack has no run yet.".to_owned();
    };
    let status = run.status.clone().unwrap_or_default();
    let mut text = format!("Run {}: {}\n\n", run::number(run), describe_run(run));
    for (phase, lasted) in steps(run, model.now) {
        let _ = writeln!(text, "  {phase:<18} {lasted}");
    }
    if !status.log_path.is_empty() {
        let _ = writeln!(
            text,
            "\nThis is the end of the log. All of it is in {}.",
            status.log_path
        );
    }
    if !status.log_tail.is_empty() {
        let _ = write!(text, "\n{}", status.log_tail.trim_end());
        text.push('\n');
    }
    let phase = run::phase(run);
    if phase.is_final() {
        let lasted = run::lasted(run, model.now)
            .map_or_else(String::new, |lasted| format!(" after {}", duration(lasted)));
        let colon = if status.message.is_empty() { "" } else { ": " };
        let _ = writeln!(text, "\n{}{lasted}{colon}{}", phase.as_str(), status.message);
    } else if !status.message.is_empty() {
        let _ = writeln!(text, "\n{}", status.message);
    }
    text
}

/// Returns action, trigger and revision: `Plan (Revision) of main@sha1:b8e3`.
fn describe_run(run: &TerraformRun) -> String {
    let destroy = if run.spec.destroy { ", destroy" } else { "" };
    let revision = &run.spec.source.revision;
    let of = if revision.is_empty() { "" } else { " of " };
    format!(
        "{}{destroy} ({}){of}{revision}",
        run.spec.action.as_str(),
        run.spec.trigger.as_str()
    )
}

/// Returns the phases of a run that have begun, and how long each lasted, or lasts until `now`.
fn steps(run: &TerraformRun, now: Timestamp) -> Vec<(&'static str, String)> {
    let Some(status) = &run.status else {
        return Vec::new();
    };
    let ended = status.finished_at.as_ref().map_or(now, |end| end.0);
    let steps = status.steps.iter().filter(|step| !step.phase.is_final());
    let steps: Vec<_> = steps.map(|step| (step.phase, step.since.0)).collect();
    let ends = steps
        .iter()
        .skip(1)
        .map(|(_, since)| *since)
        .chain(std::iter::once(ended));
    steps
        .iter()
        .zip(ends)
        .map(|((phase, since), end)| (phase.as_str(), duration(end.duration_since(*since))))
        .collect()
}

/// Returns the heading of a page: the stack, its state and the runs in progress.
pub(super) fn heading(model: &Model, kind: PageKind) -> (Tone, String) {
    let Some(stack) = model.stacks.get(&model.selected) else {
        return (Tone::Heading, "sluice up".to_owned());
    };
    let state = stack::state(stack);
    match kind {
        PageKind::Plan => (state.tone(), format!("{}   {}", model.selected, state.as_str())),
        PageKind::Log => {
            let runs = model.active_runs();
            let uid = stack.metadata.uid.as_deref().unwrap_or_default();
            let active = runs.into_iter().find(|run| run.spec.terraform.uid == uid);
            let timer = active.map_or_else(String::new, |run| {
                let lasted = run::lasted(run, model.now).map(duration).unwrap_or_default();
                format!("   {} {lasted}", run::phase(run).as_str())
            });
            (
                state.tone(),
                format!("{}   {}{timer}", model.selected, state.as_str()),
            )
        }
        PageKind::Help => (Tone::Heading, "sluice up".to_owned()),
    }
}
