//! Redaction of a text that arrives line by line, such as the output of a command that runs.
//!
//! The CLI breaks lines at white space, so a value of several words may continue on the next line. Lines are returned once no value
//! can begin in them and continue. The result is that of [`Redactor::redact`] on the whole text.

use std::collections::{BTreeSet, HashSet};

use regex::bytes::{NoExpand, Regex};

use super::{Matcher, PATTERN_LIMIT, REDACTED, Redactor, SUPPRESSED};

/// Maximum number of bytes from the start of a value to the end of the text, with all white space between its words. A text does not wait longer
/// for the rest of a value.
const OPEN_LIMIT: usize = 16 * 1024;

/// A text that is redacted line by line.
#[derive(Debug, Default)]
pub struct LineRedactor {
    /// The lines in which a value may begin.
    pending: Vec<u8>,
    /// The text is not shown, and this was said.
    is_suppressed: bool,
}

impl LineRedactor {
    /// Takes whole lines, and returns the redacted lines in which no value begins that may continue.
    pub fn push(&mut self, secrets: &Redactor, lines: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(lines);
        let pattern = match secrets.matcher() {
            Matcher::Empty => return std::mem::take(&mut self.pending),
            Matcher::TooMany => return self.suppress(),
            Matcher::Pattern(pattern) => pattern,
        };
        let length = self.pending.len();
        let open = secrets.open_words().find(&self.pending);
        let open = open.filter(|open| length - open <= OPEN_LIMIT);
        let end = open.map_or(length, |open| closed_end(&self.pending, open, pattern));
        let closed: Vec<u8> = self.pending.drain(..end).collect();
        pattern
            .replace_all(&closed, NoExpand(REDACTED.as_bytes()))
            .into_owned()
    }

    /// Returns the rest of a text that is complete.
    pub fn finish(&mut self, secrets: &Redactor) -> Vec<u8> {
        let rest = std::mem::take(&mut self.pending);
        match secrets.matcher() {
            Matcher::Empty => rest,
            Matcher::TooMany => {
                self.pending = rest;
                self.suppress()
            }
            Matcher::Pattern(pattern) => pattern
                .replace_all(&rest, NoExpand(REDACTED.as_bytes()))
                .into_owned(),
        }
    }

    /// Returns the rest of a text whose next lines are left out: what may be the start of a value is redacted.
    pub fn cut(&mut self) -> Vec<u8> {
        if std::mem::take(&mut self.pending).is_empty() {
            Vec::new()
        } else {
            format!("{REDACTED}\n").into_bytes()
        }
    }

    fn suppress(&mut self) -> Vec<u8> {
        let is_blank = std::mem::take(&mut self.pending).trim_ascii().is_empty();
        if is_blank || std::mem::replace(&mut self.is_suppressed, true) {
            Vec::new()
        } else {
            format!("{SUPPRESSED}\n").into_bytes()
        }
    }
}

/// Returns where the lines end that have no part of the value that may begin at `open`, and no part of a value around this end.
fn closed_end(text: &[u8], open: usize, pattern: &Regex) -> usize {
    let Some(last) = text[..open].iter().rposition(|byte| *byte == b'\n') else {
        return 0;
    };
    let end = last + 1;
    let around = pattern
        .find_iter(text)
        .find(|found| found.start() < end && end < found.end());
    around.map_or(end, |found| found.start())
}

/// The words of the values that have several, without their last words: a text that ends with them may continue with the rest of
/// a value.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenWords {
    words: HashSet<Vec<u8>>,
    /// The first words, which may be the end of a longer word of the text.
    first: HashSet<Vec<u8>>,
    /// A value begins with bars.
    begins_with_bar: bool,
}

impl OpenWords {
    pub(super) fn of(values: &BTreeSet<String>) -> Self {
        let mut open = Self::default();
        for value in values {
            let all: Vec<_> = value.split_ascii_whitespace().collect();
            let [first, .., _] = all[..] else { continue };
            match words(first.as_bytes()).next() {
                Some(word) => {
                    open.first.insert(word.to_vec());
                }
                None => open.begins_with_bar = true,
            }
            let others = all[..all.len() - 1].iter();
            open.words
                .extend(others.flat_map(|part| words(part.as_bytes())).map(<[u8]>::to_vec));
        }
        open
    }

    /// Returns where a value may begin that continues after the text. There may be none: this only delays the text.
    fn find(&self, text: &[u8]) -> Option<usize> {
        if self.words.is_empty() && !self.begins_with_bar {
            return None;
        }
        let (mut start, mut end) = (None, text.len());
        // A value has at most this number of words.
        for _ in 0..PATTERN_LIMIT / 2 {
            let Some(word) = last_word(&text[..end]) else {
                break;
            };
            let content = &text[word.clone()];
            if self.words.contains(content) {
                (start, end) = (Some(word.start), word.start);
                continue;
            }
            if self.ends_with_first(content) {
                start = Some(word.start);
            }
            break;
        }
        if self.begins_with_bar {
            let end = start.unwrap_or(text.len());
            let bars = last_word(&text[..end]).map_or(0, |word| word.end);
            let has_bar = text[bars..end].iter().any(|byte| !byte.is_ascii_whitespace());
            start = start.or_else(|| has_bar.then_some(end)).map(|_| bars);
        }
        start
    }

