//! The pictures of the screen, and what keys do.

use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::decision::Decision;
use super::is_suitable;
use super::keys::{Key, Move};
use super::model::{Change, Effect, Event, Model, Prompt, Setup};
use super::page::PageKind;
use super::render::render;

const PLAN: &str = "plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567";

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!({"observedGeneration": 1, "conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

fn stack(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": {"name": name, "namespace": "default", "generation": 1, "uid": format!("uid-{name}")},
        "spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "infra"}}, "status": status,
    })
}

fn run(stack: &str, number: u64, status: &Value) -> Value {
    json!({
        "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
        "metadata": {"name": format!("{stack}-0123456789-{number}"), "namespace": "default"},
        "spec": {"action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
            "source": {"kind": "GitRepository", "name": "infra", "namespace": "default", "revision": "main@sha1:b8e362c206f0d1"},
            "terraform": {"generation": 1, "name": stack, "uid": format!("uid-{stack}")}},
        "status": status,
    })
}

fn waiting(plan: &str) -> Value {
    let mut status = ready("Unknown", "TerraformPlannedWithChanges", "Plan generated");
    status["plan"] = json!({"pending": plan});
    status
}

/// A plan that waits (`app`), a failed stack (`db`), and one in progress (`net`).
fn model() -> Model {
    let setup = Setup {
        kubeconfig: "/home/user/stacks/state/api/kubeconfig".to_owned(),
        log: "/home/user/stacks/state/sluice.log".to_owned(),
        in_memory: false,
        colours: true,
    };
    let mut model = Model::new(setup, time("2026-01-01T00:01:05Z"));
    let mut status = ready("True", "Succeeded", "stored artifact");
    status["artifact"] = json!({"digest": format!("sha256:{}", "ab".repeat(32)), "lastUpdateTime": "2026-01-01T00:00:00Z",
        "path": "a/b.tar.gz", "revision": "main@sha1:b8e362c206f0d1c9a7e5", "url": "http://127.0.0.1/x"});
    let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": "infra", "namespace": "default"},
        "spec": {"interval": "1m", "url": "https://git.example/infra.git"}, "status": status});
    model.apply(Event::Sources(Change::All(vec![object(source)])));
    let failed = ready("False", "TFExecPlanFailed", "exit status 1\nError: no value");
    let stacks = [
        stack("app", &waiting(PLAN)),
        stack("db", &failed),
        stack("net", &ready("Unknown", "Progressing", "Planning")),
    ];
    model.apply(Event::Stacks(Change::All(
        stacks.into_iter().map(object).collect(),
    )));
    let planned = json!({"phase": "Succeeded", "hasChanges": true, "planId": PLAN, "changes": "+1 ~0 -1",
        "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:42Z",
        "steps": [{"phase": "Initializing", "since": "2026-01-01T00:00:00.000000Z"}, {"phase": "Planning", "since": "2026-01-01T00:00:12.000000Z"}],
        "logTail": "$ tofu plan\nPlan: 1 to add, 1 to destroy\n", "logPath": "/state/runs/logs",
        "humanPlan": "  + resource \"terraform_data\" \"new\" {\n    }",
        "changeEntries": [{"action": "create", "address": "terraform_data.new"}, {"action": "delete", "address": "terraform_data.old"}]});
    let active = json!({"phase": "Planning", "startedAt": "2026-01-01T00:01:00Z"});
    let runs = [run("app", 3, &planned), run("net", 7, &active)];
    model.apply(Event::Runs(Change::All(runs.into_iter().map(object).collect())));
    model
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn press(model: &mut Model, keys: &str) -> Option<Effect> {
    let mut effect = None;
    for letter in keys.chars() {
        effect = model.apply(Event::Key(Key::Char(letter)));
    }
    effect
}

