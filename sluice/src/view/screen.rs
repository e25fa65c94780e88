//! Where the story is shown: coloured lines above a status line on a terminal, plain lines otherwise.

use super::story::{Line, Tone};
use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
};

/// Standard output as a place for lines. Lines never mix, whoever writes them.
pub struct Screen {
    live: bool,
    status: Mutex<String>,
}

impl Screen {
    /// Live where standard output is a terminal.
    #[must_use]
    pub fn new() -> Self {
        Self {
            live: io::stdout().is_terminal(),
            status: Mutex::default(),
        }
    }

    /// Shows a line of the story.
    pub fn show(&self, line: &Line) {
        let text = printable(&line.text);
        if self.live {
            let colour = match line.tone {
                Tone::Plain => "0",
                Tone::Good => "32",
                Tone::Bad => "31",
                Tone::Ask => "1;33",
                Tone::Detail => "2",
            };
            self.write(&format!(
                "\x1b[36m{:>8}\x1b[0m  \x1b[{colour}m{text}\x1b[0m",
                line.about
            ));
        } else {
            self.write(&format!("{:>8}  {text}", line.about));
        }
    }

    /// Shows a line that is none of the story: a heading, a hint.
    pub fn say(&self, text: &str) {
        text.split('\n').for_each(|row| self.write(&printable(row)));
    }

    /// Replaces the status line; nothing without a terminal.
    pub fn status(&self, text: &str) {
        if !self.live {
            return;
        }
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if *status != text {
            text.clone_into(&mut status);
            put(&format!("\r\x1b[2K\x1b[2m{}\x1b[0m", printable(text)));
        }
    }

    fn write(&self, text: &str) {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if self.live {
            put(&format!("\r\x1b[2K{text}\n\x1b[2m{}\x1b[0m", printable(&status)));
        } else {
            put(&format!("{text}\n"));
        }
    }
}

impl Default for Screen {
    fn default() -> Self {
        Self::new()
    }
}

/// Without control characters: texts come from repositories and must not steer the terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\t').collect()
}

/// A reader that went away (a closed pipe) must not end the program.
fn put(text: &str) {
    let mut out = io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}
