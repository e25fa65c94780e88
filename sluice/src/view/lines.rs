//! Lines on standard output: coloured, above a status line on a terminal; plain otherwise.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

use sluice_runtime::sync::lock;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::progress::{Line, Tone};

/// Standard output, line by line. Lines of concurrent writers do not mix.
pub struct Lines {
    live: bool,
    colours: bool,
    status: Mutex<String>,
    /// Where lines go while the screen is shown.
    diverted: Mutex<Option<UnboundedSender<String>>>,
}

impl Lines {
    /// Looks at standard output, at `TERM` and at `NO_COLOR`. On a terminal that can clear a line, there is a status line.
    #[must_use]
    pub fn new() -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let live = io::stdout().is_terminal() && !is_dumb;
        Self {
            live,
            colours: live && has_colours(),
            status: Mutex::default(),
            diverted: Mutex::default(),
        }
    }

    /// Prints a progress line.
    pub fn print_line(&self, line: &Line) {
        let text = printable(&line.text);
        let colour = match line.tone {
            Tone::Plain => "0",
            Tone::Success => "32",
            Tone::Failure => "31",
            Tone::Prompt => "1;33",
            Tone::Detail => "2",
        };
        let subject = self.paint("36", &format!("{:>8}", line.subject));
        self.write(&format!("{subject}  {}", self.paint(colour, &text)));
    }

    /// Prints any other line: a heading, a hint.
    pub fn print(&self, text: &str) {
        let diverted = lock(&self.diverted).clone();
        if diverted.is_some_and(|screen| screen.send(text.to_owned()).is_ok()) {
            return;
        }
        text.split('\n').for_each(|line| self.write(&printable(line)));
    }

    /// Sends the lines of [`Lines::print`] to the receiver, as long as it exists.
    pub(crate) fn divert(&self) -> UnboundedReceiver<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *lock(&self.diverted) = Some(sender);
        receiver
    }

    /// Replaces the status line; does nothing without a terminal.
    pub fn status(&self, text: &str) {
        if !self.live {
            return;
        }
        let mut status = lock(&self.status);
        if *status != text {
            text.clone_into(&mut status);
            write_stdout(&format!("\r\x1b[2K{}", self.paint("2", &printable(text))));
        }
    }

    fn write(&self, text: &str) {
        let status = lock(&self.status);
        if self.live {
            let status = self.paint("2", &printable(&status));
            write_stdout(&format!("\r\x1b[2K{text}\n{status}"));
        } else {
            write_stdout(&format!("{text}\n"));
        }
    }

    fn paint(&self, sgr: &str, text: &str) -> String {
        if self.colours {
            format!("\x1b[{sgr}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns whether colours are allowed (<https://no-color.org>).
pub(crate) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
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