/// Draws the screen and returns its lines without the spaces at their ends.
fn lines(model: &mut Model, columns: u16, rows: u16) -> Vec<String> {
    model.resize(columns, rows);
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| render(model, frame)).unwrap();
    let cells = terminal.backend().buffer().content();
    cells
        .chunks(usize::from(columns))
        .map(|row| {
            let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
            line.trim_end().to_owned()
        })
        .collect()
}

/// Returns the first line with all these texts.
#[track_caller]
fn line_with<'a>(lines: &'a [String], texts: &[&str]) -> &'a str {
    let found = lines
        .iter()
        .find(|line| texts.iter().all(|text| line.contains(text)));
    found.unwrap_or_else(|| panic!("no line with {texts:?} in\n{}", lines.join("\n")))
}

#[test]
fn an_empty_screen_says_how_to_begin() {
    let setup = Setup {
        kubeconfig: "kubeconfig".to_owned(),
        log: "sluice.log".to_owned(),
        in_memory: true,
        colours: false,
    };
    let mut model = Model::new(setup, time("2026-01-01T00:01:05Z"));
    model.apply(Event::Sources(Change::All(Vec::new())));
    model.apply(Event::Stacks(Change::All(Vec::new())));
    let text = lines(&mut model, 60, 16).join("\n");
    for command in [
        "sluice create source git --help",
        "sluice create terraform --help",
    ] {
        assert!(text.contains(command), "{text}");
    }
}

#[test]
fn the_overview_fits_on_80_columns() {
    let lines = lines(&mut model(), 80, 24);
    assert_eq!(lines.len(), 24);
    line_with(
        &lines,
        &["sluice up", "3 stacks: 1 AwaitsApproval, 1 Failed, 1 Running"],
    );
    assert_eq!(lines[1], "Waits for you: default/app (+1 ~0 -1)");
    line_with(&lines, &["default/infra", "Ready", "main@sha1:b8e362c206…"]);
    let selected = line_with(&lines, &["default/app", "AwaitsApproval", "+1 ~0 -1  plan-main"]);
    assert!(
        selected.starts_with("> ") && selected.ends_with('…'),
        "{selected}"
    );
    assert!(line_with(&lines, &["default/db", "Failed", "TFExecPlanFailed: exit"]).starts_with("  "));
    line_with(&lines, &["default/net", "Planning", "5s", "run 7 Plan"]);
    assert_eq!(
        lines[20..],
        [
            "",
            "export KUBECONFIG=/home/user/stacks/state/api/kubeconfig",
            "The log is /home/user/stacks/state/sluice.log",
            "p plan  a approve  x reject  l log  / filter  ? help  q quit"
        ]
    );
}

#[test]
fn a_wide_terminal_shows_whole_texts() {
    let lines = lines(&mut model(), 160, 50);
    assert_eq!(lines.len(), 50);
    line_with(&lines, &["default/app", &format!("+1 ~0 -1  {PLAN}")]);
    line_with(&lines, &["default/db", "TFExecPlanFailed: exit status 1"]);
    assert!(lines[49].ends_with("q quit"), "{}", lines[49]);
}

#[test]
fn the_narrowest_terminal_has_the_states() {
    let shown = lines(&mut model(), 60, 16);
    line_with(&shown, &["default/app", "AwaitsApproval", "+1 ~0 -1"]);
    assert!(shown[15].ends_with("q quit"), "{}", shown[15]);
    let shown = lines(&mut model(), 59, 16);
    line_with(&shown, &["sluice up needs 60 x 16"]);
}

#[test]
fn a_decision_names_the_plan_that_was_shown() {
    for (key, decision, question) in [
        ("a", Decision::Approve, "Approve"),
        ("x", Decision::Reject, "Reject"),
    ] {
        decide(key, decision, question);
    }
}

