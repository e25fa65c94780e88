//! Draws the state of the screen. Pure: the same state and size give the same picture.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ratatui::Frame;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use sluice_api::condition::{SourceCondition, find};
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_cli::output::{Tone, duration};
use sluice_cli::run;
use sluice_cli::stack::{self, StackState};

use super::model::{Model, Prompt, full_name};
use super::page::{self, Page, PageKind, ROWS_AROUND_PAGE};
use super::text::{fit, path_end, style};
use crate::view::progress::short_revision;

/// The smallest terminal that the overview fits on.
const MIN_COLUMNS: u16 = 60;
/// As [`MIN_COLUMNS`].
const MIN_ROWS: u16 = 16;
/// Rows of the overview without sources, stacks and runs: headings, empty lines, and the lines at the bottom.
const ROWS_AROUND_OBJECTS: usize = 13;
/// Columns of a state and the space after it.
const STATE_COLUMNS: usize = 16;

/// A line as parts with their meanings.
type Row = Vec<(Tone, String)>;

/// Draws the screen.
pub(super) fn render(model: &Model, frame: &mut Frame<'_>) {
    let area = frame.area();
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    let (mut lines, bottom) = if area.width < MIN_COLUMNS || area.height < MIN_ROWS {
        let text = format!(
            "sluice up needs {MIN_COLUMNS} x {MIN_ROWS} characters; here are {} x {}.",
            area.width, area.height
        );
        (vec![one(Tone::Attention, &text)], vec![last_line(model, columns)])
    } else if let Some(page) = &model.page {
        (
            page_lines(model, page, area.height),
            vec![notice(model, columns), last_line(model, columns)],
        )
    } else {
        (overview(model, columns, rows), footer(model, columns))
    };
    lines.resize(rows.saturating_sub(bottom.len()), Vec::new());
    lines.extend(bottom);
    let lines: Vec<Line<'static>> = lines
        .into_iter()
        .map(|row| styled(row, model.setup.colours))
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn styled(row: Row, colours: bool) -> Line<'static> {
    let spans = row
        .into_iter()
        .map(|(tone, text)| Span::styled(text, style(tone, colours)));
    Line::from(spans.collect::<Vec<_>>())
}

fn one(tone: Tone, text: &str) -> Row {
    vec![(tone, text.to_owned())]
}

fn page_lines(model: &Model, page: &Page, rows: u16) -> Vec<Row> {
    let height = usize::from(rows.saturating_sub(ROWS_AROUND_PAGE));
    let shown = page.lines.iter().skip(page.first_line(rows)).take(height);
    let heading = vec![page::heading(model, page.kind)];
    let text = shown.map(|(tone, line)| one(*tone, line));
    [heading, Vec::new()].into_iter().chain(text).collect()
}

fn overview(model: &Model, columns: usize, rows: usize) -> Vec<Row> {
    let room = rows.saturating_sub(ROWS_AROUND_OBJECTS).max(3);
    let most = (room / 4).max(1);
    let runs = model.active_runs();
    let source_rows = model.sources.len().clamp(1, most);
    let run_rows = runs.len().clamp(1, most);
    let mut lines = vec![heading(model, columns), waiting(model, columns), Vec::new()];
    lines.extend(sources(model, columns, source_rows));
    lines.push(Vec::new());
    lines.extend(stacks(model, columns, room - source_rows - run_rows));
    lines.push(Vec::new());
    lines.push(title("Runs in progress", runs.len(), run_rows));
    if runs.is_empty() {
        lines.push(one(Tone::Muted, "  There is none."));
    }
    let shown = runs.iter().take(run_rows);
    lines.extend(shown.map(|run| run_row(model, run, columns)));
    lines
}

/// Returns the name of the program and, at the right, the number of stacks in each state.
fn heading(model: &Model, columns: usize) -> Row {
    let mut left = "sluice up".to_owned();
    if model.setup.in_memory {
        left.push_str(" (in memory)");
    }
    if model.is_stopping {
        left.push_str(", ending");
    }
    let mut by_state: BTreeMap<StackState, usize> = BTreeMap::new();
    for stack in model.stacks.values() {
        *by_state.entry(stack::state(stack)).or_default() += 1;
    }
    let counts: Vec<_> = by_state
        .iter()
        .map(|(state, count)| format!("{count} {}", state.as_str()))
        .collect();
    let colon = if counts.is_empty() { "" } else { ": " };
    let plural = if model.stacks.len() == 1 { "" } else { "s" };
    let right = format!("{} stack{plural}{colon}{}", model.stacks.len(), counts.join(", "));
    let room = columns.saturating_sub(left.len() + 2);
    let right = fit(&right, right.len().min(room));
    let gap = columns.saturating_sub(left.len() + right.chars().count());
    vec![
        (Tone::Heading, left),
        (Tone::Plain, " ".repeat(gap)),
        (Tone::Muted, right),
    ]
}

