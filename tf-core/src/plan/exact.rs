//! Numbers of a plan as the CLI prints them. JSON readers round what does not fit into 64 bits, and two effects that differ
//! beyond the rounding would look alike: such numbers become marked strings while the JSON streams by.

use std::io::{BufRead, BufReader, Read};

/// Begins a string that stands for a number; a string that begins with it by itself gets a second one. U+F8FF, in UTF-8.
const MARK: &[u8] = "\u{f8ff}".as_bytes();
/// Longest number that is kept; the CLI prints none that is longer than a few hundred digits.
const LONGEST: usize = 4096;

/// What a string of a plan stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text<'a> {
    /// A number, as it was printed.
    Number(&'a str),
    /// Itself.
    String(&'a str),
}

/// What a string of a plan that was read through [`Exact`] stands for.
pub(super) fn text(held: &str) -> Text<'_> {
    match held.strip_prefix('\u{f8ff}') {
        None => Text::String(held),
        Some(rest) if rest.starts_with('\u{f8ff}') => Text::String(rest),
        Some(number) => Text::Number(number),
    }
}

/// What the name of a member is that was read through [`Exact`].
pub(super) fn name(held: &str) -> &str {
    match text(held) {
        Text::Number(name) | Text::String(name) => name,
    }
}

/// Where in the JSON the reader is.
#[derive(Debug)]
enum State {
    Outside,
    Number(Vec<u8>),
    /// In a string of which so many bytes of the mark were seen, and nothing else.
    Beginning(usize),
    String,
    Escape,
}

/// Reads JSON and marks the numbers that do not fit.
pub(super) struct Exact<R> {
    source: BufReader<R>,
    /// Bytes that are ready to be handed out, and how far they are.
    ready: Vec<u8>,
    given: usize,
    state: State,
}

impl<R: Read> Exact<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source: BufReader::with_capacity(64 * 1024, source),
            ready: Vec::new(),
            given: 0,
            state: State::Outside,
        }
    }

    /// Turns what the source holds now into ready bytes; none at its end.
    fn refill(&mut self) -> std::io::Result<()> {
        self.ready.clear();
        self.given = 0;
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
        if matches!(&self.state, State::Number(number) if number.len() > LONGEST) {
            return Err(std::io::Error::other("a number without end"));
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
            State::Beginning(seen) if MARK.get(*seen) == Some(&byte) => {
                *seen += 1;
                if *seen == MARK.len() {
                    self.ready.extend_from_slice(MARK);
                    self.ready.extend_from_slice(MARK);
                    self.state = State::String;
                }
                return;
            }
            State::Beginning(seen) => {
                self.ready.extend_from_slice(&MARK[..*seen]);
                self.state = State::String;
            }
            _ => {}
        }
        self.plain(byte);
    }

    /// A byte outside of numbers and of the beginnings of strings.
    fn plain(&mut self, byte: u8) {
        self.state = match (&self.state, byte) {
            (State::Outside, b'0'..=b'9' | b'-') => {
                self.state = State::Number(vec![byte]);
                return;
            }
            (State::Outside, b'"') => State::Beginning(0),
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

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.given == self.ready.len() {
            self.refill()?;
        }
        let count = into.len().min(self.ready.len() - self.given);
        into[..count].copy_from_slice(&self.ready[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

/// Whether a reader of JSON keeps it as it is.
fn fits(number: &[u8]) -> bool {
    std::str::from_utf8(number).is_ok_and(|text| {
        let signed = text.parse::<i64>().map(|n| n.to_string());
        let read = signed.or_else(|_| text.parse::<u64>().map(|n| n.to_string()));
        read.is_ok_and(|again| again == text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(json: &str) -> Value {
        serde_json::from_reader(Exact::new(json.as_bytes())).unwrap()
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
    fn a_string_cannot_pass_for_a_number() {
        let value = read("[\"\u{f8ff}1.5\",\"\u{f8fe}\",\"\"]");
        assert_eq!(text(value[0].as_str().unwrap()), Text::String("\u{f8ff}1.5"));
        assert_eq!(value[1], "\u{f8fe}");
    }

    proptest! {
        #[test]
        fn strings_are_what_they_were(texts in proptest::collection::vec("\\PC{0,6}|[\u{f8ff}\\\\\"0-9,]{0,6}", 0..6)) {
            let back = read(&json!(texts).to_string());
            let found: Vec<_> = back.as_array().unwrap().iter().map(|held| text(held.as_str().unwrap())).collect();
            prop_assert_eq!(found, texts.iter().map(|held| Text::String(held)).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            Exact::new(bytes.as_slice()).read_to_end(&mut out).unwrap();
        }
    }
}
