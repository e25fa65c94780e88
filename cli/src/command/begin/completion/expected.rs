//! What the next word of a line can be. Pure.

use clap::builder::ValueHint;
use clap::{Arg, ArgAction, ValueEnum as _};

use super::Candidate;
use super::line::Line;
use super::names::Names;
use crate::command::get::ListedKind;
use crate::object::ObjectKind;

/// What the next word can be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Names that the program asks for; they come first.
    pub(super) names: Option<Names>,
    /// Words that the program knows.
    pub(super) words: Vec<Candidate>,
    /// Whether it is a path.
    pub(super) is_path: bool,
}

impl Expected {
    /// Returns what the word can be of which the user has typed this much.
    pub(super) fn word(line: &Line<'_>, typed: &str) -> Self {
        if let Some(flag) = line.open {
            return Self::value(line, flag);
        }
        if typed.starts_with('-') && !line.ends_flags {
            return Self::one_of(flags(line));
        }
        let argument = line.next_argument();
        if line.command.has_subcommands() && (argument.is_some() || !takes_positionals(line)) {
            let is_first = line.words.is_empty();
            return Self {
                // `plan` takes the name of a stack too.
                names: argument.and_then(|argument| names(line, argument.get_id().as_str())),
                ..Self::one_of(if is_first { subcommands(line) } else { Vec::new() })
            };
        }
        match argument {
            Some(argument) => Self::value(line, argument),
            None if line.ends_flags => Self::default(),
            None => Self::one_of(flags(line)),
        }
    }

    /// Returns what the value of an argument can be.
    pub(super) fn value(line: &Line<'_>, argument: &Arg) -> Self {
        let id = argument.get_id().as_str();
        if id == "object" {
            return Self::object(line);
        }
        let values = argument.get_possible_values();
        let shown = values.iter().filter(|value| !value.is_hide_set());
        Self {
            names: names(line, id),
            words: shown
                .map(|value| Candidate::new(value.get_name(), value.get_help()))
                .collect(),
            is_path: argument.get_value_hint() == ValueHint::AnyPath,
        }
    }

    fn one_of(words: Vec<Candidate>) -> Self {
        Self {
            words,
            ..Self::default()
        }
    }

    /// Returns what names an object as in `flux`: the name of a stack, or a kind and a name ([`crate::object::Words`]). With a flag
    /// that selects several objects there is only a kind.
    fn object(line: &Line<'_>) -> Self {
        let is_selection = ["all", "all_namespaces", "selector"]
            .iter()
            .any(|flag| line.has(flag));
        let (names, words): (Option<Names>, &[&str]) = match line.words.as_slice() {
            [] if is_selection => (None, &["terraforms", "sources"]),
            [] => (Some(Names::Stacks), &["terraform", "source"]),
            _ if is_selection => (None, &[]),
            ["source"] => (Some(Names::Sources), &["git"]),
            ["source", "git"] => (Some(Names::Sources), &[]),
            [kind] => {
                let names = ObjectKind::parse(kind).map(|kind| match kind {
                    ObjectKind::Stack => Names::Stacks,
                    ObjectKind::Source => Names::Sources,
                });
                (names, &[])
            }
            _ => (None, &[]),
        };
        let words = words.iter().map(|word| Candidate::new(*word, None)).collect();
        Self {
            names,
            words,
            is_path: false,
        }
    }
}

/// Returns which names an argument takes, by its id. An argument of a new command takes the name of a stack if it is called `name`.
fn names(line: &Line<'_>, id: &str) -> Option<Names> {
    match (line.path.as_slice(), id) {
        (_, "context") => Some(Names::Contexts),
        (_, "namespace") => Some(Names::Namespaces),
        (_, "run") => of_stack(line, Names::RunNumbers),
        (["outputs"], "key") => of_stack(line, Names::OutputKeys),
        (["approve" | "reject"], "id") => of_stack(line, Names::PendingPlan),
        (["unlock"], "id") => of_stack(line, Names::PendingLock),
        (["state", _], "copy") => of_stack(line, Names::StateCopies),
        (["cancel"], "name") => Some(Names::ActiveRuns),
        (["create", "terraform"], "source") => Some(Names::SourceReferences),
        (["create", "terraform"], "depends_on") => Some(Names::Stacks),
        (["get"], "name") => match ListedKind::from_str(line.words.first()?, false).ok()? {
            ListedKind::Sources => Some(Names::Sources),
            ListedKind::Terraforms => Some(Names::Stacks),
            ListedKind::Runs => Some(Names::Runs),
        },
        (["approve" | "diff" | "plan" | "reject"] | ["plan", "show"], "name") => Some(Names::StacksToApprove),
        // After `create`, it is the name of something new.
        ([first, ..], "name") if *first != "create" => Some(Names::Stacks),
        _ => None,
    }
}

