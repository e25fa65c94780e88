//! The help of the program: its commands in groups, and examples at the end of the help of each command.

mod examples;

use std::fmt::Write as _;

use clap::Command;
use examples::EXAMPLES;

/// The commands of the program by what a user wants to do, and the order in which the help lists them.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Begin",
        &[
            "up",
            "init",
            "create",
            "adopt",
            "migrate",
            "check",
            "install",
            "uninstall",
            "completion",
            "version",
        ],
    ),
    (
        "Look",
        &[
            "status", "get", "tree", "describe", "history", "logs", "events", "outputs", "diff", "export",
        ],
    ),
    ("Decide", &["plan", "approve", "reject", "replan", "apply"]),
    (
        "Act",
        &[
            "reconcile",
            "retry",
            "suspend",
            "resume",
            "cancel",
            "unlock",
            "debug",
            "delete",
            "state",
            "record",
        ],
    ),
    (
        "Programs of a cluster",
        &["source-controller", "tf-controller", "repo-controller"],
    ),
];

/// The heading of commands that [`GROUPS`] does not name.
const OTHERS: &str = "Others";

/// The end of the help: what all commands have in common.
const COMMON: &str = "`sluice COMMAND --help` lists the flags of a command, with examples.

A stack is one Terraform object: a module in a source, with its state. A run is one plan or apply of it.
The commands use the kubeconfig of kubectl, or that of `sluice up --state DIR`: export KUBECONFIG=DIR/api/kubeconfig
Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 a plan waits for an approval, 4 not ready in time.";

/// Returns the program with its commands in groups, and with examples.
pub(crate) fn with_groups_and_examples(command: Command) -> Command {
    let groups = groups(&command);
    let header = *command.get_styles().get_header();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    with_examples(command, "")
        .help_template(template)
        .after_help(COMMON)
}

/// Returns the groups, each with a heading and a line for each command.
fn groups(command: &Command) -> String {
    let visible = || command.get_subcommands().filter(|command| !command.is_hide_set());
    let width = visible()
        .map(|command| command.get_name().len())
        .max()
        .unwrap_or(0);
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let found = names
            .iter()
            .filter_map(|name| visible().find(|command| command.get_name() == *name));
        push_group(&mut text, heading, found, width);
    }
    push_group(
        &mut text,
        OTHERS,
        visible().filter(|command| !is_grouped(command.get_name())),
        width,
    );
    text
}

fn push_group<'a>(
    text: &mut String,
    heading: &str,
    commands: impl Iterator<Item = &'a Command>,
    width: usize,
) {
    let mut commands = commands.peekable();
    let Some(first) = commands.peek() else { return };
    let (header, literal) = (
        *first.get_styles().get_header(),
        *first.get_styles().get_literal(),
    );
    let _ = writeln!(text, "{header}{heading}:{header:#}");
    for command in commands {
        let (name, about) = (
            command.get_name(),
            command.get_about().map(ToString::to_string).unwrap_or_default(),
        );
        let space = " ".repeat(width - name.len());
        let aliases: Vec<_> = command.get_visible_aliases().collect();
        let aliases = if aliases.is_empty() {
            String::new()
        } else {
            format!(" [aliases: {}]", aliases.join(", "))
        };
        let _ = writeln!(text, "  {literal}{name}{literal:#}{space}  {about}{aliases}");
    }
    text.push('\n');
}

/// Adds the examples of this command and of those below it. `path` is the name of the command without that of the program.
fn with_examples(command: Command, path: &str) -> Command {
    let command = command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        with_examples(below, path.trim_start())
    });
    let Some((_, lines)) = EXAMPLES.iter().find(|(of, _)| *of == path) else {
        return command;
    };
    let header = *command.get_styles().get_header();
    let mut text = format!("{header}Examples:{header:#}");
    for line in *lines {
        let _ = write!(text, "\n  {line}");
    }
    command.after_help(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    /// The paths of all visible commands that a user can type to their end: `plan` is one, although it has a command below it. The controllers parse their flags themselves.
    fn leaves(command: &Command, path: &str, found: &mut BTreeSet<String>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let path = format!("{path} {}", below.get_name()).trim_start().to_owned();
            if below.has_subcommands() {
                leaves(below, &path, found);
                if below.get_positionals().next().is_some() {
                    found.insert(path);
                }
            } else if !path.ends_with("-controller") {
                found.insert(path);
            }
        }
    }

    /// Collects the texts of all commands. `clap` takes the comment of a flattened group of flags if the command has none of its own.
    fn texts(command: &Command, found: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            found.push(below.get_about().map(ToString::to_string).unwrap_or_default());
            texts(below, found);
        }
    }

    #[test]
    fn every_command_has_a_text_of_its_own() {
        let mut found = Vec::new();
        texts(&Cli::command(), &mut found);
        let different: BTreeSet<_> = found.iter().collect();
        assert_eq!(different.len(), found.len(), "{found:?}");
        let flags = found.iter().find(|text| text.starts_with("Which API"));
        assert_eq!(flags, None, "{found:?}");
    }

    #[test]
    fn every_command_has_a_group() {
        let command = Cli::command();
        let names: Vec<_> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .collect();
        let mut grouped: Vec<_> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        let count = grouped.len();
        grouped.sort_unstable();
        grouped.dedup();
        assert_eq!(grouped.len(), count, "no command has two groups");
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(grouped, sorted, "add new commands to GROUPS");
        let help = with_groups_and_examples(Cli::command()).render_help().to_string();
        for name in names {
            let line = help.lines().find(|line| line.trim_start().starts_with(name));
            assert!(
                line.is_some_and(|line| line.len() > name.len() + 10),
                "{name}: {help}"
            );
        }
        for part in [
            "Usage: sluice <COMMAND>",
            "Look:",
            "Decide:",
            "Options:",
            "--version",
            "sluice COMMAND --help",
            "3 a plan waits for an approval",
        ] {
            assert!(help.contains(part), "{part}: {help}");
        }
        assert!(!help.contains(&format!("{OTHERS}:")), "{help}");
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let mut expected = BTreeSet::new();
        leaves(&Cli::command(), "", &mut expected);
        let paths: BTreeSet<_> = EXAMPLES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(paths, expected, "add the examples of new commands");
        for (path, lines) in EXAMPLES {
            assert!(lines.len() >= 2, "{path}");
            for line in lines {
                // What follows is for the shell.
                let line = line.split([';', '>', '|', ')']).next().unwrap_or_default();
                let line = line.rsplit("<(").next().unwrap_or_default();
                let words: Vec<_> = line.split_whitespace().collect();
                assert!(words.join(" ").starts_with(&format!("sluice {path}")), "{line}");
                let parsed = Cli::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn examples_are_at_the_end_of_the_help() {
        let program = with_groups_and_examples(Cli::command());
        let mut plan = program
            .find_subcommand("plan")
            .unwrap()
            .find_subcommand("show")
            .unwrap()
            .clone();
        let help = plan.render_help().to_string();
        assert!(
            help.trim_end().ends_with(
                "Examples:\n  sluice plan show app --full --wait\n  sluice plan show app --web plan.html"
            ),
            "{help}"
        );
    }
}
