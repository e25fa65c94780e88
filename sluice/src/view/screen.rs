//! The screen: coloured lines above a status line on a terminal, plain lines otherwise.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

use sluice_runtime::sync::lock;

use super::progress::{Line, Tone};

/// Standard output, line by line. Lines of concurrent writers do not mix.
pub struct Screen {
    live: bool,
    status: Mutex<String>,
}

impl Screen {
    /// Creates a screen; it is live if standard output is a terminal.
    #[must_use]
    pub fn new() -> Self {
        Self {
            live: io::stdout().is_terminal(),
            status: Mutex::default(),
        }
    }

    /// Prints a progress line.
    pub fn print_line(&self, line: &Line) {
        let text = printable(&line.text);
        if self.live {
            let colour = match line.tone {
                Tone::Plain => "0",
                Tone::Success => "32",
                Tone::Failure => "31",
                Tone::Prompt => "1;33",
                Tone::Detail => "2",
            };
            self.write(&format!(
                "\x1b[36m{:>8}\x1b[0m  \x1b[{colour}m{text}\x1b[0m",
                line.subject
            ));
        } else {
            self.write(&format!("{:>8}  {text}", line.subject));
        }
    }

    /// Prints any other line: a heading, a hint.
    pub fn print(&self, text: &str) {
        text.split('\n').for_each(|line| self.write(&printable(line)));
    }

    /// Replaces the status line; does nothing without a terminal.
    pub fn status(&self, text: &str) {
        if !self.live {
            return;
        }
        let mut status = lock(&self.status);
        if *status != text {
            text.clone_into(&mut status);
            write_stdout(&format!("\r\x1b[2K\x1b[2m{}\x1b[0m", printable(text)));
        }
    }

    fn write(&self, text: &str) {
        let status = lock(&self.status);
        if self.live {
            write_stdout(&format!("\r\x1b[2K{text}\n\x1b[2m{}\x1b[0m", printable(&status)));
        } else {
            write_stdout(&format!("{text}\n"));
        }
    }
}

impl Default for Screen {
    fn default() -> Self {
        Self::new()
    }
}

/// Removes control characters: texts come from repositories and must not control the terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\t').collect()
}

/// Writes to standard output; a closed pipe must not end the program.
fn write_stdout(text: &str) {
    let mut out = io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}