fn decide(key: &str, expected: Decision, question: &str) {
    let mut model = model();
    assert_eq!(press(&mut model, key), None);
    let shown = lines(&mut model, 80, 24);
    let (destroyed, created) = (
        shown
            .iter()
            .position(|line| line.contains("- terraform_data.old (delete)")),
        shown
            .iter()
            .position(|line| line.contains("+ terraform_data.new (create)")),
    );
    assert!(destroyed.is_some() && destroyed < created, "{}", shown.join("\n"));
    assert_eq!(shown[23], format!("{question} {PLAN}? [y/N]"));
    match press(&mut model, "y") {
        Some(Effect::Decide {
            decision,
            stack,
            plan,
        }) => {
            assert_eq!(
                (decision, stack.metadata.name.as_deref(), plan.as_str()),
                (expected, Some("app"), PLAN)
            );
        }
        other => panic!("no decision: {other:?}"),
    }
    assert_eq!(model.prompt, None);
}

#[test]
fn anything_but_yes_decides_nothing() {
    for (question, notice) in [("a", "Nothing was approved."), ("x", "Nothing was rejected.")] {
        for key in [
            Key::Enter,
            Key::Escape,
            Key::Char('n'),
            Key::Char('a'),
            Key::Char('x'),
        ] {
            let mut model = model();
            press(&mut model, question);
            assert!(model.prompt.is_some());
            assert_eq!(model.apply(Event::Key(key)), None, "{key:?}");
            assert_eq!(model.notices, [notice], "{key:?}");
        }
    }
}

#[test]
fn a_question_about_a_plan_that_was_replaced_is_withdrawn() {
    let mut model = model();
    press(&mut model, "a");
    let replaced = object(stack("app", &waiting("plan-main-x")));
    model.apply(Event::Stacks(Change::One(Box::new(replaced))));
    assert_eq!(model.prompt, None);
    assert_eq!(press(&mut model, "y"), None);
    assert_eq!(
        model.notices,
        [format!("{PLAN} does not wait any more: nothing was approved.")]
    );
}

#[test]
fn without_a_plan_there_is_nothing_to_decide() {
    for keys in ["ja", "jx"] {
        let mut model = model();
        press(&mut model, keys);
        assert_eq!(model.prompt, None);
        assert_eq!(
            model.notices,
            ["terraform default/db: no plan waits for an approval"]
        );
    }
}

#[test]
fn keys_select_a_stack_and_stop_at_the_ends() {
    let mut model = model();
    for (keys, selected) in [
        ("k", "default/app"),
        ("jj", "default/net"),
        ("j", "default/net"),
        ("g", "default/app"),
        ("G", "default/net"),
    ] {
        press(&mut model, keys);
        assert_eq!(model.selected, selected, "{keys}");
    }
    model.apply(Event::Stacks(Change::Gone("default/net".to_owned())));
    assert_eq!(model.selected, "default/app");
}

#[test]
fn a_long_list_shows_the_page_of_the_selected_stack() {
    let mut model = model();
    let stacks = (0..40).map(|index| object(stack(&format!("s{index:02}"), &json!({}))));
    model.apply(Event::Stacks(Change::All(stacks.collect())));
    press(&mut model, "G");
    let shown = lines(&mut model, 80, 24);
    assert!(line_with(&shown, &["default/s39"]).starts_with("> "));
    line_with(&shown, &["Stacks: ", " of 40"]);
    assert!(
        !shown.iter().any(|line| line.contains("default/s00")),
        "{}",
        shown.join("\n")
    );
}

#[test]
fn a_filter_selects_by_name_and_by_state() {
    let mut model = model();
    press(&mut model, "/fail");
    assert_eq!(model.prompt, Some(Prompt::Filter));
    assert_eq!(model.selected, "default/db");
    let shown = lines(&mut model, 80, 24);
    assert_eq!(shown[23], "Filter: fail_");
    assert!(!shown.iter().any(|line| line.contains("> default/app")));
    model.apply(Event::Key(Key::Enter));
    assert_eq!((model.prompt.clone(), model.filter.as_str()), (None, "fail"));
    model.apply(Event::Key(Key::Escape));
    assert_eq!(model.visible_stacks().len(), 3);
}

