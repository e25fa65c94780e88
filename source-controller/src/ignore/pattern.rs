//! One line of an ignore file: its grammar and what it matches. The grammar is Flux's, not git's (see `mod.rs`).

use super::glob::Glob;

/// Where a pattern applies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// No `/` inside: tried on every component below the scope.
    Name(Glob),
    /// Anchored at the scope: runs of components, each found at the earliest place after the one before it. The first
    /// run stands at the scope itself unless the pattern began with `**`.
    Path { anchored: bool, runs: Vec<Vec<Glob>> },
    /// Can match nothing (`/`, `/**`, `a**/b`).
    Nothing,
}

/// A parsed ignore pattern and its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    scope: Vec<Vec<u8>>,
    form: Form,
    directory_only: bool,
    /// Whether a hit brings the path back instead of leaving it out.
    pub(super) include: bool,
}

impl Pattern {
    /// Parses one line (without its line ending) of a file that lies in the directory `scope`.
    pub(super) fn parse(line: &[u8], scope: &[Vec<u8>]) -> Self {
        let (include, text) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
        let text = without_trailing_spaces(text);
        let (directory_only, text) = text.strip_suffix(b"/").map_or((false, text), |rest| (true, rest));
        let form = if text.contains(&b'/') {
            path_form(text)
        } else {
            name_form(text)
        };
        Self {
            scope: scope.to_vec(),
            form,
            directory_only,
            include,
        }
    }

    /// Whether the pattern speaks about this path, given as components from the root of the tree.
    pub(super) fn hits(&self, path: &[&[u8]], directory: bool) -> bool {
        if path.len() <= self.scope.len() || self.scope.iter().zip(path).any(|(scope, part)| scope != part) {
            return false;
        }
        let path = &path[self.scope.len()..];
        let consumed = match &self.form {
            Form::Name(glob) => path.iter().position(|part| glob.matches(part)).map(|at| at + 1),
            Form::Path { anchored, runs } => prefix(*anchored, runs, path),
            Form::Nothing => None,
        };
        consumed.is_some_and(|length| length < path.len() || directory || !self.directory_only)
    }
}

/// Spaces at the end do not count unless the line ends in an escaped one. Tabs always count.
fn without_trailing_spaces(text: &[u8]) -> &[u8] {
    if text.ends_with(b"\\ ") {
        return text;
    }
    let end = text.iter().rposition(|b| *b != b' ').map_or(0, |at| at + 1);
    &text[..end]
}

fn name_form(text: &[u8]) -> Form {
    if text.is_empty() {
        Form::Nothing
    } else {
        Form::Name(Glob::new(text))
    }
}

fn path_form(text: &[u8]) -> Form {
    let mut runs: Vec<Vec<Glob>> = vec![Vec::new()];
    let mut anchored = true;
    for part in text.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
        if part == b"**" {
            match runs.last() {
                Some(run) if !run.is_empty() => runs.push(Vec::new()),
                _ => anchored &= runs.len() > 1,
            }
        } else if part.windows(2).any(|pair| pair == b"**") {
            return Form::Nothing;
        } else if let Some(run) = runs.last_mut() {
            run.push(Glob::new(part));
        }
    }
    runs.retain(|run| !run.is_empty());
    if runs.is_empty() {
        Form::Nothing
    } else {
        Form::Path { anchored, runs }
    }
}

/// The number of leading components of `path` that the runs take, if they match a prefix of it. Taking each run at its
/// earliest place is enough: whatever follows the last run is free.
fn prefix(anchored: bool, runs: &[Vec<Glob>], path: &[&[u8]]) -> Option<usize> {
    let mut from = 0;
    for (index, run) in runs.iter().enumerate() {
        let fits = |at: usize| {
            path.len() >= at + run.len() && run.iter().zip(&path[at..]).all(|(glob, part)| glob.matches(part))
        };
        let last = if index == 0 && anchored { 0 } else { path.len() };
        from = (from..=last).find(|at| fits(*at))? + run.len();
    }
    Some(from)
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn hits(line: &str, scope: &[&str], path: &str, directory: bool) -> bool {
        let scope: Vec<Vec<u8>> = scope.iter().map(|s| s.as_bytes().to_vec()).collect();
        let parts: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
        Pattern::parse(line.as_bytes(), &scope).hits(&parts, directory)
    }

    #[test]
    fn a_pattern_speaks_only_below_its_scope() {
        assert!(hits("foo", &["a"], "a/foo", false));
        assert!(hits("foo", &["a"], "a/b/foo", false));
        assert!(!hits("foo", &["a"], "foo", false));
        assert!(
            !hits("a", &["a"], "a", true),
            "the directory of the file itself is out of its reach"
        );
        assert!(
            !hits("*", &["a", "b", "c"], "a/b", true),
            "scope longer than the path"
        );
    }

    #[test]
    fn stars_for_directories_stand_for_any_number_of_components() {
        for (line, path, wanted) in [
            ("**/foo", "foo", true),
            ("**/foo", "x/y/foo/z", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/c/d", false),
            ("a/**/b", "x/a/b", false),
            ("**/a/b", "a/c/a/b", true),
            ("a/**/**/b", "a/b", true),
            ("a/**", "a", true),
            ("/**", "a", false),
            ("**/**", "a", false),
            ("//", "a", false),
            ("/a//b", "a/b", true),
            ("***/b", "a/b", false),
        ] {
            assert_eq!(hits(line, &[], path, false), wanted, "{line} on {path}");
        }
    }

    #[test]
    fn a_directory_pattern_fails_only_on_a_last_component_that_is_none() {
        assert!(!hits("a/b/", &[], "a/b", false));
        assert!(hits("a/b/", &[], "a/b", true));
        assert!(hits("a/b/", &[], "a/b/c", false));
        assert!(!hits("abc/**/", &[], "abc", false));
    }

    #[test]
    fn an_escaped_last_space_belongs_to_the_name() {
        assert!(hits("foo\\ ", &[], "foo ", false));
        assert!(!hits("foo\\ ", &[], "foo", false));
    }
}