    fn ends_with_first(&self, word: &[u8]) -> bool {
        let longest = word.len().min(PATTERN_LIMIT);
        (word.len() - longest..word.len()).any(|at| self.first.contains(&word[at..]))
    }
}

/// Whether a byte separates words, as in the pattern of a value: white space, a bar, or a byte of the bar of a box.
const fn is_separator(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\r' | b'\n' | 0x0c | b'|' | 0xe2 | 0x94 | 0x82
    )
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| is_separator(*byte))
        .filter(|word| !word.is_empty())
}

/// Returns the range of the last word.
fn last_word(text: &[u8]) -> Option<std::ops::Range<usize>> {
    let last = text.iter().rposition(|byte| !is_separator(*byte))?;
    let before = text[..last].iter().rposition(|byte| is_separator(*byte));
    Some(before.map_or(0, |at| at + 1)..last + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redactor(values: &[&str]) -> Redactor {
        let mut secrets = Redactor::default();
        secrets.extend(values.iter().map(|value| (*value).to_owned()));
        secrets
    }

    fn shown(secrets: &Redactor, lines: &[&str]) -> Vec<String> {
        let mut redactor = LineRedactor::default();
        let mut shown: Vec<_> = lines
            .iter()
            .map(|line| redactor.push(secrets, line.as_bytes()))
            .collect();
        shown.push(redactor.finish(secrets));
        shown
            .into_iter()
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .collect()
    }

    #[test]
    fn a_line_waits_only_if_a_value_may_continue_after_it() {
        let secrets = redactor(&["my long secret phrase", "hunter2"]);
        assert_eq!(
            shown(
                &secrets,
                &["is hunter2\n", "x my long\n", "\u{2502} secret phrase y\n", "z\n"]
            ),
            ["is (sensitive)\n", "", "x (sensitive) y\n", "z\n", ""]
        );
        assert_eq!(
            shown(&secrets, &["it is my\n", "dog\n", "the end my long\n"]),
            ["", "it is my\ndog\n", "", "the end my long\n"]
        );
        assert_eq!(
            shown(&Redactor::default(), &["my long\n", "x\n"]),
            ["my long\n", "x\n", ""]
        );
    }

    #[test]
    fn a_value_before_lines_that_are_left_out_is_redacted() {
        let secrets = redactor(&["my long secret phrase"]);
        let mut lines = LineRedactor::default();
        assert_eq!(lines.push(&secrets, b"one\nx my long\n"), b"one\n");
        assert_eq!(lines.cut(), b"(sensitive)\n");
        assert_eq!(lines.cut(), b"");
    }

    #[test]
    fn a_line_does_not_wait_longer_than_the_limit() {
        let secrets = redactor(&["my long secret phrase"]);
        for line in ["\n", "long\n"] {
            let mut lines = LineRedactor::default();
            let mut shown = lines.push(&secrets, b"it is my\n");
            for _ in 0..2 * OPEN_LIMIT / line.len() {
                shown.extend(lines.push(&secrets, line.as_bytes()));
                assert!(lines.pending.len() <= OPEN_LIMIT + "it is ".len());
            }
            assert!(shown.starts_with(b"it is my\n"), "{line:?}");
        }
    }

    #[test]
    fn with_unknown_values_one_line_says_so() {
        let mut secrets = redactor(&["hunter2"]);
        secrets.suppress_all();
        let all = shown(&secrets, &["\n", "a\n", "b\n"]);
        assert_eq!(all.concat(), format!("{SUPPRESSED}\n"));
        assert_eq!(all[1], format!("{SUPPRESSED}\n"));
    }

    /// Values and texts of few different words and separators, so that they meet.
    fn value() -> impl Strategy<Value = String> {
        proptest::collection::vec("abc|def|ab|[|\u{2502} ]{1,2}", 2..6).prop_map(|parts| parts.concat())
    }

    proptest! {
        /// A text in lines is redacted as the whole text is, wherever its lines end.
        #[test]
        fn lines_are_redacted_as_the_whole_text(
            values in proptest::collection::vec(value(), 1..4),
            parts in proptest::collection::vec(
                prop_oneof![value(), Just("\n".to_owned()), Just("\n\u{2502} ".to_owned()), Just("x".to_owned())],
                0..20,
            ),
        ) {
            let mut secrets = Redactor::default();
            for value in &values {
                secrets.add_text(value);
            }
            // The values again, with a line break at each space.
            let broken: Vec<_> = values.iter().map(|value| value.replace(' ', "\n")).collect();
            let text = [parts.concat(), broken.join(" x ")].join("\n");
            let lines: Vec<_> = text.split_inclusive('\n').collect();
            prop_assert_eq!(shown(&secrets, &lines).concat(), secrets.redact(&text).into_owned());
        }
    }
}
