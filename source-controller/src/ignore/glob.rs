//! Matches one path component against one glob by the rules of Go's `path/filepath.Match`, as in Flux: `*`, `?`,
//! `[...]` with `^` as the only negation, and `\` as escape.

use std::borrow::Cow;

/// One element of a glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Any sequence of characters, including the empty one.
    Any,
    /// Exactly one character.
    One,
    /// One character inside (or, negated, outside) the ranges.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// This character.
    Literal(char),
}

/// A compiled glob. Most are a name or `*` and an extension, and each is tried on each part of each path, so these are compared at once.
/// Only those of ASCII: a name that is not UTF-8 consists of other characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Glob {
    /// It is malformed. As in Go, it matches nothing.
    Malformed,
    /// This name.
    Equal(Vec<u8>),
    /// Every name with this end.
    EndsWith(Vec<u8>),
    /// Any other one.
    Steps(Vec<Step>),
}

impl Glob {
    /// Compiles `text`.
    pub(super) fn new(text: &[u8]) -> Self {
        let text = match Name::new(text) {
            Name::Text(text) => Cow::Borrowed(text),
            Name::Bytes(bytes) => Cow::Owned(bytes.iter().copied().map(private_character).collect()),
        };
        match compile(&text) {
            None => Self::Malformed,
            Some(steps) => match steps.split_first() {
                Some((Step::Any, rest)) => literal(rest).map(Self::EndsWith),
                _ => literal(&steps).map(Self::Equal),
            }
            .unwrap_or(Self::Steps(steps)),
        }
    }

    /// Whether the whole `name` matches.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let steps = match self {
            Self::Malformed => return false,
            Self::Equal(text) => return name == text.as_slice(),
            Self::EndsWith(end) => return name.ends_with(end),
            Self::Steps(steps) => steps,
        };
        let name = Name::new(name);
        // Two-pointer matching: after a mismatch the last `*` consumes one more character. At most quadratic, so an
        // untrusted pattern cannot stall a reconciliation. Positions are byte offsets.
        let (mut step, mut at) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match (steps.get(step), name.character(at)) {
                (Some(Step::Any), _) => {
                    retry = Some((step, at));
                    step += 1;
                    continue;
                }
                (Some(single), Some((character, length))) if single.matches_character(character) => {
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

/// Characters of a name or a pattern: UTF-8, or one private character for each byte if it is not UTF-8, so that `?`
/// still matches one byte.
#[derive(Clone, Copy)]
enum Name<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Name<'a> {
    fn new(name: &'a [u8]) -> Self {
        std::str::from_utf8(name).map_or(Self::Bytes(name), Self::Text)
    }

    /// Returns the character at a byte offset and its length in bytes; `None` at the end.
    fn character(self, at: usize) -> Option<(char, usize)> {
        match self {
            Self::Text(text) => text
                .get(at..)?
                .chars()
                .next()
                .map(|found| (found, found.len_utf8())),
            Self::Bytes(bytes) => bytes.get(at).map(|byte| (private_character(*byte), 1)),
        }
    }
}

/// Maps a byte of a text that is not UTF-8 to a character.
fn private_character(byte: u8) -> char {
    if byte.is_ascii() {
        char::from(byte)
    } else {
        char::from_u32(0xF_0000 + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

impl Step {
    fn matches_character(&self, c: char) -> bool {
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

/// Returns the text of steps that are ASCII characters only.
fn literal(steps: &[Step]) -> Option<Vec<u8>> {
    let byte = |step: &Step| match step {
        Step::Literal(character) if character.is_ascii() => u8::try_from(*character).ok(),
        _ => None,
    };
    steps.iter().map(byte).collect()
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

/// Parses the inside of `[...]`; `None` if it is malformed (no end, no range, an unescaped `-` or `]` as a character).
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
    use proptest::prelude::*;

    use super::{Glob, Step, compile};

    #[test]
    fn globs_follow_gos_filepath_match() {
        for (pattern, name, expected) in [
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
                expected,
                "{pattern} on {name}"
            );
        }
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_matched_bytewise() {
        assert!(Glob::new(b"a?b").matches(b"a\xffb"));
        assert!(!Glob::new(b"a?b").matches(b"a\xff\xfeb"));
        assert!(Glob::new(b"a\xff*").matches(b"a\xffb"));
        assert!(Glob::new(b"*b").matches(b"a\xffb"));
        assert!(Glob::new(b"*\xff").matches(b"a\xff"));
        assert!(!Glob::new("*\u{e9}".as_bytes()).matches(b"\xff\xc3\xa9"));
    }

    /// A reference implementation that tries all possibilities.
    fn matches_by_search(steps: &[Step], name: &[char]) -> bool {
        match (steps.split_first(), name.split_first()) {
            (None, rest) => rest.is_none(),
            (Some((Step::Any, steps)), rest) => {
                matches_by_search(steps, name)
                    || rest.is_some_and(|(_, name)| matches_by_search(&[&[Step::Any], steps].concat(), name))
            }
            (Some((step, steps)), Some((first, name))) => {
                step.matches_character(*first) && matches_by_search(steps, name)
            }
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn the_matcher_agrees_with_the_reference_implementation(pattern in "[ab*?ä☺\\[\\]^-]{0,8}", name in "[abä☺]{0,8}") {
            let glob = Glob::new(pattern.as_bytes());
            let characters: Vec<char> = name.chars().collect();
            let expected = compile(&pattern).is_some_and(|steps| matches_by_search(&steps, &characters));
            prop_assert_eq!(glob.matches(name.as_bytes()), expected);
        }

        #[test]
        fn any_bytes_are_a_pattern(pattern in proptest::collection::vec(any::<u8>(), 0..64), name in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Glob::new(&pattern).matches(&name);
        }
    }
}
