//! A position in a YAML document, counted as libyaml counts it: a column is a character, and a line ends with any line break of YAML 1.1.

/// A position in a document.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    column: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a position at the beginning.
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            column: 0,
        }
    }

    /// Returns the number of characters before the position in its line.
    pub(super) const fn column(&self) -> usize {
        self.column
    }

    /// Returns the byte that is this far ahead; `None` behind the end.
    pub(super) fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    /// Whether the rest begins with these bytes.
    pub(super) fn starts_with(&self, bytes: &[u8]) -> bool {
        self.rest(0).starts_with(bytes)
    }

    /// Whether a document begins or ends here.
    pub(super) fn is_document_marker(&self) -> bool {
        self.column == 0 && (self.starts_with(b"---") || self.starts_with(b"...")) && self.ends_word(3)
    }

    /// Whether a space or a tab is this far ahead.
    pub(super) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.peek(ahead), Some(b' ' | b'\t'))
    }

    /// Whether a line break is this far ahead.
    pub(super) fn is_break(&self, ahead: usize) -> bool {
        self.break_length(ahead) > 0
    }

    /// Whether a line ends this far ahead.
    pub(super) fn ends_line(&self, ahead: usize) -> bool {
        self.is_break(ahead) || self.peek(ahead).is_none()
    }

    /// Whether a blank or the end of a line is this far ahead.
    pub(super) fn ends_word(&self, ahead: usize) -> bool {
        self.is_blank(ahead) || self.ends_line(ahead)
    }

    /// Moves over a character or a line break. Returns whether it was a line break.
    pub(super) fn advance(&mut self) -> bool {
        let length = self.break_length(0);
        if length > 0 {
            self.at += length;
            self.column = 0;
            return true;
        }
        self.at += 1;
        // The other bytes of a character in UTF-8.
        while matches!(self.peek(0), Some(0x80..=0xbf)) {
            self.at += 1;
        }
        self.column += 1;
        false
    }

    fn rest(&self, ahead: usize) -> &'a [u8] {
        self.text.get(self.at + ahead..).unwrap_or_default()
    }

    /// Returns the length of a line break in bytes: CR, LF, both, NEL, LS or PS; 0 for anything else.
    fn break_length(&self, ahead: usize) -> usize {
        match self.rest(ahead) {
            [b'\r', b'\n', ..] | [0xc2, 0x85, ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_a_character_of_a_line() {
        let mut cursor = Cursor::new("é\r\nb\u{2028}c".as_bytes());
        assert!(!cursor.advance());
        assert_eq!(cursor.column(), 1);
        assert!(cursor.is_break(0));
        assert!(cursor.advance());
        assert_eq!((cursor.column(), cursor.peek(0)), (0, Some(b'b')));
        assert!(cursor.ends_word(1));
        cursor.advance();
        assert!(cursor.advance());
        assert_eq!(cursor.peek(0), Some(b'c'));
        cursor.advance();
        assert!(cursor.ends_line(0));
    }
}
