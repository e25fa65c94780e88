//! How the values are looked for in a text (pure).

use std::collections::BTreeSet;

use regex::bytes::{Regex, RegexBuilder};

/// Longest part of a value that is looked for; what is longer is found by its beginning, and goes to its end.
pub(super) const LONGEST: usize = 1024;
/// Most memory of the compiled search, in bytes.
const SEARCH_LIMIT: usize = 64 << 20;

/// A value as it stands in a text: the CLI breaks its own lines where there is white space, and draws a bar before each. What
/// was cut goes to the end of its word.
fn pattern(value: &str) -> String {
    let words: Vec<_> = value.split_ascii_whitespace().map(regex::escape).collect();
    let pattern = words.join("(?:[ \\t\\r\\n\\x0c|]|\u{2502})+");
    if value.len() + 4 > LONGEST {
        format!("{pattern}[^ \\t\\r\\n]*")
    } else {
        pattern
    }
}

/// How the values are looked for.
#[derive(Clone)]
pub(super) enum Search {
    Nothing,
    For(Regex),
    /// There are too many: nothing is shown at all.
    Impossible,
}

impl Search {
    /// Longest first: of two values of which one begins with the other, the whole longer one goes.
    pub(super) fn of(values: &BTreeSet<String>) -> Self {
        if values.is_empty() {
            return Self::Nothing;
        }
        let mut values: Vec<_> = values.iter().collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let each: Vec<_> = values.iter().map(|value| pattern(value)).collect();
        let built = RegexBuilder::new(&each.join("|"))
            .unicode(false)
            .size_limit(SEARCH_LIMIT)
            .build();
        built.map_or(Self::Impossible, Self::For)
    }
}
