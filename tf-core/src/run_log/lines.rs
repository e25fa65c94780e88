//! The lines of a log, from the bytes that a command prints.

use crate::cli::text::{VariableMask, strip_colours};
use crate::redaction::{LineRedactor, Redactor};

/// Maximum number of bytes of a line. A longer one is not shown: a part of it could end within a sensitive value.
const LINE_LIMIT: usize = 64 * 1024;

/// The redacted lines of the output of one command, which arrives in pieces: without colours, and without values of the variable
/// file that errors quote.
#[derive(Debug, Default)]
pub struct LogLines {
    /// The line that is not complete.
    line: Vec<u8>,
    /// Bytes of that line, if it exceeds the limit.
    exceeding: usize,
    mask: VariableMask,
    redactor: LineRedactor,
}

impl LogLines {
    /// Takes the next bytes, and returns the lines that can be shown. They are valid UTF-8.
    pub fn push(&mut self, secrets: &Redactor, bytes: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.extend(piece);
            if piece.ends_with(b"\n") {
                self.end_line(&mut lines);
            }
        }
        if lines.is_empty() {
            return lines;
        }
        self.redactor.push(secrets, &lines)
    }

    /// Returns the rest of an output that is complete, which ends with a line end.
    pub fn finish(&mut self, secrets: &Redactor) -> Vec<u8> {
        let mut lines = Vec::new();
        if !self.line.is_empty() || self.exceeding > 0 {
            self.end_line(&mut lines);
        }
        let mut shown = self.redactor.push(secrets, &lines);
        shown.extend(self.redactor.finish(secrets));
        shown
    }

    /// Returns the rest of an output whose next bytes are left out. A line that is not complete is left out too.
    pub fn cut(&mut self) -> Vec<u8> {
        (self.line, self.exceeding) = (Vec::new(), 0);
        self.redactor.cut()
    }

    fn extend(&mut self, piece: &[u8]) {
        if self.exceeding > 0 || self.line.len() + piece.len() > LINE_LIMIT {
            self.exceeding += self.line.len() + piece.len();
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(piece);
        }
    }

    fn end_line(&mut self, lines: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.line);
        let line = match std::mem::take(&mut self.exceeding) {
            0 => String::from_utf8_lossy(&line),
            length => format!("(not shown: a line of {length} bytes)").into(),
        };
        let line = strip_colours(line.trim_end_matches(['\n', '\r']));
        lines.extend_from_slice(self.mask.mask(&line).as_bytes());
        lines.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redactor(values: &[&str]) -> Redactor {
        let mut secrets = Redactor::default();
        for value in values {
            secrets.add_text(value);
        }
        secrets
    }

    fn shown(secrets: &Redactor, pieces: &[&[u8]]) -> String {
        let mut lines = LogLines::default();
        let mut all: Vec<_> = pieces
            .iter()
            .flat_map(|piece| lines.push(secrets, piece))
            .collect();
        all.extend(lines.finish(secrets));
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn a_value_in_two_pieces_is_redacted() {
        let secrets = redactor(&["hunter2", "my long secret phrase"]);
        assert_eq!(
            shown(&secrets, &[b"it is hun", b"ter2, and\n"]),
            "it is (sensitive), and\n"
        );
        assert_eq!(
            shown(
                &secrets,
                &[b"x my long\n", "\u{2502} secret phr".as_bytes(), b"ase y"]
            ),
            "x (sensitive) y\n"
        );
        assert_eq!(
            shown(&secrets, &[b"a\x1b[31mhun\x1b[0mter2\r\n"]),
            "a(sensitive)\n"
        );
    }

    #[test]
    fn a_line_is_returned_as_soon_as_it_ends() {
        let (secrets, mut lines) = (redactor(&["hunter2"]), LogLines::default());
        assert_eq!(
            lines.push(&secrets, b"it: Creating...\nit: Cre"),
            b"it: Creating...\n"
        );
        assert_eq!(
            lines.push(&secrets, b"ation complete\n"),
            b"it: Creation complete\n"
        );
        assert_eq!(lines.finish(&secrets), b"");
    }

    #[test]
    fn variables_that_an_error_quotes_are_masked() {
        let text = "Error: Invalid value\n\n  on generated.auto.tfvars.json line 1:\n   1: {\"n\":\"abc\"}\n\nNot suitable.\n";
        let expected = text.replace("\"abc\"", "\"***\"");
        assert_eq!(shown(&Redactor::default(), &[text.as_bytes()]), expected);
    }

    #[test]
    fn a_line_above_the_limit_is_not_shown() {
        let long = "x".repeat(LINE_LIMIT - 1) + "\n";
        assert_eq!(shown(&Redactor::default(), &[long.as_bytes()]), long);
        let text = format!("a\nx{long}b\n");
        let expected = format!("a\n(not shown: a line of {} bytes)\nb\n", LINE_LIMIT + 1);
        for size in [1000, LINE_LIMIT, text.len()] {
            let pieces: Vec<_> = text.as_bytes().chunks(size).collect();
            assert_eq!(shown(&Redactor::default(), &pieces), expected, "{size}");
        }
    }

    #[test]
    fn nothing_of_an_incomplete_line_is_shown_before_a_cut() {
        let (secrets, mut lines) = (redactor(&["my long secret phrase"]), LogLines::default());
        assert_eq!(lines.push(&secrets, b"a\nmy long\nsecret phr"), b"a\n");
        assert_eq!(lines.cut(), b"(sensitive)\n");
        assert_eq!(lines.push(&secrets, b"b\n"), b"b\n");
    }

    proptest! {
        /// The lines do not depend on the pieces in which the bytes arrive, and contain no value.
        #[test]
        fn pieces_do_not_matter(
            bytes in proptest::collection::vec(
                prop_oneof![
                    Just(b"hunter2".to_vec()), Just(b"correct\nhorse battery".to_vec()), Just(b"\n".to_vec()),
                    Just(b"correct horse".to_vec()), proptest::collection::vec(any::<u8>(), 0..4),
                ],
                0..30,
            ),
            size in 1_usize..12,
        ) {
            let secrets = redactor(&["hunter2", "correct horse battery"]);
            let bytes = bytes.concat();
            let whole = shown(&secrets, &[&bytes]);
            let pieces: Vec<_> = bytes.chunks(size).collect();
            prop_assert_eq!(&shown(&secrets, &pieces), &whole);
            let words: Vec<_> = whole.split_ascii_whitespace().collect();
            let joined = words.join(" ");
            prop_assert!(!joined.contains("hunter2") && !joined.contains("correct horse battery"), "{}", whole);
        }
    }
}