fn waiting(model: &Model, columns: usize) -> Row {
    let waiting: Vec<_> = model
        .waiting_stacks()
        .map(|(stack, plan)| format!("{} ({})", stack::full_name(stack), changes(model, plan)))
        .collect();
    if waiting.is_empty() {
        return one(Tone::Muted, "Nothing waits for you.");
    }
    let text = format!("Waits for you: {}", waiting.join(", "));
    one(Tone::Attention, &fit(&text, columns))
}

fn changes<'a>(model: &'a Model, plan: &str) -> &'a str {
    match model.changes(plan) {
        "" => "a plan",
        changes => changes,
    }
}

/// Returns a heading, with the number of objects if some are not shown.
fn title(text: &str, objects: usize, shown: usize) -> Row {
    let more = if objects > shown {
        format!(": {shown} of {objects}")
    } else {
        String::new()
    };
    one(Tone::Heading, &format!("{text}{more}"))
}

/// Returns the columns of a name: a third of the line, but not more than most names need.
fn name_columns(columns: usize) -> usize {
    (columns / 3).clamp(16, 40)
}

/// Joins marker, name, state and text to a line that fits.
fn object_row(marker: &str, name: &str, state: (Tone, &str), text: &str, columns: usize) -> Row {
    let name_columns = name_columns(columns);
    let rest = columns.saturating_sub(2 + name_columns + 1 + STATE_COLUMNS);
    let name_tone = if marker.trim().is_empty() {
        Tone::Plain
    } else {
        Tone::Heading
    };
    vec![
        (name_tone, format!("{marker}{} ", fit(name, name_columns))),
        (state.0, fit(state.1, STATE_COLUMNS)),
        (Tone::Plain, fit(text, rest)),
    ]
}

/// Returns the sources, those that fail first.
fn sources(model: &Model, columns: usize, rows: usize) -> Vec<Row> {
    let mut lines = vec![title("Sources", model.sources.len(), rows)];
    if model.sources.is_empty() {
        lines.push(one(
            Tone::Muted,
            "  There is none: sluice create source git --help",
        ));
    }
    let mut sources: Vec<_> = model.sources.values().collect();
    sources.sort_by_key(|source| (source_state(source).0 != Tone::Bad, full_name(*source)));
    for source in sources.into_iter().take(rows) {
        let state = source_state(source);
        let text = source_text(source, state.0 == Tone::Bad);
        lines.push(object_row("  ", &full_name(source), state, &text, columns));
    }
    lines
}

fn source_state(source: &GitRepository) -> (Tone, &'static str) {
    let status = source.status.as_ref();
    let ready = status.and_then(|status| find(&status.conditions, SourceCondition::Ready));
    match ready.map(|ready| ready.status.as_str()) {
        _ if source.spec.suspend => (Tone::Muted, "Suspended"),
        Some("True") => (Tone::Good, "Ready"),
        Some("False") => (Tone::Bad, "Failed"),
        _ => (Tone::Plain, "Fetching"),
    }
}

/// Returns the revision of a source or, if it fails, why.
fn source_text(source: &GitRepository, fails: bool) -> String {
    let Some(status) = &source.status else {
        return String::new();
    };
    if let Some(ready) = find(&status.conditions, SourceCondition::Ready).filter(|_| fails) {
        return ready.message.clone();
    }
    let artifact = status.artifact.as_ref();
    artifact.map_or_else(String::new, |artifact| short_revision(&artifact.revision))
}

