//! One line of an ignore file: its grammar and its matching. The grammar is Flux's, not Git's (see `mod.rs`).

use std::sync::Arc;

use super::glob::Glob;

/// Kind of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Matcher {
    /// No `/` inside: matches any component below the scope.
    Name(Glob),
    /// Relative to the scope: runs of components, each matched at the earliest position after the previous one. The
    /// first run begins at the scope itself unless the pattern began with `**`.
    Path { anchored: bool, runs: Vec<Vec<Glob>> },
    /// Matches nothing (`/`, `/**`, `a**/b`).
    Never,
}

/// The components of the directory of an ignore file. All patterns of the file share it: a deep directory may have many.
pub(super) type Scope = Arc<[Vec<u8>]>;

/// A parsed ignore pattern and its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    scope: Scope,
    matcher: Matcher,
    directory_only: bool,
    /// Whether a match includes the path instead of excluding it.
    pub(super) include: bool,
}

impl Pattern {
    /// Parses one line (without line ending) of a file in the directory `scope`.
    pub(super) fn parse(line: &[u8], scope: &Scope) -> Self {
        let (include, text) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
        let text = without_trailing_spaces(text);
        let (directory_only, text) = text.strip_suffix(b"/").map_or((false, text), |rest| (true, rest));
        let matcher = if text.contains(&b'/') {
            path_matcher(text)
        } else {
            name_matcher(text)
        };
        Self {
            scope: Arc::clone(scope),
            matcher,
            directory_only,
            include,
        }
    }

    /// Whether the pattern matches this path, given as components from the root of the tree.
    pub(super) fn matches(&self, path: &[&[u8]], directory: bool) -> bool {
        if path.len() <= self.scope.len() || self.scope.iter().zip(path).any(|(scope, part)| scope != part) {
            return false;
        }
        let path = &path[self.scope.len()..];
        let consumed = match &self.matcher {
            Matcher::Name(glob) => path.iter().position(|part| glob.matches(part)).map(|at| at + 1),
            Matcher::Path { anchored, runs } => match_prefix(*anchored, runs, path),
            Matcher::Never => None,
        };
        consumed.is_some_and(|length| length < path.len() || directory || !self.directory_only)
    }
}

/// Removes trailing spaces unless the last one is escaped. Tabs are significant.
fn without_trailing_spaces(text: &[u8]) -> &[u8] {
    if text.ends_with(b"\\ ") {
        return text;
    }
    let end = text.iter().rposition(|b| *b != b' ').map_or(0, |at| at + 1);
    &text[..end]
}

fn name_matcher(text: &[u8]) -> Matcher {
    if text.is_empty() {
        Matcher::Never
    } else {
        Matcher::Name(Glob::new(text))
    }
}

fn path_matcher(text: &[u8]) -> Matcher {
    let mut runs: Vec<Vec<Glob>> = vec![Vec::new()];
    let mut anchored = true;
    for part in text.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
        if part == b"**" {
            match runs.last() {
                Some(run) if !run.is_empty() => runs.push(Vec::new()),
                _ => anchored &= runs.len() > 1,
            }
        } else if part.windows(2).any(|pair| pair == b"**") {
            return Matcher::Never;
        } else if let Some(run) = runs.last_mut() {
            run.push(Glob::new(part));
        }
    }
    runs.retain(|run| !run.is_empty());
    if runs.is_empty() {
        Matcher::Never
    } else {
        Matcher::Path { anchored, runs }
    }
}

/// Returns the number of leading components of `path` that the runs match, if they match a prefix. The earliest
/// position of each run suffices, because anything may follow the last run.
fn match_prefix(anchored: bool, runs: &[Vec<Glob>], path: &[&[u8]]) -> Option<usize> {
    let mut from = 0;
    for (index, run) in runs.iter().enumerate() {
        let matches_at = |at: usize| {
            path.len() >= at + run.len() && run.iter().zip(&path[at..]).all(|(glob, part)| glob.matches(part))
        };
        let last = if index == 0 && anchored { 0 } else { path.len() };
        from = (from..=last).find(|at| matches_at(*at))? + run.len();
    }
    Some(from)
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn matches(line: &str, scope: &[&str], path: &str, directory: bool) -> bool {
        let scope: Vec<Vec<u8>> = scope.iter().map(|s| s.as_bytes().to_vec()).collect();
        let parts: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
        Pattern::parse(line.as_bytes(), &scope.into()).matches(&parts, directory)
    }

    #[test]
    fn a_pattern_applies_only_below_its_scope() {
        assert!(matches("foo", &["a"], "a/foo", false));
        assert!(matches("foo", &["a"], "a/b/foo", false));
        assert!(!matches("foo", &["a"], "foo", false));
        assert!(
            !matches("a", &["a"], "a", true),
            "the directory of the file itself is out of its reach"
        );
        assert!(
            !matches("*", &["a", "b", "c"], "a/b", true),
            "scope longer than the path"
        );
    }

    #[test]
    fn double_stars_match_any_number_of_components() {
        for (line, path, expected) in [
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
            assert_eq!(matches(line, &[], path, false), expected, "{line} on {path}");
        }
    }

    #[test]
    fn a_directory_pattern_does_not_match_a_file() {
        assert!(!matches("a/b/", &[], "a/b", false));
        assert!(matches("a/b/", &[], "a/b", true));
        assert!(matches("a/b/", &[], "a/b/c", false));
        assert!(!matches("abc/**/", &[], "abc", false));
    }

    #[test]
    fn an_escaped_trailing_space_is_significant() {
        assert!(matches("foo\\ ", &[], "foo ", false));
        assert!(!matches("foo\\ ", &[], "foo", false));
    }
}
