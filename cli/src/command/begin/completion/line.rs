//! What the words of a command line mean, by the commands of the program. Pure.
//!
//! It is lenient where the parser of the program is not: the user has not written the line to its end.

use clap::{Arg, Command};

/// The words before the one that is completed.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    /// The command: `state`, `list`.
    pub(super) path: Vec<&'a str>,
    /// Its arguments.
    pub(super) command: &'a Command,
    /// The positional arguments.
    pub(super) words: Vec<&'a str>,
    /// The flag whose value comes next.
    pub(super) open: Option<&'a Arg>,
    /// Whether there was a `--`: no flags come after it.
    pub(super) ends_flags: bool,
    /// The ids of the flags with their values.
    flags: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    /// Reads the words after the name of the program.
    pub(super) fn parse(program: &'a Command, words: &'a [String]) -> Self {
        let mut line = Self {
            path: Vec::new(),
            command: program,
            words: Vec::new(),
            open: None,
            ends_flags: false,
            flags: Vec::new(),
        };
        for word in words {
            line.push(word);
        }
        line
    }

    /// Returns whether a flag was there.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.value(flag).is_some()
    }

    /// Returns the last value of a flag; it is empty for a flag without values.
    pub(super) fn value(&self, flag: &str) -> Option<&'a str> {
        let values = self.flags.iter().rev();
        values
            .copied()
            .find_map(|(id, value)| (id == flag).then_some(value))
    }

    /// Splits `--flag=value`; `None` if the word is none, or there is no such flag.
    pub(super) fn assignment<'w>(&self, word: &'w str) -> Option<(&'a Arg, &'w str)> {
        if self.open.is_some() || self.ends_flags {
            return None;
        }
        let (name, value) = word.strip_prefix("--")?.split_once('=')?;
        Some((long_flag(self.command, name)?, value))
    }

    /// Returns the argument that the next word without a dash belongs to, if the command takes one more.
    pub(super) fn next_argument(&self) -> Option<&'a Arg> {
        let command = self.command;
        let mut index = self.words.len();
        command.get_positionals().find(|argument| {
            let most = argument.get_num_args().map_or(1, |range| range.max_values());
            let is_next = index < most;
            index = index.saturating_sub(most);
            is_next
        })
    }

    fn push(&mut self, word: &'a str) {
        if let Some(flag) = self.open.take() {
            self.flags.push((flag.get_id().as_str(), word));
        } else if self.ends_flags {
            self.words.push(word);
        } else if word == "--" {
            self.ends_flags = true;
        } else if let Some(long) = word.strip_prefix("--") {
            self.push_long(long);
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            self.push_letters(letters);
        } else {
            self.push_word(word);
        }
    }

    fn push_long(&mut self, text: &'a str) {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let Some(flag) = long_flag(self.command, name) else {
            return;
        };
        // The value of a flag like `--wait=false` is never the next word.
        if value.is_none() && flag.get_action().takes_values() && !flag.is_require_equals_set() {
            self.open = Some(flag);
        } else {
            self.flags
                .push((flag.get_id().as_str(), value.unwrap_or_default()));
        }
    }

    /// Reads the letters of `-wo json`, `-ojson` or `-o=json`.
    fn push_letters(&mut self, letters: &'a str) {
        for (start, letter) in letters.char_indices() {
            let Some(flag) = short_flag(self.command, letter) else {
                return;
            };
            let rest = &letters[start + letter.len_utf8()..];
            if !flag.get_action().takes_values() {
                self.flags.push((flag.get_id().as_str(), ""));
                continue;
            }
            if rest.is_empty() {
                self.open = Some(flag);
            } else {
                let value = rest.strip_prefix('=').unwrap_or(rest);
                self.flags.push((flag.get_id().as_str(), value));
            }
            return;
        }
    }

    fn push_word(&mut self, word: &'a str) {
        let command = self.command;
        match command.find_subcommand(word).filter(|_| self.words.is_empty()) {
            Some(subcommand) => {
                self.path.push(subcommand.get_name());
                self.command = subcommand;
            }
            None => self.words.push(word),
        }
    }
}

fn long_flag<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        argument.get_long() == Some(name) || aliases.contains(&name)
    })
}

fn short_flag(command: &Command, letter: char) -> Option<&Arg> {
    command.get_arguments().find(|argument| {
        let aliases = argument.get_all_short_aliases().unwrap_or_default();
        argument.get_short() == Some(letter) || aliases.contains(&letter)
    })
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;

    #[test]
    fn words_are_the_command_its_flags_and_their_values() {
        let mut program = crate::Command::augment_subcommands(Command::new("sluice"));
        program.build();
        for (text, path, words, flags) in [
            ("", "", "", ""),
            ("get terraforms app", "get", "terraforms app", ""),
            ("plan show app", "plan show", "app", ""),
            ("force-unlock app", "unlock", "app", ""),
            ("get --context=a=b tf", "get", "tf", "context=a=b"),
            ("get -wn team tf", "get", "tf", "watch= namespace=team"),
            ("get -nteam -o=json", "get", "", "namespace=team output=json"),
            ("delete --silent app", "delete", "app", "yes="),
            ("approve -n -- app", "approve", "app", "namespace=--"),
            ("approve -- -n app", "approve", "-n app", ""),
            ("get --unknown tf", "get", "tf", ""),
            ("unknown get", "", "unknown get", ""),
        ] {
            let all: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            let line = Line::parse(&program, &all);
            let found: Vec<_> = line
                .flags
                .iter()
                .map(|(id, value)| format!("{id}={value}"))
                .collect();
            assert_eq!(
                (line.path.join(" "), line.words.join(" "), found.join(" ")),
                (path.to_owned(), words.to_owned(), flags.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn the_next_word_belongs_to_a_flag_or_to_the_next_argument() {
        let mut program = crate::Command::augment_subcommands(Command::new("sluice"));
        program.build();
        for (text, flag, argument) in [
            ("get", None, Some("kind")),
            ("get tf", None, Some("name")),
            ("get tf app", None, None),
            ("get tf -o", Some("output"), Some("name")),
            ("get tf -w", None, Some("name")),
            ("suspend source git", None, Some("object")),
            ("suspend source git repo", None, None),
        ] {
            let all: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            let line = Line::parse(&program, &all);
            let id = |argument: &Arg| argument.get_id().as_str().to_owned();
            assert_eq!(line.open.map(id).as_deref(), flag, "{text}");
            assert_eq!(line.next_argument().map(id).as_deref(), argument, "{text}");
        }
    }
}
