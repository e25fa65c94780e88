//! What a command waits for, on standard error: one line that is drawn again on a terminal, otherwise one line for each change.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use jiff::SignedDuration;

use crate::output::{columns, cut, duration, printable};

/// Time between two drawings on a terminal.
pub(super) const REDRAW: Duration = Duration::from_millis(120);
/// The signs in front of the line, one after the other.
const SIGNS: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// Returns to the first column and erases the line (ECMA-48, 8.3.41).
const ERASE: &str = "\r\x1b[K";

/// The line of one waiting. It disappears from a terminal when it is dropped.
#[derive(Debug)]
pub(super) struct ProgressLine {
    object: String,
    text: String,
    since: Instant,
    drawings: usize,
    /// Columns of the terminal; `None`: standard error is not a terminal.
    columns: Option<usize>,
}

impl ProgressLine {
    /// Begins to wait for an object.
    pub(super) fn new(object: &str) -> Self {
        let stderr = io::stderr();
        Self {
            object: printable(object),
            text: String::new(),
            since: Instant::now(),
            drawings: 0,
            columns: stderr.is_terminal().then(|| columns(&stderr)),
        }
    }

    /// Shows that a request waits for its answer since this time.
    pub(super) fn of_request(object: &str, since: Instant) -> Self {
        let mut line = Self::new(object);
        line.since = since;
        "waiting for the API".clone_into(&mut line.text);
        line
    }

    /// Returns what was shown last.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Shows what the object does.
    pub(super) fn show(&mut self, text: &str) {
        let line = printable(text.lines().next().unwrap_or_default());
        if line == self.text {
            return;
        }
        self.text = line;
        if self.columns.is_none() {
            let _ = writeln!(io::stderr(), "waiting for {}: {}", self.object, self.text);
        }
    }

    /// Draws the line again, if standard error is a terminal.
    pub(super) fn redraw(&mut self) {
        let Some(columns) = self.columns else { return };
        let since = SignedDuration::try_from(self.since.elapsed()).unwrap_or(SignedDuration::MAX);
        let line = format_line(self.drawings, &self.object, &self.text, since, columns);
        self.drawings += 1;
        write_raw(&format!("{ERASE}{line}"));
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.drawings != 0 {
            write_raw(ERASE);
        }
    }
}

/// Writes to standard error without a newline. It is lost if standard error is closed.
fn write_raw(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

/// Formats the line of a terminal. It leaves the last column free: a terminal may begin a new line after it.
#[must_use]
fn format_line(drawings: usize, object: &str, text: &str, since: SignedDuration, columns: usize) -> String {
    let sign = SIGNS[drawings % SIGNS.len()];
    let text = if text.is_empty() { "waiting" } else { text };
    let line = format!("{sign} {} {object}: {text}", duration(since));
    cut(&line, columns.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_waited_for_and_fits_the_terminal() {
        let line = |drawings, text, columns| {
            let since = SignedDuration::from_secs(75);
            format_line(drawings, "terraform default/app", text, since, columns)
        };
        assert_eq!(line(0, "Applying", 80), "⠋ 75s terraform default/app: Applying");
        assert_eq!(line(11, "", 80), "⠙ 75s terraform default/app: waiting");
        assert_eq!(
            line(0, "Terraform Planning", 36),
            "⠋ 75s terraform default/app: Terra…"
        );
        assert_eq!(line(0, "x", 0), "…", "a terminal without columns");
    }
}
