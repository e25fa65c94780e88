//! A command in a pseudo-terminal, with the times of what it prints.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use sluice_harness::terminal::Terminal;
use sluice_tests::BoxError;
use sluice_tests::scenario::TIMEOUT;

use crate::scenario::{COLUMNS, QUESTION, ROWS};

/// Chunks within this time are one: a line that a program writes in pieces is not torn.
const MAX_CHUNK_GAP: Duration = Duration::from_millis(50);

/// What a command printed, and its exit code.
pub(crate) struct Output {
    /// The texts with their times since the start of the command.
    pub(crate) chunks: Vec<(Duration, String)>,
    /// The exit code; `None`: a signal ended it.
    pub(crate) code: Option<i32>,
}

impl Output {
    /// Returns all that was printed.
    pub(crate) fn text(&self) -> String {
        self.chunks.iter().map(|(_, text)| text.as_str()).collect()
    }
}

/// Runs commands in one directory, with no variables but its own.
#[derive(Clone)]
pub(crate) struct Shell {
    /// The directory.
    pub(crate) directory: PathBuf,
    /// Names and values of the environment.
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Shell {
    /// Runs a command line. Types `answer` at the first [`QUESTION`]; an empty one is not typed.
    ///
    /// # Errors
    /// When it cannot be started, does not end in time, or does not ask.
    pub(crate) fn run(&self, line: &str, answer: &str) -> Result<Output, BoxError> {
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(&self.directory)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        let began = Instant::now();
        let deadline = began + TIMEOUT;
        let mut terminal = Terminal::start_with(command, COLUMNS, ROWS)?;
        let mut pieces = Pieces::default();
        let mut is_answered = answer.is_empty();
        while let Some(bytes) = terminal.read(deadline) {
            pieces.add(began.elapsed(), &bytes);
            if !is_answered && pieces.asks() {
                terminal.press(&format!("{answer}\n"))?;
                is_answered = true;
            }
        }
        let ended = terminal.end(deadline)?;
        let status = ended.ok_or_else(|| format!("`{line}` does not end"))?;
        if !is_answered {
            return Err(format!("`{line}` does not ask").into());
        }
        Ok(Output {
            chunks: pieces.texts(),
            code: status.code(),
        })
    }
}

/// What was read so far, with the time of its last byte.
#[derive(Default)]
struct Pieces {
    chunks: Vec<(Duration, Vec<u8>)>,
    last: Duration,
}

impl Pieces {
    fn add(&mut self, time: Duration, bytes: &[u8]) {
        // What follows a question is an answer, however fast it is.
        let is_near = time.saturating_sub(self.last) < MAX_CHUNK_GAP && !self.asks();
        self.last = time;
        match self.chunks.last_mut() {
            Some((_, chunk)) if is_near => chunk.extend_from_slice(bytes),
            _ => self.chunks.push((time, bytes.to_vec())),
        }
    }

    /// Whether a question was printed last.
    fn asks(&self) -> bool {
        self.chunks
            .last()
            .is_some_and(|(_, chunk)| chunk.ends_with(QUESTION.as_bytes()))
    }

    fn texts(self) -> Vec<(Duration, String)> {
        let text = |(time, chunk): (Duration, Vec<u8>)| (time, String::from_utf8_lossy(&chunk).into_owned());
        self.chunks.into_iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_a_terminal_is_answered_and_returns_its_code() {
        let path = std::env::var("PATH").unwrap();
        let shell = Shell {
            directory: std::env::temp_dir(),
            variables: vec![("PATH", path), ("WORD", "it".to_owned())],
        };
        let ask = format!("test -t 1 && printf 'Do it? {QUESTION}'; read word; echo $word; exit 3");
        let output = shell.run(&ask, "yes").unwrap();
        assert_eq!(output.code, Some(3));
        assert_eq!(output.text(), format!("Do it? {QUESTION}yes\r\nyes\r\n"));
        assert!(output.chunks.len() > 1, "the question is a chunk of its own");
        assert!(shell.run("echo $WORD", "").unwrap().text().starts_with("it"));
        assert!(shell.run("true", "yes").is_err(), "no question");
    }
}
