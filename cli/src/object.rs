//! Which objects the words of a command name: `app`, `terraform app`, `source repo`, `source git repo` as in `flux`. Pure.

use crate::CliError;
use crate::cluster::SelectionArgs;

/// The kinds that a user changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectKind {
    /// A Terraform object: a stack.
    #[default]
    Stack,
    /// A GitRepository object.
    Source,
}

impl ObjectKind {
    /// Parses a word of the command line; the words of `sluice get`, `kubectl` and `flux`.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "terraform" | "terraforms" | "tf" | "stack" | "stacks" => Some(Self::Stack),
            "source" | "sources" | "gitrepository" | "gitrepositories" | "gitrepo" => Some(Self::Source),
            _ => None,
        }
    }
}

/// Which objects a command is about.
#[derive(clap::Args, Debug)]
pub struct ObjectsArgs {
    /// The object: a stack, or `source NAME`. With --all, -A or -l only the kind: `terraforms` (the default) or `sources`.
    #[arg(value_name = "NAME", num_args = 0..=3)]
    pub object: Vec<String>,
    /// All objects of the kind in the namespace.
    #[arg(long)]
    pub all: bool,
    /// The objects.
    #[command(flatten)]
    pub selection: SelectionArgs,
}

impl ObjectsArgs {
    /// Parses the words.
    ///
    /// # Errors
    /// As [`Words::parse`].
    pub(crate) fn words(&self) -> Result<Words, CliError> {
        let is_selection = self.all || self.selection.all_namespaces || self.selection.selector.is_some();
        Words::parse(&self.object, is_selection)
    }
}

/// The words of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// The kind; without a word for it, a stack.
    pub kind: ObjectKind,
    /// The name; `None`: there is none.
    pub name: Option<String>,
}

impl Words {
    /// Parses the words. One word is a name, unless `is_selection`: then flags select the objects, and a word is their kind.
    ///
    /// # Errors
    /// A kind that does not exist, a missing name, or a name beside a selection.
    pub fn parse(words: &[String], is_selection: bool) -> Result<Self, CliError> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let kind_of = |word: &str| {
            ObjectKind::parse(word).ok_or_else(|| {
                CliError::Usage(format!(
                    "{word} is not a kind: write terraform NAME or source NAME"
                ))
            })
        };
        let (kind, name) = match words.as_slice() {
            [] => (ObjectKind::Stack, None),
            [kind] if is_selection => (kind_of(kind)?, None),
            ["source", "git"] => (ObjectKind::Source, None),
            ["source", "git", name] => (ObjectKind::Source, Some(*name)),
            [word] => match word.split_once('/') {
                Some((kind, name)) => (kind_of(kind)?, Some(name)),
                None if ObjectKind::parse(word).is_some() => {
                    return Err(CliError::Usage(format!(
                        "{word} is a kind, and the name is missing: write {word} NAME, or terraform/{word} for the stack of this name"
                    )));
                }
                None => (ObjectKind::Stack, Some(*word)),
            },
            [kind, name] => (kind_of(kind)?, Some(*name)),
            _ => return Err(CliError::Usage(format!("too many names: {}", words.join(" ")))),
        };
        match name {
            Some(name) if is_selection => Err(CliError::Usage(format!(
                "{name} is one object, and the flags select several: use one of both"
            ))),
            None if !is_selection => Err(CliError::Usage("the name of the object is missing".to_owned())),
            name => Ok(Self {
                kind,
                name: name.map(str::to_owned),
            }),
        }
    }

    /// Parses the words for a command about one object.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn one(words: &[String]) -> Result<(ObjectKind, String), CliError> {
        let Self { kind, name } = Self::parse(words, false)?;
        Ok((kind, name.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, is_selection: bool) -> Result<Words, CliError> {
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        Words::parse(&words, is_selection)
    }

    #[test]
    fn words_name_one_object() {
        for (text, kind, name) in [
            ("app", ObjectKind::Stack, "app"),
            ("terraform app", ObjectKind::Stack, "app"),
            ("terraform source", ObjectKind::Stack, "source"),
            ("tf/app", ObjectKind::Stack, "app"),
            ("terraform/source", ObjectKind::Stack, "source"),
            ("source repo", ObjectKind::Source, "repo"),
            ("source git repo", ObjectKind::Source, "repo"),
            ("gitrepository/repo", ObjectKind::Source, "repo"),
        ] {
            let found = parse(text, false).unwrap();
            assert_eq!((found.kind, found.name.as_deref()), (kind, Some(name)), "{text}");
        }
    }

    #[test]
    fn flags_select_the_objects_of_a_kind() {
        for (text, kind) in [
            ("", ObjectKind::Stack),
            ("terraforms", ObjectKind::Stack),
            ("sources", ObjectKind::Source),
            ("source git", ObjectKind::Source),
        ] {
            let found = parse(text, true).unwrap();
            assert_eq!((found.kind, found.name), (kind, None), "{text}");
        }
    }

    #[test]
    fn other_words_are_refused() {
        for (text, is_selection, expected) in [
            ("", false, "the name of the object is missing"),
            ("source git", false, "the name of the object is missing"),
            (
                "sources",
                false,
                "sources is a kind, and the name is missing: write sources NAME, or terraform/sources for the stack of this name",
            ),
            (
                "bucket b",
                false,
                "bucket is not a kind: write terraform NAME or source NAME",
            ),
            (
                "bucket/b",
                false,
                "bucket is not a kind: write terraform NAME or source NAME",
            ),
            (
                "app",
                true,
                "app is not a kind: write terraform NAME or source NAME",
            ),
            (
                "tf app",
                true,
                "app is one object, and the flags select several: use one of both",
            ),
            ("source git a b", false, "too many names: source git a b"),
        ] {
            assert_eq!(
                parse(text, is_selection).unwrap_err().to_string(),
                expected,
                "{text}"
            );
        }
    }
}
