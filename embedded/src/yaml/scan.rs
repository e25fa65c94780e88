//! Finds what makes libyaml slow or large before it parses a document, in linear time.
//!
//! For each token libyaml checks the possible keys of all outer collections in flow style (`yaml_parser_fetch_more_tokens`), so that a push
//! or a request of 1 MiB could take minutes. It compares each `%TAG` directive with all others (`yaml_parser_append_tag_directive`), and
//! copies the prefix of one into each value with its tag.
//!
//! This finds the same tokens as `scanner.c` of libyaml 0.2.5 in each document that it accepts, so that brackets in comments, quotes and
//! block scalars are text here, too. The scan may continue where libyaml fails.

use super::YamlError;
use super::cursor::Cursor;
use crate::depth::MAX_DEPTH;

/// A directive that defines a prefix of tags.
const TAG_DIRECTIVE: &[u8] = b"%TAG";
/// How far the colon can be from the beginning of its key, in characters (YAML 1.2.2 section 7.4.2).
const MAX_KEY: usize = 1024;

/// Refuses a document with too many levels, or with a directive of tags.
pub(super) fn check(document: &[u8]) -> Result<(), YamlError> {
    let brackets = document.iter().filter(|byte| matches!(byte, b'[' | b'{'));
    let mut texts = document.windows(TAG_DIRECTIVE.len());
    if brackets.count() <= MAX_DEPTH && !texts.any(|text| text == TAG_DIRECTIVE) {
        return Ok(());
    }
    let mut scanner = Scanner::new(document);
    while scanner.next_token() {
        if scanner.levels() > MAX_DEPTH {
            return Err(YamlError::TooDeep);
        }
        if scanner.has_tag_directive {
            return Err(YamlError::TagDirective);
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Scanner<'a> {
    cursor: Cursor<'a>,
    has_tag_directive: bool,
    /// Number of open collections in flow style.
    flow: usize,
    /// Lowest column of the content of the innermost collection in block style; 0 outside.
    block: usize,
    /// The same of the outer ones.
    outer: Vec<usize>,
    /// Column of what is a key if a colon follows. In flow style keys open no collection.
    key: Option<usize>,
    /// Whether a key can begin here.
    is_key_allowed: bool,
}

impl<'a> Scanner<'a> {
    const fn new(document: &'a [u8]) -> Self {
        Self {
            cursor: Cursor::new(document),
            has_tag_directive: false,
            flow: 0,
            block: 0,
            outer: Vec::new(),
            key: None,
            is_key_allowed: true,
        }
    }

    const fn levels(&self) -> usize {
        self.outer.len() + self.flow
    }

    /// Moves over the next token. Returns false at the end, and where libyaml fails.
    fn next_token(&mut self) -> bool {
        self.skip_gap();
        if self.flow == 0 {
            self.leave_blocks(self.cursor.column() + 1);
        }
        let Some(byte) = self.cursor.peek(0) else {
            return false;
        };
        let is_directive = byte == b'%' && self.cursor.column() == 0;
        if is_directive || self.cursor.is_document_marker() {
            self.limit_document(is_directive);
            return true;
        }
        match byte {
            b'[' | b'{' => self.open_flow(),
            b']' | b'}' => self.close_flow(),
            b',' => self.separator(true),
            b'-' if self.cursor.ends_word(1) => self.block_entry(true),
            b'?' if self.flow > 0 || self.cursor.ends_word(1) => self.block_entry(self.flow == 0),
            b':' if self.flow > 0 || self.cursor.ends_word(1) => self.value(),
            b'*' | b'&' => self.anchor(),
            b'!' => self.tag(),
            b'|' | b'>' if self.flow == 0 => return self.block_scalar(),
            b'\'' | b'"' => return self.quoted_scalar(byte),
            b'|' | b'>' | b'%' | b'@' | b'`' => return false,
            _ => return self.plain_scalar(),
        }
        true
    }

    fn step(&mut self) {
        if self.cursor.advance() {
            // A key is on one line with its colon.
            self.key = None;
        }
    }

    fn skip_blanks(&mut self) {
        while self.cursor.is_blank(0) {
            self.step();
        }
    }

    fn skip_rest_of_line(&mut self) {
        while !self.cursor.ends_line(0) {
            self.step();
        }
    }

    fn skip_break(&mut self) {
        if self.cursor.is_break(0) {
            self.step();
        }
    }

    fn skip_comment(&mut self) {
        if self.cursor.peek(0) == Some(b'#') {
            self.skip_rest_of_line();
        }
    }

    /// Moves to the next token.
    fn skip_gap(&mut self) {
        loop {
            if self.cursor.column() == 0 && self.cursor.starts_with("\u{feff}".as_bytes()) {
                self.step();
            }
            self.skip_blanks();
            self.skip_comment();
            if !self.cursor.is_break(0) {
                return;
            }
            self.step();
            self.is_key_allowed |= self.flow == 0;
        }
    }

    /// Leaves the collections in block style whose content begins right of this column.
    fn leave_blocks(&mut self, column: usize) {
        while self.block > column {
            self.block = self.outer.pop().unwrap_or_default();
        }
    }

    /// Enters a collection in block style, unless it is open.
    fn enter_block(&mut self, column: usize) {
        if self.flow == 0 && self.block <= column {
            self.outer.push(self.block);
            self.block = column + 1;
        }
    }

    /// Notes that a key can begin here.
    fn begin_key(&mut self) {
        if self.flow == 0 && self.is_key_allowed {
            self.key = Some(self.cursor.column());
        }
        self.is_key_allowed = false;
    }

    /// Moves over a directive or a marker between documents.
    fn limit_document(&mut self, is_directive: bool) {
        if self.flow == 0 {
            self.leave_blocks(0);
        }
        self.key = None;
        self.is_key_allowed = false;
        if is_directive {
            self.has_tag_directive |= self.cursor.starts_with(TAG_DIRECTIVE);
            self.skip_rest_of_line();
            self.skip_break();
        } else {
            for _ in 0..3 {
                self.step();
            }
        }
    }

    fn open_flow(&mut self) {
        self.begin_key();
        self.flow += 1;
        self.is_key_allowed = true;
        self.step();
    }

    fn close_flow(&mut self) {
        self.separator(false);
        self.flow = self.flow.saturating_sub(1);
    }

    /// Moves over an indicator after which a key can begin or cannot.
    fn separator(&mut self, is_key_allowed: bool) {
        if self.flow == 0 {
            self.key = None;
        }
        self.is_key_allowed = is_key_allowed;
        self.step();
    }

    /// Moves over the indicator of an item or of a key.
    fn block_entry(&mut self, is_key_allowed: bool) {
        self.enter_block(self.cursor.column());
        self.separator(is_key_allowed);
    }

    /// Moves over the colon of a value.
    fn value(&mut self) {
        if self.flow == 0 {
            let column = self.cursor.column();
            let key = self.key.filter(|key| column.saturating_sub(*key) <= MAX_KEY);
            self.enter_block(key.unwrap_or(column));
            self.separator(key.is_none());
        } else {
            self.step();
        }
    }

    fn anchor(&mut self) {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        self.begin_key();
        self.step();
        while self.cursor.peek(0).is_some_and(is_of_name) {
            self.step();
        }
    }

    fn tag(&mut self) {
        self.begin_key();
        self.step();
        if self.cursor.peek(0) == Some(b'<') {
            while !self.cursor.ends_word(0) && self.cursor.peek(0) != Some(b'>') {
                self.step();
            }
        }
        let is_in_flow = self.flow > 0;
        while !(self.cursor.ends_word(0) || is_in_flow && self.cursor.peek(0) == Some(b',')) {
            self.step();
        }
    }

    fn quoted_scalar(&mut self, quote: u8) -> bool {
        self.begin_key();
        self.step();
        while let Some(byte) = self.cursor.peek(0) {
            let is_escape = match quote {
                b'"' => byte == b'\\',
                _ => self.cursor.starts_with(b"''"),
            };
            self.step();
            if is_escape {
                self.step();
            } else if byte == quote {
                return true;
            }
        }
        false
    }

    fn plain_scalar(&mut self) -> bool {
        self.begin_key();
        loop {
            if self.cursor.is_document_marker() || self.cursor.peek(0) == Some(b'#') {
                return true;
            }
            if !self.plain_word() {
                return false;
            }
            if !self.cursor.is_blank(0) && !self.cursor.is_break(0) {
                return true;
            }
            while self.cursor.is_blank(0) || self.cursor.is_break(0) {
                self.is_key_allowed |= self.cursor.is_break(0);
                self.step();
            }
            if self.flow == 0 && self.cursor.column() < self.block {
                return true;
            }
        }
    }

    /// Moves over a word of a plain scalar. Returns false where libyaml fails.
    fn plain_word(&mut self) -> bool {
        while !self.cursor.ends_word(0) {
            match self.cursor.peek(0) {
                Some(b':') if self.cursor.ends_word(1) => return true,
                Some(b':') if self.flow > 0 && is_flow_indicator(self.cursor.peek(1), b'?') => return false,
                byte if self.flow > 0 && is_flow_indicator(byte, b',') => return true,
                _ => self.step(),
            }
        }
        true
    }

    fn block_scalar(&mut self) -> bool {
        self.separator(true);
        let mut indent = 0;
        for _ in 0..2 {
            match self.cursor.peek(0) {
                Some(b'+' | b'-') => {}
                Some(digit @ b'1'..=b'9') => {
                    indent = self.block.saturating_sub(1) + usize::from(digit - b'0');
                }
                _ => break,
            }
            self.step();
        }
        self.skip_blanks();
        self.skip_comment();
        if !self.cursor.ends_line(0) {
            return false;
        }
        self.skip_break();
        let first = self.skip_blank_lines(indent);
        if indent == 0 {
            indent = first.max(self.block).max(1);
        }
        while self.cursor.column() == indent && self.cursor.peek(0).is_some() {
            self.skip_rest_of_line();
            self.skip_break();
            self.skip_blank_lines(indent);
        }
        true
    }

    /// Moves over the blank lines in a block scalar, and the indentation of the next line; 0 for one that is not known. Returns the highest
    /// column.
    fn skip_blank_lines(&mut self, indent: usize) -> usize {
        let mut highest = 0;
        loop {
            while (indent == 0 || self.cursor.column() < indent) && self.cursor.peek(0) == Some(b' ') {
                self.step();
            }
            highest = highest.max(self.cursor.column());
            if !self.cursor.is_break(0) {
                return highest;
            }
            self.step();
        }
    }
}

/// Whether a byte ends a plain scalar in flow style, or is another one.
fn is_flow_indicator(byte: Option<u8>, other: u8) -> bool {
    byte.is_some_and(|byte| byte == other || matches!(byte, b',' | b'[' | b']' | b'{' | b'}'))
}

#[cfg(test)]
mod tests;
