//! What a user sees of every command: in a terminal with 80 columns, in one with 160, and in pipes. Each case has one file in `snapshots/`.
//!
//! `INSTA_UPDATE=always cargo test -p sluice --test cli snapshots::` writes the files again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use sluice_harness::closed_port::ClosedPort;

use crate::fixture::{self, TIMEOUT, TestEnvironment};
use crate::proxy::{Proxy, write_kubeconfig};
use crate::snapshot_cases::{Case, cases};
use crate::snapshot_objects::{AGE, make_old};
use crate::terminal;

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");
/// The directory of the files, and how their names begin.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/snapshots");
const PREFIX: &str = "cli__snapshots__";
/// The end of each question.
const QUESTION: &str = "[y/N] ";
/// Commands without a snapshot, and why.
const WITHOUT_SNAPSHOT: [(&str, &str); 4] = [
    ("up", "it has a screen, which screen.rs tests"),
    ("source-controller", "a program of a cluster: it writes a log"),
    ("tf-controller", "a program of a cluster: it writes a log"),
    ("repo-controller", "a program of a cluster: it writes a log"),
];

/// Where a command writes to.
#[derive(Clone, Copy)]
enum Destination {
    /// A terminal with this number of columns.
    Terminal(u16),
    /// Two pipes, with nothing to read.
    Pipes,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_looks_as_in_its_snapshot() {
    // It refuses connections as long as it is reserved.
    let closed = ClosedPort::reserve().unwrap();
    let server = format!("http://{}", closed.address().unwrap());
    let cases = cases();
    let (narrow, wide, piped) = tokio::join!(
        Box::pin(texts(&cases, Destination::Terminal(80), &server)),
        Box::pin(texts(&cases, Destination::Terminal(160), &server)),
        Box::pin(texts(&cases, Destination::Pipes, &server)),
    );
    let mut different = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let text = format!(
            "== 80 columns\n\n{}== 160 columns\n\n{}== Pipes\n\n{}",
            narrow[index], wide[index], piped[index]
        );
        let name = case.name.as_str();
        // All differences are reported, not only the first one.
        if std::panic::catch_unwind(|| insta::assert_snapshot!(name, text)).is_err() {
            different.push(name);
        }
    }
    assert!(different.is_empty(), "these snapshots differ: {different:?}");
}

/// Runs all cases, one after the other, on an API of their own: commands with another destination do not change its objects.
async fn texts(cases: &[Case], destination: Destination, closed: &str) -> Vec<String> {
    let environment = TestEnvironment::with_all_states().await;
    let proxy = Proxy::open_with(&environment, Some(make_old)).await;
    write_kubeconfig(environment.directory(), "closed", closed);
    write_repository(&environment.directory().join("repository"));
    let mut texts = Vec::new();
    for case in cases {
        let mut text = String::new();
        for line in &case.commands {
            let arguments: Vec<&str> = line.split(' ').collect();
            let directory = environment.directory();
            let (code, shown) = match destination {
                Destination::Terminal(columns) => {
                    let mut command = terminal::command(proxy.kubeconfig(), &arguments);
                    command.current_dir(directory);
                    in_terminal(command, columns, case).await
                }
                Destination::Pipes => {
                    let mut command = fixture::command(proxy.kubeconfig(), &arguments);
                    command.current_dir(directory);
                    in_pipes(command, case).await
                }
            };
            let _ = write!(text, "$ sluice {line}\n{shown}(exit code {code})\n\n");
        }
        texts.push(text);
    }
    texts
}

/// Returns the exit code, and what is on the terminal at the end.
async fn in_terminal(command: Command, columns: u16, case: &Case) -> (i32, String) {
    let (answer, lines) = (case.answer, case.lines);
    let question = if answer.is_empty() { "" } else { QUESTION };
    let running =
        tokio::task::spawn_blocking(move || terminal::run_command(command, columns, question, answer));
    let session = running.await.unwrap();
    // The terminal breaks long lines, so their texts are replaced before.
    let text = without_variations(&head(&session.text, lines));
    let seen = terminal::seen(&text, columns);
    let end = if seen.is_empty() { "" } else { "\n" };
    (session.code, format!("{seen}{end}"))
}

/// Returns the exit code, and what is in the two pipes.
async fn in_pipes(mut command: tokio::process::Command, case: &Case) -> (i32, String) {
    let output = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output = output.expect("the command ends").unwrap();
    let mut text = String::new();
    for (name, bytes) in [("output", output.stdout), ("error", output.stderr)] {
        if !bytes.is_empty() {
            let shown = without_variations(&head(&String::from_utf8(bytes).unwrap(), case.lines));
            let _ = write!(text, "-- standard {name}\n{shown}");
        }
    }
    (output.status.code().unwrap(), text)
}