#[test]
fn a_log_has_the_phases_and_follows_the_end() {
    let mut model = model();
    press(&mut model, "l");
    let shown = lines(&mut model, 80, 24);
    line_with(&shown, &["Run 3: Plan (Revision) of main@sha1:b8e3"]);
    line_with(&shown, &["Initializing", "12s"]);
    line_with(&shown, &["Planning", "30s"]);
    line_with(&shown, &["All of it is in /state/runs/logs"]);
    line_with(&shown, &["Succeeded after 42s"]);
    let long: Vec<_> = (0..100).map(|index| format!("line {index}")).collect();
    let long = long.join("\n");
    let status = json!({"phase": "Planning", "logTail": long, "startedAt": "2026-01-01T00:01:00Z"});
    let next = object(run("app", 4, &status));
    model.apply(Event::Runs(Change::One(Box::new(next))));
    line_with(&lines(&mut model, 80, 24), &["line 99"]);
    model.apply(Event::Key(Key::Move(Move::Home)));
    let shown = lines(&mut model, 80, 24);
    line_with(&shown, &["Run 4: "]);
    assert!(!shown.iter().any(|line| line.contains("line 99")));
}

#[test]
fn texts_of_a_module_do_not_control_the_terminal() {
    let mut model = model();
    let status =
        json!({"phase": "Planning", "logTail": "\u{1b}]0;title\u{7}\u{9b}2Jlog", "message": "\u{1b}[2J"});
    let next = object(run("app", 4, &status));
    model.apply(Event::Runs(Change::One(Box::new(next))));
    for keys in ["", "l"] {
        press(&mut model, keys);
        let text = lines(&mut model, 80, 24).concat();
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

#[test]
fn the_end_is_a_question_and_control_c_is_not() {
    let mut model = model();
    assert_eq!(press(&mut model, "q"), None);
    assert!(lines(&mut model, 80, 24)[23].ends_with("finish first. [y/N]"));
    assert_eq!(press(&mut model, "n"), None);
    assert_eq!(press(&mut model, "qy"), Some(Effect::Interrupt));
    model.apply(Event::Stopping);
    assert!(lines(&mut model, 80, 24)[0].starts_with("sluice up, ending"));
    press(&mut model, "q");
    assert!(lines(&mut model, 80, 24)[23].starts_with("Interrupt the runs"));
    assert_eq!(model.apply(Event::Key(Key::Interrupt)), Some(Effect::Interrupt));
}

#[test]
fn help_and_notices_are_shown_without_stacks() {
    let mut model = Model::new(Setup::default(), time("2026-01-01T00:00:00Z"));
    press(&mut model, "l");
    line_with(&lines(&mut model, 80, 24), &["There is no stack yet."]);
    line_with(&lines(&mut model, 80, 24), &["The log goes to standard error."]);
    press(&mut model, "?");
    assert_eq!(model.page.as_ref().map(|page| page.kind), Some(PageKind::Help));
    let shown = lines(&mut model, 60, 24);
    line_with(&shown, &["approve its plan, after a question"]);
    model.apply(Event::Key(Key::Escape));
    assert!(model.page.is_none());
    model.apply(Event::Notice("Objects can be stored again.".to_owned()));
    line_with(&lines(&mut model, 80, 24), &["Objects can be stored again."]);
}

#[test]
fn the_screen_needs_a_terminal_for_both_directions() {
    let term = |name: &'static str| Some(std::ffi::OsStr::new(name));
    assert!(is_suitable(true, true, term("xterm")));
    assert!(is_suitable(true, true, None));
    assert!(!is_suitable(true, true, term("dumb")));
    assert!(!is_suitable(false, true, term("xterm")));
    assert!(!is_suitable(true, false, term("xterm")));
}
