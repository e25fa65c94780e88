//! Matching of one path component against one glob, by the rules of Go's `path/filepath.Match`, which is what users of
//! Flux write their patterns for: `*`, `?`, `[...]` with `^` as the only negation, `\` as escape, and nothing else.

use std::borrow::Cow;

/// One step of a glob.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Any run of characters, the empty one included.
    Any,
    /// Exactly one character.
    One,
    /// One character inside (or, negated, outside) the ranges.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// This character itself.
    Literal(char),
}

/// A compiled glob. A malformed one compiles to a glob that matches nothing, as Go's matcher treats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob(Option<Vec<Step>>);

impl Glob {
    /// Compiles `text`.
    pub(super) fn new(text: &[u8]) -> Self {
        let text = match Name::new(text) {
            Name::Text(text) => Cow::Borrowed(text),
            Name::Bytes(bytes) => Cow::Owned(bytes.iter().copied().map(private).collect()),
        };
        Self(compile(&text))
    }

    /// Whether the whole of `name` matches.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let Some(steps) = &self.0 else { return false };
        let name = Name::new(name);
        // The usual two-pointer walk: after a mismatch the last `*` takes one character more. Linear in practice and at
        // most quadratic, so a hostile pattern cannot stall a pass.
        // Positions are those of bytes.
        let (mut step, mut at) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match (steps.get(step), name.character(at)) {
                (Some(Step::Any), _) => {
                    retry = Some((step, at));
                    step += 1;
                    continue;
                }
                (Some(single), Some((character, length))) if single.takes(character) => {
                    step += 1;
                    at += length;
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((star, from)) = retry else { return false };
            let Some((_, length)) = name.character(from) else {
                return false;
            };
            retry = Some((star, from + length));
            step = star + 1;
            at = from + length;
        }
    }
}

/// Characters of a name or pattern: UTF-8, and where it is none, one private character per byte, so that `?` still takes
/// one.
#[derive(Clone, Copy)]
enum Name<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Name<'a> {
    fn new(name: &'a [u8]) -> Self {
        std::str::from_utf8(name).map_or(Self::Bytes(name), Self::Text)
    }

    /// The character that begins at a byte, and its length in bytes; none at the end.
    fn character(self, at: usize) -> Option<(char, usize)> {
        match self {
            Self::Text(text) => text
                .get(at..)?
                .chars()
                .next()
                .map(|found| (found, found.len_utf8())),
            Self::Bytes(bytes) => bytes.get(at).map(|byte| (private(*byte), 1)),
        }
    }
}

/// A byte of a text that is not UTF-8, as a character.
fn private(byte: u8) -> char {
    if byte.is_ascii() {
        char::from(byte)
    } else {
        char::from_u32(0xF_0000 + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

impl Step {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
            Self::Literal(literal) => *literal == c,
        }
    }
}

fn compile(text: &str) -> Option<Vec<Step>> {
    let mut rest = text.chars();
    let mut steps = Vec::new();
    while let Some(c) = rest.next() {
        match c {
            '*' if steps.last() == Some(&Step::Any) => {}
            '*' => steps.push(Step::Any),
            '?' => steps.push(Step::One),
            '[' => steps.push(class(&mut rest)?),
            '\\' => steps.push(Step::Literal(rest.next()?)),
            literal => steps.push(Step::Literal(literal)),
        }
    }
    Some(steps)
}

/// The inside of `[...]`; `None` if it is malformed (no end, no range, a bare `-` or `]` where a character must stand).
fn class(rest: &mut std::str::Chars<'_>) -> Option<Step> {
    let negated = rest.as_str().starts_with('^');
    if negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        if !ranges.is_empty() && rest.as_str().starts_with(']') {
            rest.next();
            return Some(Step::Class { negated, ranges });
        }
        let low = class_character(rest)?;
        let high = if rest.as_str().starts_with('-') {
            rest.next();
            class_character(rest)?
        } else {
            low
        };
        ranges.push((low, high));
    }
}

fn class_character(rest: &mut std::str::Chars<'_>) -> Option<char> {
    match rest.next()? {
        '-' | ']' => None,
        '\\' => rest.next(),
        c => Some(c),
    }
}

#[cfg(test)]
mod tests {
    use super::{Glob, Step};
    use proptest::prelude::*;

    #[test]
    fn globs_follow_gos_filepath_match() {
        for (pattern, name, wanted) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "a", true),
            ("a*b*c*d*e*", "axbxcxdxexxx", true),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "ab", false),
            ("a?b", "a☺b", true),
            ("a[^a]b", "a☺b", true),
            ("[a-ζ]*", "α", true),
            (r"[\]a]", "]", true),
            (r"[\-x]", "-", true),
            (r"[x\-]", "z", false),
            ("[]a]", "]", false),
            ("[-]", "-", false),
            ("[x-]", "x", false),
            ("[-x]", "x", false),
            ("[a-b-c]", "a", false),
            ("[", "a", false),
            ("[^", "a", false),
            ("a[", "a", false),
            ("*x", "xxx", true),
            (r"a\", "a", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(
                Glob::new(pattern.as_bytes()).matches(name.as_bytes()),
                wanted,
                "{pattern} on {name}"
            );
        }
    }

    #[test]
    fn a_name_that_is_no_utf_8_is_matched_byte_by_byte() {
        assert!(Glob::new(b"a?b").matches(b"a\xffb"));
        assert!(!Glob::new(b"a?b").matches(b"a\xff\xfeb"));
        assert!(Glob::new(b"a\xff*").matches(b"a\xffb"));
    }

    /// The plain rules, by trying everything: what the walk over bytes is compared with.
    fn slowly(steps: &[Step], name: &[char]) -> bool {
        match (steps.split_first(), name.split_first()) {
            (None, rest) => rest.is_none(),
            (Some((Step::Any, steps)), rest) => {
                slowly(steps, name)
                    || rest.is_some_and(|(_, name)| slowly(&[&[Step::Any], steps].concat(), name))
            }
            (Some((step, steps)), Some((first, name))) => step.takes(*first) && slowly(steps, name),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn the_walk_over_bytes_finds_what_trying_everything_finds(pattern in "[ab*?ä☺\\[\\]^-]{0,8}", name in "[abä☺]{0,8}") {
            let glob = Glob::new(pattern.as_bytes());
            let characters: Vec<char> = name.chars().collect();
            let wanted = glob.0.as_ref().is_some_and(|steps| slowly(steps, &characters));
            prop_assert_eq!(glob.matches(name.as_bytes()), wanted);
        }

        #[test]
        fn any_bytes_are_a_pattern(pattern in proptest::collection::vec(any::<u8>(), 0..64), name in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Glob::new(&pattern).matches(&name);
        }
    }
}