/// Returns the page of the list of stacks that has the selected one.
fn stacks(model: &Model, columns: usize, rows: usize) -> Vec<Row> {
    let visible = model.visible_stacks();
    let first = model.selected_index(&visible) / rows * rows;
    let mut text = "Stacks".to_owned();
    if !model.filter.is_empty() {
        text.push_str(" with ");
        text.push_str(&model.filter);
    }
    if visible.len() > rows {
        let last = (first + rows).min(visible.len());
        let _ = write!(text, ": {}-{last} of {}", first + 1, visible.len());
    }
    let mut lines = vec![one(Tone::Heading, &fit(&text, columns))];
    if visible.is_empty() {
        let next = if model.filter.is_empty() {
            ": sluice create terraform --help"
        } else {
            "."
        };
        lines.push(one(Tone::Muted, &format!("  There is none{next}")));
    }
    for stack in visible.into_iter().skip(first).take(rows) {
        let (name, state) = (stack::full_name(stack), stack::state(stack));
        let marker = if name == model.selected { "> " } else { "  " };
        let text = stack_text(model, stack, state);
        lines.push(object_row(
            marker,
            &name,
            (state.tone(), state.as_str()),
            &text,
            columns,
        ));
    }
    lines
}

fn stack_text(model: &Model, stack: &Terraform, state: StackState) -> String {
    match (state, stack::pending_plan(stack)) {
        (StackState::AwaitsApproval | StackState::Planned, Some(plan)) => {
            format!("{}  {plan}", changes(model, plan))
        }
        (StackState::Failed, _) => {
            let reason = stack::ready(stack).map_or("", |ready| ready.reason.as_str());
            format!("{reason}: {}", stack::message(stack))
        }
        _ => stack::message(stack).to_owned(),
    }
}

/// Returns a run in progress: stack, number and action, phase and timer.
fn run_row(model: &Model, run: &TerraformRun, columns: usize) -> Row {
    let phase = run::phase(run);
    let timer = run::lasted(run, model.now).map(duration).unwrap_or_default();
    let message = run.status.as_ref().map_or("", |status| status.message.as_str());
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let name = format!("{namespace}/{}", run.spec.terraform.name);
    let text = format!(
        "{timer:<7} run {} {}  {message}",
        run::number(run),
        run.spec.action.as_str()
    );
    object_row("  ", &name, (run::tone(phase), phase.as_str()), &text, columns)
}

/// Returns the lines at the bottom of the overview.
fn footer(model: &Model, columns: usize) -> Vec<Row> {
    let export = "export KUBECONFIG=";
    let kubeconfig = path_end(&model.setup.kubeconfig, columns.saturating_sub(export.len()));
    let log = if model.setup.log.is_empty() {
        "The log goes to standard error.".to_owned()
    } else {
        let text = "The log is ";
        let path = path_end(&model.setup.log, columns.saturating_sub(text.len()));
        format!("{text}{path}")
    };
    vec![
        notice(model, columns),
        one(Tone::Muted, &format!("{export}{kubeconfig}")),
        one(Tone::Muted, &log),
        last_line(model, columns),
    ]
}

fn notice(model: &Model, columns: usize) -> Row {
    let text = model.notices.last().map_or("", String::as_str);
    one(Tone::Attention, &fit(text, columns))
}

/// Returns the question that waits, or the keys.
fn last_line(model: &Model, columns: usize) -> Row {
    match (&model.prompt, &model.page) {
        (Some(Prompt::Decide { decision, plan, .. }), _) => {
            question(&format!("{} {plan}?", decision.question()), columns)
        }
        (Some(Prompt::Quit), _) if model.is_stopping => question("Interrupt the runs in progress?", columns),
        (Some(Prompt::Quit), _) => question("End sluice up? Runs in progress finish first.", columns),
        (Some(Prompt::Filter), _) => one(
            Tone::Attention,
            &fit(&format!("Filter: {}_", model.filter), columns),
        ),
        (None, None) => keys(
            "p plan  a approve  x reject  l log  / filter  ? help  q quit",
            columns,
        ),
        (None, Some(page)) => keys(page_keys(page.kind), columns),
    }
}

const fn page_keys(kind: PageKind) -> &'static str {
    match kind {
        PageKind::Plan => "escape back  up, down  a approve  x reject  l log  q quit",
        PageKind::Log => "escape back  up, down move  end follow  p plan  q quit",
        PageKind::Help => "escape back  q quit",
    }
}

fn keys(text: &str, columns: usize) -> Row {
    one(Tone::Muted, &fit(text, columns))
}

/// Returns a question; what is answered stays visible if the question is cut.
fn question(text: &str, columns: usize) -> Row {
    let answers = " [y/N]";
    let width = text.chars().count().min(columns.saturating_sub(answers.len()));
    vec![
        (Tone::Attention, fit(text, width)),
        (Tone::Heading, answers.to_owned()),
    ]
}