/// Writes root modules for `sluice adopt`.
fn write_repository(root: &Path) {
    let calling =
        "terraform {\n  backend \"s3\" {}\n}\nmodule \"net\" {\n  source = \"../../modules/net\"\n}\n";
    for (name, text) in [
        ("live/app/main.tf", calling),
        ("modules/net/main.tf", "provider \"aws\" {}\n"),
    ] {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Returns the first lines of a text.
fn head(text: &str, lines: usize) -> String {
    if text.lines().count() <= lines {
        return text.to_owned();
    }
    let first: Vec<&str> = text.lines().take(lines).collect();
    format!("{}\n[...]\n", first.join("\n"))
}

/// The name of a run: its stack, the first digits of the uid of the stack, which a table may cut, and a number.
static RUN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("(app|held|net|site|web)-([0-9a-f]{1,10})(-|…)").unwrap());

/// What differs between two executions, and the text that is shown for it, which is as wide.
static VARIATIONS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let version = regex::escape(env!("CARGO_PKG_VERSION"));
    let patterns = [
        (
            "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            "00000000-0000-0000-0000-000000000000",
        ),
        (r#"(resourceVersion"?: ["'])[0-9]+"#, "${1}1"),
        (
            r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?Z",
            "2000-01-01T00:00:00Z",
        ),
        // Ages grow by a year. A colour can be in front of them.
        (r"[1-9][0-9]y\b", AGE),
        (r"127\.0\.0\.1:[0-9]+", "127.0.0.1:40000"),
        ("differs by -?[0-9]+ s", "differs by 0 s"),
        // Of several lists at the same time, any can be the first to fail.
        (
            "cannot list [a-z]+: Connection",
            "cannot list objects: Connection",
        ),
        (version.as_str(), "0.1.0"),
    ];
    patterns
        .map(|(pattern, text)| (Regex::new(pattern).unwrap(), text))
        .into()
});

/// Replaces what differs between two executions.
fn without_variations(text: &str) -> String {
    let zeros = |run: &Captures<'_>| format!("{}-{}{}", &run[1], "0".repeat(run[2].len()), &run[3]);
    let text = RUN.replace_all(text, zeros).into_owned();
    VARIATIONS.iter().fold(text, |text, (pattern, shown)| {
        pattern.replace_all(&text, *shown).into_owned()
    })
}

#[test]
fn a_snapshot_does_not_depend_on_the_day() {
    let line =
        |age: &str, time: &str| format!("app-0123456789-3   \x1b[2m{age}\x1b[0m   ({age} ago) {time}\n");
    let expected = "app-0000000000-3   \x1b[2m26y\x1b[0m   (26y ago) 2000-01-01T00:00:00Z\n";
    for (age, time) in [
        ("26y", "2026-11-27T18:00:00Z"),
        ("27y", "2027-01-01T00:00:00.123456Z"),
        ("73y", "2073-06-01T12:34:56Z"),
    ] {
        assert_eq!(without_variations(&line(age, time)), expected);
    }
}

#[test]
fn every_command_of_the_program_has_a_snapshot() {
    let mut commands = Vec::new();
    collect_commands("", &mut commands);
    assert!(
        commands.iter().any(|command| command == "create source git"),
        "the help was not understood: {commands:?}"
    );
    let all = commands_in_help("");
    for (command, reason) in WITHOUT_SNAPSHOT {
        assert!(
            all.iter().any(|name| name == command),
            "{command}: {reason}: there is no such command"
        );
    }
    let cases = cases();
    let lines = cases.iter().flat_map(|case| &case.commands);
    for command in commands {
        let arguments = format!("{command} ");
        let has_snapshot = lines
            .clone()
            .any(|line| format!("{line} ").starts_with(&arguments));
        assert!(
            has_snapshot,
            "add `sluice {command}` to the cases of snapshot_cases.rs"
        );
    }
}

/// Collects the commands below a command that have no commands below them.
fn collect_commands(path: &str, found: &mut Vec<String>) {
    let below = commands_in_help(path);
    if below.is_empty() {
        found.push(path.to_owned());
    }
    for name in below {
        let path = format!("{path} {name}").trim_start().to_owned();
        let is_without = WITHOUT_SNAPSHOT.iter().any(|(command, _)| *command == path);
        if !is_without {
            collect_commands(&path, found);
        }
    }
}

/// Returns the names of the commands in the help of a command: they are before its arguments and options.
fn commands_in_help(path: &str) -> Vec<String> {
    let mut command = Command::new(SLUICE);
    command.args(path.split_whitespace()).arg("--help");
    let output = command.output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{path}: {help}");
    let lines = help
        .lines()
        .take_while(|line| !matches!(*line, "Arguments:" | "Options:"));
    let commands = lines.filter_map(|line| line.strip_prefix("  "));
    let names = commands.filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_snapshot_has_a_case_of_its_own() {
    let cases = cases();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "no two cases have one name");
    for entry in std::fs::read_dir(DIRECTORY).into_iter().flatten() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = file
            .strip_prefix(PREFIX)
            .and_then(|name| name.strip_suffix(".snap"));
        assert!(
            name.is_none_or(|name| names.contains(name)),
            "no case writes {file}: remove it"
        );
    }
}
