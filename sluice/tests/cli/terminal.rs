//! Commands of the program in a pseudo-terminal.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use sluice_harness::terminal::Terminal;

use crate::fixture::{TIMEOUT, TestEnvironment};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// What a user sees, and the exit code.
pub(crate) struct Session {
    /// All that the program wrote to its terminal, with `\n` as the end of lines.
    pub(crate) text: String,
    /// The exit code.
    pub(crate) code: i32,
}

/// Runs the program in a terminal of this width. Types `answer` as soon as the text `prompt` is visible.
pub(crate) fn run(
    environment: &TestEnvironment,
    columns: u16,
    arguments: &[&str],
    prompt: &str,
    answer: &str,
) -> Session {
    run_command(
        command(&environment.kubeconfig(), arguments),
        columns,
        prompt,
        answer,
    )
}

/// Runs a command as [`run`] does.
pub(crate) fn run_command(command: Command, columns: u16, prompt: &str, answer: &str) -> Session {
    let deadline = Instant::now() + TIMEOUT;
    let mut terminal = Terminal::start(command, columns).unwrap();
    if !prompt.is_empty() {
        let is_asked = terminal.wait_for(prompt, deadline);
        assert!(is_asked, "no prompt {prompt:?} in: {}", terminal.text());
        terminal.press(answer).unwrap();
    }
    end(terminal, deadline)
}

/// Starts the program in a terminal of this width.
pub(crate) fn start(kubeconfig: &Path, columns: u16, arguments: &[&str]) -> Terminal {
    Terminal::start(command(kubeconfig, arguments), columns).unwrap()
}

/// Returns the command of the program for a terminal.
pub(crate) fn command(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(SLUICE);
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env_remove("NO_COLOR");
    command
}

/// Returns what a user sees on a terminal of this width after the program has written this text, without colours. The terminal has so
/// many rows that nothing scrolls out of it.
pub(crate) fn seen(text: &str, columns: u16) -> String {
    let rows = text.lines().count() + text.len() / usize::from(columns) + 1;
    let mut picture = vt100::Parser::new(u16::try_from(rows).unwrap(), columns, 0);
    picture.process(text.replace('\n', "\r\n").as_bytes());
    lines(&picture).join("\n").trim_end().to_owned()
}

/// Returns the lines on a terminal without the spaces at their ends.
pub(crate) fn lines(picture: &vt100::Parser) -> Vec<String> {
    let (_, columns) = picture.screen().size();
    let rows = picture.screen().rows(0, columns);
    rows.map(|row| row.trim_end().to_owned()).collect()
}

/// Waits for the end of the program.
pub(crate) fn end(mut terminal: Terminal, deadline: Instant) -> Session {
    let ended = terminal.end(deadline).unwrap();
    let text = terminal.text().replace("\r\n", "\n");
    let Some(status) = ended else {
        panic!("the command does not end; it printed: {text}");
    };
    Session {
        text,
        code: status.code().unwrap(),
    }
}
