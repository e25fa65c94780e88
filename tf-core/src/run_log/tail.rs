//! The last lines of a text within a size limit.

use std::collections::VecDeque;

/// The end of a text that arrives in pieces, within a size limit.
#[derive(Debug)]
pub struct Tail {
    bytes: VecDeque<u8>,
    limit: usize,
    /// Number of bytes before [`Self::bytes`].
    left_out: u64,
    /// The byte before [`Self::bytes`] ends a line, or there is none.
    begins_line: bool,
}

impl Tail {
    /// Returns the end of an empty text.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            limit,
            left_out: 0,
            begins_line: true,
        }
    }

    /// Adds the next bytes of the text.
    pub fn push(&mut self, bytes: &[u8]) {
        let more = (self.bytes.len() + bytes.len()).saturating_sub(self.limit);
        let (old, new) = (more.min(self.bytes.len()), more.saturating_sub(self.bytes.len()));
        let (left_out, kept) = bytes.split_at(new);
        let last = left_out.last().copied();
        let last = last.or_else(|| self.bytes.get(old.checked_sub(1)?).copied());
        if let Some(last) = last {
            self.begins_line = last == b'\n';
        }
        self.bytes.drain(..old);
        self.bytes.extend(kept);
        self.left_out += more as u64;
    }

    /// Returns the number of bytes that exceed the limit.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the whole lines at the end, and the number of bytes before them. Of a line that exceeds the limit, returns the end.
    #[must_use]
    pub fn into_lines(self) -> (Vec<u8>, u64) {
        let mut bytes = Vec::from(self.bytes);
        let start = if self.begins_line { 0 } else { line_start(&bytes) };
        bytes.drain(..start);
        (bytes, self.left_out + start as u64)
    }

    /// As [`Self::into_lines`], as text of at most as many bytes.
    #[must_use]
    pub fn into_text(self) -> String {
        let limit = self.limit;
        let (bytes, _) = self.into_lines();
        let text = String::from_utf8_lossy(&bytes);
        // The replacement of an invalid byte is longer than the byte.
        last_lines(&text, limit).to_owned()
    }
}

/// Returns the whole lines at the end of a text within a number of bytes. Of a line that is longer, returns the end.
#[must_use]
pub fn last_lines(text: &str, limit: usize) -> &str {
    text.get(suffix_start(text.as_bytes(), limit)..)
        .unwrap_or_default()
}

/// Returns where the lines begin that [`last_lines`] returns.
fn suffix_start(text: &[u8], limit: usize) -> usize {
    let Some(cut) = text.len().checked_sub(limit).filter(|cut| *cut > 0) else {
        return 0;
    };
    if text[cut - 1] == b'\n' {
        return cut;
    }
    cut + line_start(&text[cut..])
}

/// Returns the start of the first line in a text that begins within a line, or of its first character if it has no further line.
fn line_start(text: &[u8]) -> usize {
    let is_continuation = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    match text.iter().position(|byte| *byte == b'\n') {
        Some(end) if end + 1 < text.len() => end + 1,
        _ => text
            .iter()
            .position(|byte| !is_continuation(byte))
            .unwrap_or(text.len()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tail(limit: usize, pieces: &[&[u8]]) -> Tail {
        let mut tail = Tail::new(limit);
        for piece in pieces {
            tail.push(piece);
        }
        tail
    }

    #[test]
    fn the_last_whole_lines_remain() {
        let text = "one\ntwo\n12345\n";
        let whole: &[&[u8]] = &[text.as_bytes()];
        let cut: &[&[u8]] = &[b"one\nt", b"wo", b"\n12345\n"];
        for (limit, rest, left_out) in [
            (100, "one\ntwo\n12345\n", 0),
            (14, "one\ntwo\n12345\n", 0),
            (13, "two\n12345\n", 4),
            (10, "two\n12345\n", 4),
            (9, "12345\n", 8),
            (6, "12345\n", 8),
            (5, "2345\n", 9),
            (0, "", 14),
        ] {
            assert_eq!(last_lines(text, limit), rest, "{limit}");
            for pieces in [whole, cut] {
                let (bytes, before) = tail(limit, pieces).into_lines();
                assert_eq!(
                    (bytes.as_slice(), before),
                    (rest.as_bytes(), left_out),
                    "{limit} {pieces:?}"
                );
            }
        }
    }

    #[test]
    fn a_character_is_not_cut() {
        assert_eq!(last_lines("\u{1F4A5}\u{e4}", 5), "\u{e4}");
        assert_eq!(tail(5, &["\u{1F4A5}\u{e4}".as_bytes()]).into_text(), "\u{e4}");
    }

    proptest! {
        /// For any bytes in any pieces: a suffix of the text within the limit, that begins with a line unless it is within the last.
        #[test]
        fn it_is_a_suffix_of_whole_lines(
            pieces in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..30),
                0..10,
            ),
            limit in 0_usize..60,
        ) {
            let text = pieces.concat();
            let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
            let (lines, left_out) = tail(limit, &pieces).into_lines();
            let start = usize::try_from(left_out).unwrap();
            prop_assert!(lines.len() <= limit);
            prop_assert_eq!(&text[start..], lines.as_slice());
            let begins_line = start == 0 || text[start - 1] == b'\n';
            let is_within_last_line = !text[start..text.len().saturating_sub(1).max(start)].contains(&b'\n');
            prop_assert!(begins_line || is_within_last_line);
            prop_assert!(tail(limit, &pieces).into_text().len() <= limit);
            let whole = String::from_utf8_lossy(&text);
            let rest = last_lines(&whole, limit);
            prop_assert!(rest.len() <= limit && whole.ends_with(rest));
        }
    }
}
