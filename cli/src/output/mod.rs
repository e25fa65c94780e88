//! What a command prints: data on standard output; questions, progress and errors on standard error.

mod age;
mod format;
mod table;
mod width;

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::os::fd::AsFd;

pub use age::{age, duration};
pub use format::{OutputFormat, ReportFormat, list_of, to_json, to_values, to_yaml};
pub(crate) use format::{REPORT_VERSION, report};
pub(crate) use table::cut;
pub use table::{Cell, Table};

use crate::CliError;

/// The meaning of a text, shown as a colour. The text itself says the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// No meaning.
    #[default]
    Plain,
    /// Success; a creation.
    Good,
    /// A failure; a destruction.
    Bad,
    /// The user must act; a change.
    Attention,
    /// Less important than the rest.
    Muted,
    /// A heading.
    Heading,
}

impl Tone {
    /// Returns the parameters of the SGR sequence (ECMA-48, 8.3.117).
    const fn sgr(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Attention => "33",
            Self::Muted => "2",
            Self::Heading => "1",
        }
    }
}

/// Standard output and standard error of a command.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    /// Columns of the terminal; `None` if standard output is not a terminal, so that nothing is cut.
    width: Option<usize>,
    colours: bool,
    /// Whether a question can be asked: standard input and standard error are a terminal.
    interactive: bool,
}

impl Console {
    /// Reads the properties of the terminal, and `NO_COLOR` (<https://no-color.org>).
    #[must_use]
    pub fn new(no_color: bool) -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let width = is_terminal.then(|| columns(&stdout));
        let forbidden = no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            width,
            colours: is_terminal && !forbidden,
            interactive: io::stdin().is_terminal() && io::stderr().is_terminal(),
        }
    }

    /// A console without a terminal, for tests.
    #[must_use]
    pub const fn plain() -> Self {
        Self {
            width: None,
            colours: false,
            interactive: false,
        }
    }

    /// A console of this width, for tests.
    #[cfg(test)]
    const fn of_width(width: Option<usize>) -> Self {
        Self {
            width,
            ..Self::plain()
        }
    }

    /// Returns the columns of the terminal, if there is one.
    #[must_use]
    pub const fn width(&self) -> Option<usize> {
        self.width
    }

    /// Returns whether the user can be asked.
    #[must_use]
    pub const fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// Colours a text, if colours are on. Removes control characters first: texts come from repositories.
    #[must_use]
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        let text = printable(text);
        if self.colours && tone != Tone::Plain && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", tone.sgr())
        } else {
            text
        }
    }

    /// Prints a table.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn table(&self, table: &Table) -> Result<(), CliError> {
        self.data(&table.render(self))
    }

    /// Prints text that is ready for standard output, with a newline at its end. A closed pipe is not an error: the reader has read enough.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn data(&self, text: &str) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        let newline = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        let written = write!(out, "{text}{newline}").and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::File {
                what: "cannot write to standard output".to_owned(),
                source: error,
            }),
            _ => Ok(()),
        }
    }

    /// Prints a line for the user on standard error. It is lost if standard error is closed.
    pub fn note(&self, text: &str) {
        let mut err = io::stderr().lock();
        let _ = writeln!(err, "{text}");
    }

    /// Asks a question that is answered with yes or no; anything but `y` and `yes` is no.
    ///
    /// # Errors
    /// There is no terminal, or it cannot be read.
    pub fn confirm(&self, question: &str, flag: &str) -> Result<bool, CliError> {
        if !self.interactive {
            return Err(CliError::Usage(format!(
                "there is no terminal to ask on: {question} Add {flag} to answer yes"
            )));
        }
        let mut err = io::stderr().lock();
        let _ = write!(err, "{question} [y/N] ");
        let _ = err.flush();
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        read.map_err(|source| CliError::File {
            what: "cannot read the answer".to_owned(),
            source,
        })?;
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}

/// Returns the columns of a terminal; 80 if it does not say.
pub(crate) fn columns(terminal: impl AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(terminal);
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 80 } else { columns }
}

/// Returns a number with its noun: `1 stack`, `2 stacks`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Formats one item a line.
#[must_use]
pub fn lines<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().fold(String::new(), |mut text, item| {
        let _ = writeln!(text, "{item}");
        text
    })
}

/// Removes control characters except for tabs and newlines.
#[must_use]
pub fn printable(text: &str) -> String {
    let visible = |c: &char| !c.is_control() || matches!(c, '\t' | '\n');
    text.chars().filter(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_of_foreign_texts_are_removed() {
        let console = Console {
            colours: true,
            ..Console::plain()
        };
        assert_eq!(console.paint(Tone::Good, "a\x1b[31mb\r"), "\x1b[32ma[31mb\x1b[0m");
        assert_eq!(Console::plain().paint(Tone::Bad, "a\u{9b}b"), "ab");
    }

    #[test]
    fn one_thing_has_no_plural() {
        let all = [0, 1, 2].map(|count| counted(count, "stack"));
        assert_eq!(all, ["0 stacks", "1 stack", "2 stacks"]);
    }

    #[test]
    fn without_a_terminal_a_question_names_its_flag() {
        let error = Console::plain().confirm("Apply plan-x?", "--yes").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no terminal to ask on: Apply plan-x? Add --yes to answer yes"
        );
    }
}
