//! `sluice completion`: the script of a shell; and `sluice __complete`, which the script asks what a word can be.
//!
//! The scripts know no commands and no flags. They send the words, and the program answers in the form of Cobra's `__complete`, which
//! `kubectl` expects of a plugin too. `clap_complete` would do less: its scripts know no names of objects, and its completers, an unstable
//! feature, see one word alone, without the namespace and the stack that stand before it.

mod expected;
mod line;
mod names;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::builder::StyledStr;

use crate::cluster::ConnectionArgs;
use crate::output::Console;
use crate::{CliError, ExitStatus};

use expected::Expected;
use line::Line;

/// Cobra's `ShellCompDirectiveDefault`: without candidates, the shell completes paths.
const PATHS: u8 = 0;
/// Cobra's `ShellCompDirectiveNoFileComp` (4) and `ShellCompDirectiveKeepOrder` (32).
const IN_THIS_ORDER: u8 = 4 | 32;

/// Arguments of `sluice completion`.
#[derive(clap::Args, Debug)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

/// The shells with a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    const fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("sluice.bash"),
            Self::Zsh => include_str!("sluice.zsh"),
            Self::Fish => include_str!("sluice.fish"),
        }
    }
}

/// Arguments of `sluice __complete`.
#[derive(clap::Args, Debug)]
pub struct CompleteArgs {
    /// The words after the name of the program. The last one is completed, and may be empty.
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// A word that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    value: String,
    /// What it means; may be empty.
    help: String,
}

impl Candidate {
    fn new(value: impl Into<String>, help: Option<&StyledStr>) -> Self {
        Self {
            value: value.into(),
            help: help.map(ToString::to_string).unwrap_or_default(),
        }
    }
}

/// Prints the script of a shell.
pub(super) fn completion(args: &CompletionArgs, console: Console) -> Result<ExitStatus, CliError> {
    console.data(args.shell.script())?;
    Ok(ExitStatus::Success)
}

/// Prints what the last word can be. It reports no errors: the user has not entered the command yet.
pub(super) async fn complete(
    args: &CompleteArgs,
    mut tree: clap::Command,
    console: Console,
) -> Result<ExitStatus, CliError> {
    tree.build();
    let (typed, before) = match args.words.split_last() {
        Some((typed, before)) => (typed.as_str(), before),
        None => ("", args.words.as_slice()),
    };
    let line = Line::parse(&tree, before);
    let (expected, typed) = match line.assignment(typed) {
        Some((flag, value)) => (Expected::value(&line, flag), value),
        None => (Expected::word(&line, typed), typed),
    };
    let mut candidates = match expected.names {
        Some(names) => names::look_up(names, connection(&line)).await,
        None => Vec::new(),
    };
    candidates.extend(expected.words);
    console.data(&answer(&candidates, typed, expected.is_path))?;
    Ok(ExitStatus::Success)
}

/// Returns the flags of the connection in a line.
fn connection(line: &Line<'_>) -> ConnectionArgs {
    let value = |flag: &str| line.value(flag).map(str::to_owned);
    ConnectionArgs {
        kubeconfig: value("kubeconfig").map(PathBuf::from),
        context: value("context"),
        namespace: value("namespace"),
        request_timeout: names::DEADLINE,
        no_color: true,
    }
}

/// Formats the candidates that begin with `typed`, one a line with a tab before what it means, and then the directive.
fn answer(candidates: &[Candidate], typed: &str, is_path: bool) -> String {
    let mut text = String::new();
    for Candidate { value, help } in candidates {
        // Names come from an API and from a kubeconfig: no letter of them reaches the terminal as a command.
        if value.is_empty() || !value.starts_with(typed) || value.contains(char::is_control) {
            continue;
        }
        text.push_str(value);
        let help = help.lines().next().unwrap_or_default();
        if !help.is_empty() {
            text.push('\t');
            text.extend(help.chars().filter(|letter| !letter.is_control()));
        }
        text.push('\n');
    }
    let directive = if is_path { PATHS } else { IN_THIS_ORDER };
    let _ = writeln!(text, ":{directive}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(value: &str, help: &str) -> Candidate {
        Candidate {
            value: value.to_owned(),
            help: help.to_owned(),
        }
    }

    #[test]
    fn an_answer_has_what_begins_with_the_word_and_no_control_characters() {
        let all = [
            candidate("app", "waits\x1b[31m\tfor approval\nsecond line"),
            candidate("app\x1b[2J", ""),
            candidate("api\n:0", ""),
            candidate("db", ""),
            candidate("", ""),
        ];
        assert_eq!(answer(&all, "a", false), "app\twaits[31mfor approval\n:36\n");
        assert_eq!(answer(&all, "", false), "app\twaits[31mfor approval\ndb\n:36\n");
        assert_eq!(answer(&[], "a", true), ":0\n");
    }

    #[test]
    fn each_shell_has_a_script_that_asks_the_program() {
        for (shell, registration) in [
            (Shell::Bash, "complete -F _sluice sluice"),
            (Shell::Zsh, "#compdef sluice"),
            (Shell::Fish, "complete --command sluice"),
        ] {
            let script = shell.script();
            assert!(script.contains(registration), "{shell:?}");
            assert!(script.contains("__complete -- "), "{shell:?}");
        }
    }
}
