//! What a terminal shows after the bytes of a program: the cursor movements, the clearing and the texts of `sluice up`. Colours are
//! left out.

/// Rows that are kept; the terminals of these tests have not more.
const ROWS: usize = 50;

/// The letters on a terminal.
#[derive(Default)]
pub(crate) struct Picture {
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// Bytes of a letter that is not complete.
    bytes: Vec<u8>,
    /// Letters of a control sequence that is not complete.
    letters: Vec<char>,
}

impl Picture {
    /// Returns the lines without the spaces at their ends.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |index: usize| {
            let row = self.rows.get(index).map(Vec::as_slice).unwrap_or_default();
            row.iter().collect::<String>().trim_end().to_owned()
        };
        (0..ROWS).map(line).collect()
    }

    /// Shows what a program writes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let complete = match std::str::from_utf8(&self.bytes) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let complete: Vec<u8> = self.bytes.drain(..complete).collect();
        self.letters.extend(String::from_utf8(complete).unwrap().chars());
        while let Some(count) = self.step() {
            self.letters.drain(..count);
        }
    }

    /// Shows a letter or executes a control sequence. Returns its length; `None`: it is not complete.
    fn step(&mut self) -> Option<usize> {
        let first = *self.letters.first()?;
        match first {
            '\u{1b}' if *self.letters.get(1)? == '[' => {
                let rest = &self.letters[2..];
                let end = rest.iter().position(|letter| ('@'..='~').contains(letter))?;
                let parameters: String = rest[..end].iter().collect();
                let command = rest[end];
                self.control(&parameters, command);
                return Some(end + 3);
            }
            '\u{1b}' => return Some(2),
            '\r' => self.column = 0,
            '\n' => self.row += 1,
            letter if letter.is_control() => {}
            letter => self.put(letter),
        }
        Some(1)
    }

    fn control(&mut self, parameters: &str, command: char) {
        match command {
            'H' => {
                let mut numbers = parameters
                    .split(';')
                    .map(|number| number.parse::<usize>().unwrap_or(1));
                self.row = numbers.next().unwrap_or(1).saturating_sub(1);
                self.column = numbers.next().unwrap_or(1).saturating_sub(1);
            }
            // All, or all below the cursor.
            'J' => {
                let first = if parameters == "2" { 0 } else { self.row };
                self.rows.truncate(first);
            }
            'K' => {
                if let Some(row) = self.rows.get_mut(self.row) {
                    row.truncate(if parameters == "2" { 0 } else { self.column });
                }
            }
            'h' | 'l' if parameters == "?1049" => self.rows.clear(),
            _ => {}
        }
    }

    fn put(&mut self, letter: char) {
        if self.rows.len() <= self.row {
            self.rows.resize(self.row + 1, Vec::new());
        }
        let row = &mut self.rows[self.row];
        if row.len() <= self.column {
            row.resize(self.column + 1, ' ');
        }
        row[self.column] = letter;
        self.column += 1;
    }
}

#[test]
fn a_picture_has_what_was_written_last() {
    let mut picture = Picture::default();
    for bytes in ["\x1b[2;3Hab", "\x1b[", "2;4H", "c\x1b[31md\r\n\u{2026}"] {
        picture.write(bytes.as_bytes());
    }
    picture.write(&"\u{2026}".as_bytes()[..1]);
    assert_eq!(picture.lines()[..3], ["", "  acd", "…"]);
    picture.write(b"\x80\xa6\x1b[2;1H\x1b[J");
    assert_eq!(picture.lines()[..3], ["", "", ""]);
}
