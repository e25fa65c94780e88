//! A command in a pseudo-terminal, with the times of what it prints.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use sluice_tests::BoxError;
use sluice_tests::scenario::TIMEOUT;

use crate::story::{COLUMNS, QUESTION, ROWS};

/// Chunks within this time are one: a line that a program writes in pieces is not torn.
const TOGETHER: Duration = Duration::from_millis(50);

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
        let (mut terminal, program_side) = open()?;
        let streams = || program_side.try_clone().map(Stdio::from);
        let mut child = Command::new("sh")
            .args(["-c", line])
            .current_dir(&self.directory)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(streams()?)
            .stdout(streams()?)
            .stderr(streams()?)
            .spawn()?;
        drop(program_side);
        let (began, chunks) = (Instant::now(), read(terminal.try_clone()?));
        let deadline = began + TIMEOUT;
        let mut pieces = Pieces::default();
        let mut is_answered = answer.is_empty();
        while let Ok((time, bytes)) = chunks.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            pieces.add(time.saturating_duration_since(began), &bytes);
            if !is_answered && pieces.asks() {
                terminal.write_all(format!("{answer}\n").as_bytes())?;
                is_answered = true;
            }
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(format!("`{line}` does not end").into());
        }
        if !is_answered {
            return Err(format!("`{line}` does not ask").into());
        }
        Ok(Output {
            chunks: pieces.texts(),
            code: child.wait()?.code(),
        })
    }
}

/// Reads from our side of the terminal in a thread.
fn read(mut terminal: File) -> mpsc::Receiver<(Instant, Vec<u8>)> {
    let (send, chunks) = mpsc::channel();
    // The read fails with EIO when the program has closed its side.
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = terminal.read(&mut buffer) {
            if send.send((Instant::now(), buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    chunks
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
        let is_near = time.saturating_sub(self.last) < TOGETHER && !self.asks();
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

/// Opens a pseudo-terminal: our side, and that of the program.
fn open() -> Result<(File, OwnedFd), BoxError> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = openpt(flags)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    let size = Winsize {
        ws_row: u16::try_from(ROWS)?,
        ws_col: u16::try_from(COLUMNS)?,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size)?;
    let program_side = ioctl_tiocgptpeer(&terminal, flags)?;
    Ok((File::from(terminal), program_side))
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