/// Returns names of the stack that stands before the word.
fn of_stack(line: &Line<'_>, names: fn(String) -> Names) -> Option<Names> {
    line.words.first().map(|stack| names((*stack).to_owned()))
}

/// Returns whether the command has positional arguments.
fn takes_positionals(line: &Line<'_>) -> bool {
    line.command.get_positionals().next().is_some()
}

fn subcommands(line: &Line<'_>) -> Vec<Candidate> {
    let shown = line
        .command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    shown
        .map(|command| Candidate::new(command.get_name(), command.get_about()))
        .collect()
}

/// Returns the flags of the command. One that was there is left out, unless it may come again.
fn flags(line: &Line<'_>) -> Vec<Candidate> {
    let is_useful = |flag: &&Arg| {
        let is_repeated = matches!(flag.get_action(), ArgAction::Append | ArgAction::Count);
        !flag.is_positional() && !flag.is_hide_set() && (is_repeated || !line.has(flag.get_id().as_str()))
    };
    let mut words = Vec::new();
    for flag in line.command.get_arguments().filter(is_useful) {
        let long = flag.get_long().map(|long| format!("--{long}"));
        let short = flag.get_short().map(|short| format!("-{short}"));
        let both = long.into_iter().chain(short);
        words.extend(both.map(|word| Candidate::new(word, flag.get_help())));
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::{Command, Subcommand as _};

    use super::*;

    fn program() -> Command {
        let program = crate::Command::augment_subcommands(Command::new("sluice"));
        let program = crate::BeginCommand::augment_subcommands(program);
        let state = crate::StateCommand::augment_subcommands(Command::new("state").about("The state"));
        let mut program = program.subcommand(state);
        program.build();
        program
    }

    /// Returns what the last word of a line can be; a line with a space at its end has an empty one.
    fn expected(program: &Command, text: &str) -> Expected {
        let (before, typed) = text.rsplit_once(' ').unwrap_or(("", text));
        let before: Vec<_> = before.split_whitespace().map(str::to_owned).collect();
        let line = Line::parse(program, &before);
        match line.assignment(typed) {
            Some((flag, _)) => Expected::value(&line, flag),
            None => Expected::word(&line, typed),
        }
    }

    fn values(expected: &Expected) -> Vec<&str> {
        expected.words.iter().map(|word| word.value.as_str()).collect()
    }

    #[test]
    fn arguments_take_names() {
        let program = program();
        let numbers = || Names::RunNumbers("app".to_owned());
        for (text, names) in [
            ("approve ", Some(Names::StacksToApprove)),
            ("plan ", Some(Names::StacksToApprove)),
            ("plan show ", Some(Names::StacksToApprove)),
            ("plan app ", None),
            ("approve app ", None),
            ("logs ", Some(Names::Stacks)),
            ("logs app --run ", Some(numbers())),
            ("logs app -f --run=", Some(numbers())),
            ("logs --run ", None),
            ("outputs app ", Some(Names::OutputKeys("app".to_owned()))),
            ("approve app --id ", Some(Names::PendingPlan("app".to_owned()))),
            ("reject --id ", None),
            ("unlock app --id ", Some(Names::PendingLock("app".to_owned()))),
            (
                "unlock app --lock-id=",
                Some(Names::PendingLock("app".to_owned())),
            ),
            ("unlock --id ", None),
            ("unlock ", Some(Names::Stacks)),
            ("state list ", Some(Names::Stacks)),
            (
                "state show app --copy ",
                Some(Names::StateCopies("app".to_owned())),
            ),
            (
                "state restore app --copy=",
                Some(Names::StateCopies("app".to_owned())),
            ),
            ("cancel ", Some(Names::ActiveRuns)),
            ("create terraform app --source ", Some(Names::SourceReferences)),
            ("create terraform app --depends-on=", Some(Names::Stacks)),
            ("get sources ", Some(Names::Sources)),
            ("get tf -o json ", Some(Names::Stacks)),
            ("get runs ", Some(Names::Runs)),
            ("get nonsense ", None),
            ("status --namespace ", Some(Names::Namespaces)),
            ("status -n ", Some(Names::Namespaces)),
            ("status --context=", Some(Names::Contexts)),
            ("reconcile source ", Some(Names::Sources)),
            ("reconcile source git ", Some(Names::Sources)),
            ("reconcile terraform ", Some(Names::Stacks)),
            ("reconcile nonsense ", None),
            ("suspend --all ", None),
            ("create source git ", None),
            ("create terraform ", None),
            ("approve -- ", Some(Names::StacksToApprove)),
        ] {
            assert_eq!(expected(&program, text).names, names, "{text}");
        }
    }

    #[test]
    fn arguments_take_words() {
        let program = program();
        for (text, words) in [
            ("get ", "sources terraforms runs"),
            ("get tf -o ", "table wide json yaml name"),
            ("completion ", "bash zsh fish"),
            ("delete ", "terraform source"),
            ("delete source ", "git"),
            ("suspend -A ", "terraforms sources"),
            ("suspend -A sources ", ""),
            ("plan ", "show help"),
            ("create nonsense ", ""),
        ] {
            assert_eq!(values(&expected(&program, text)).join(" "), words, "{text}");
        }
        let commands = expected(&program, "");
        let values = values(&commands);
        assert!(
            values.contains(&"approve") && values.contains(&"completion"),
            "{values:?}"
        );
        assert!(!values.contains(&"__complete"), "{values:?}");
        assert!(
            commands.words.iter().all(|word| !word.help.is_empty()),
            "{commands:?}"
        );
    }

    #[test]
    fn flags_are_those_of_the_command() {
        let program = program();
        let flags = expected(&program, "approve app --all --");
        let values = values(&flags);
        for (flag, is_there) in [
            ("--yes", true),
            ("-y", true),
            ("--help", true),
            ("--namespace", true),
            ("--all", false),
            ("--watch", false),
        ] {
            assert_eq!(values.contains(&flag), is_there, "{flag}: {values:?}");
        }
        // A command without arguments.
        let status = expected(&program, "status ");
        assert!(
            status.words.iter().any(|word| word.value == "--selector"),
            "{status:?}"
        );
        let repeated = expected(&program, "create terraform --var a=b --");
        assert!(
            repeated.words.iter().any(|word| word.value == "--var"),
            "{repeated:?}"
        );
        assert_eq!(
            expected(&program, "approve -- -"),
            expected(&program, "approve -- ")
        );
    }

    #[test]
    fn files_are_completed_by_the_shell() {
        let program = program();
        for (text, is_path) in [
            ("status --kubeconfig ", true),
            ("status --kubeconfig=", true),
            ("approve --file ", true),
            ("init ", true),
            ("approve ", false),
            ("approve --comment ", false),
        ] {
            assert_eq!(expected(&program, text).is_path, is_path, "{text}");
        }
    }

    /// An argument of a new command has to be listed here, or to have names.
    #[test]
    fn every_argument_without_a_flag_is_completed() {
        fn walk(command: &Command, path: &str, without: &mut Vec<String>) {
            for subcommand in command
                .get_subcommands()
                .filter(|command| command.get_name() != "help")
            {
                walk(subcommand, &format!("{path}{} ", subcommand.get_name()), without);
            }
            let words: Vec<_> = path.split_whitespace().map(str::to_owned).collect();
            let program = program();
            let line = Line::parse(&program, &words);
            for argument in command.get_positionals() {
                let expected = Expected::value(&line, argument);
                if expected == Expected::default() {
                    without.push(format!("{path}{}", argument.get_id().as_str()));
                }
            }
        }
        let mut without = Vec::new();
        walk(&program(), "", &mut without);
        assert_eq!(
            without,
            [
                "get name",
                "outputs key",
                "create source git name",
                "create terraform name",
                "__complete words"
            ]
        );
    }
}
