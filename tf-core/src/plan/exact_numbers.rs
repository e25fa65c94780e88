//! Exact numbers of a plan. The JSON parser rounds numbers that do not fit into 64 bits, so that different effects could have equal
//! digests. Such numbers become marked strings before they reach the parser.

use std::io::{BufRead, BufReader, Read};

/// Prefix of strings that represent numbers, U+F8FF. It is doubled in other strings that begin with it.
const MARK: &[u8] = "\u{f8ff}".as_bytes();
/// Length limit of a number; the CLI prints a few hundred digits at most.
const NUMBER_LIMIT: usize = 4096;

/// A string after [`ExactNumberReader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text<'a> {
    /// A number as printed.
    Number(&'a str),
    /// A string.
    String(&'a str),
}

/// Decodes a string.
pub(super) fn text(marked: &str) -> Text<'_> {
    match marked.strip_prefix('\u{f8ff}') {
        None => Text::String(marked),
        Some(rest) if rest.starts_with('\u{f8ff}') => Text::String(rest),
        Some(number) => Text::Number(number),
    }
}

/// Decodes the name of a member.
pub(super) fn name(marked: &str) -> &str {
    match text(marked) {
        Text::Number(name) | Text::String(name) => name,
    }
}

/// Position of the reader in the JSON.
#[derive(Debug)]
enum State {
    Outside,
    Number(Vec<u8>),
    /// In a string, after this many bytes of the mark and nothing else.
    StringStart(usize),
    String,
    Escape,
}

/// Reads JSON and replaces the numbers that do not fit into 64 bits.
pub(super) struct ExactNumberReader<R> {
    source: BufReader<R>,
    /// Output, and how much of it was read.
    ready: Vec<u8>,
    consumed: usize,
    state: State,
}

impl<R: Read> ExactNumberReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source: BufReader::with_capacity(64 * 1024, source),
            ready: Vec::new(),
            consumed: 0,
            state: State::Outside,
        }
    }

    /// Converts the next bytes of the source; no output at its end.
    fn refill(&mut self) -> std::io::Result<()> {
        self.ready.clear();
        self.consumed = 0;
        while self.ready.is_empty() {
            let available = self.source.fill_buf()?.to_vec();
            for byte in &available {
                self.feed(*byte);
            }
            self.source.consume(available.len());
            if available.is_empty() {
                self.end_number();
                break;
            }
        }
        if matches!(&self.state, State::Number(number) if number.len() > NUMBER_LIMIT) {
            return Err(std::io::Error::other("a number is not terminated"));
        }
        Ok(())
    }

    fn feed(&mut self, byte: u8) {
        match &mut self.state {
            State::Number(number) if matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') => {
                number.push(byte);
                return;
            }
            State::Number(_) => self.end_number(),
            State::StringStart(seen) if MARK.get(*seen) == Some(&byte) => {
                *seen += 1;
                if *seen == MARK.len() {
                    self.ready.extend_from_slice(MARK);
                    self.ready.extend_from_slice(MARK);
                    self.state = State::String;
                }
                return;
            }
            State::StringStart(seen) => {
                self.ready.extend_from_slice(&MARK[..*seen]);
                self.state = State::String;
            }
            _ => {}
        }
        self.copy(byte);
    }

    /// Handles a byte outside of numbers and string starts.
    fn copy(&mut self, byte: u8) {
        self.state = match (&self.state, byte) {
            (State::Outside, b'0'..=b'9' | b'-') => {
                self.state = State::Number(vec![byte]);
                return;
            }
            (State::Outside, b'"') => State::StringStart(0),
            (State::String, b'"') => State::Outside,
            (State::String, b'\\') => State::Escape,
            (State::Escape | State::String, _) => State::String,
            _ => State::Outside,
        };
        self.ready.push(byte);
    }

    fn end_number(&mut self) {
        if let State::Number(number) = std::mem::replace(&mut self.state, State::Outside) {
            if fits(&number) {
                self.ready.extend_from_slice(&number);
            } else {
                for part in [b"\"".as_slice(), MARK, &number, b"\""] {
                    self.ready.extend_from_slice(part);
                }
            }
        }
    }
}

impl<R: Read> Read for ExactNumberReader<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.consumed == self.ready.len() {
            self.refill()?;
        }
        let count = into.len().min(self.ready.len() - self.consumed);
        into[..count].copy_from_slice(&self.ready[self.consumed..self.consumed + count]);
        self.consumed += count;
        Ok(count)
    }
}

/// Whether the JSON parser preserves the number.
fn fits(number: &[u8]) -> bool {
    std::str::from_utf8(number).is_ok_and(|text| {
        let signed = text.parse::<i64>().map(|n| n.to_string());
        let read = signed.or_else(|_| text.parse::<u64>().map(|n| n.to_string()));
        read.is_ok_and(|again| again == text)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(json: &str) -> Value {
        serde_json::from_reader(ExactNumberReader::new(json.as_bytes())).unwrap()
    }

    #[test]
    fn only_numbers_that_would_be_rounded_are_marked() {
        let value = read(r#"{"a":[1,-2,0.1,1e5,18446744073709551617,-0,true],"b":"1.5","":""}"#);
        assert_eq!(
            value,
            json!({ "a": [1, -2, "\u{f8ff}0.1", "\u{f8ff}1e5", "\u{f8ff}18446744073709551617", "\u{f8ff}-0", true],
                "b": "1.5", "": "" })
        );
        assert_eq!(text("\u{f8ff}0.1"), Text::Number("0.1"));
        assert_eq!(text("0.1"), Text::String("0.1"));
        assert_eq!(read("12"), json!(12));
    }

    #[test]
    fn a_string_cannot_imitate_a_number() {
        let value = read("[\"\u{f8ff}1.5\",\"\u{f8fe}\",\"\"]");
        assert_eq!(text(value[0].as_str().unwrap()), Text::String("\u{f8ff}1.5"));
        assert_eq!(value[1], "\u{f8fe}");
    }

    proptest! {
        #[test]
        fn strings_are_unchanged(texts in proptest::collection::vec("\\PC{0,6}|[\u{f8ff}\\\\\"0-9,]{0,6}", 0..6)) {
            let back = read(&json!(texts).to_string());
            let found: Vec<_> = back.as_array().unwrap().iter().map(|value| text(value.as_str().unwrap())).collect();
            prop_assert_eq!(found, texts.iter().map(|text| Text::String(text)).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            ExactNumberReader::new(bytes.as_slice()).read_to_end(&mut out).unwrap();
        }
    }
}
