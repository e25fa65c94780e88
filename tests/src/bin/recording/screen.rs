//! What a terminal shows after the texts of a program: letters, colours, cursor movements and scrolling.

use std::collections::VecDeque;

/// The look of a letter (ECMA-48, 8.3.117).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Style {
    /// 1 to 6: red, green, yellow, blue, magenta, cyan; 0: that of the text.
    pub(crate) colour: u8,
    /// Bold.
    pub(crate) bold: bool,
    /// Faint.
    pub(crate) faint: bool,
}

impl Style {
    /// Returns this style after the parameters of an SGR sequence; unknown ones have no effect.
    fn after(self, parameters: &str) -> Self {
        let numbers = parameters
            .split(';')
            .map(|number| number.parse::<u8>().unwrap_or(0));
        numbers.fold(self, |style, number| match number {
            0 => Self::default(),
            1 => Self { bold: true, ..style },
            2 => Self { faint: true, ..style },
            22 => Self {
                bold: false,
                faint: false,
                ..style
            },
            31..=36 => Self {
                colour: number - 30,
                ..style
            },
            39 => Self { colour: 0, ..style },
            _ => style,
        })
    }
}

/// A letter and its look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    /// The letter.
    pub(crate) letter: char,
    /// Its look.
    pub(crate) style: Style,
}

const BLANK: Cell = Cell {
    letter: ' ',
    style: Style {
        colour: 0,
        bold: false,
        faint: false,
    },
};

/// The cells of a row, without the blanks at its end.
pub(crate) type Row = Vec<Cell>;

/// The cells of a terminal of a fixed size.
pub(crate) struct Screen {
    columns: usize,
    rows: VecDeque<Row>,
    /// Row and column of the cursor; the column after the last one until the next letter is written.
    cursor: (usize, usize),
    style: Style,
    /// Letters of a control sequence that is not complete.
    letters: Vec<char>,
}

impl Screen {
    /// Creates an empty screen.
    pub(crate) fn new(columns: usize, rows: usize) -> Self {
        Self {
            columns,
            rows: vec![Row::new(); rows].into(),
            cursor: (0, 0),
            style: Style::default(),
            letters: Vec::new(),
        }
    }

    /// Returns all rows.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let trim = |row: &Row| {
            let end = row.iter().rposition(|cell| cell.letter != ' ');
            row[..end.map_or(0, |end| end + 1)].to_vec()
        };
        self.rows.iter().map(trim).collect()
    }

    /// Returns row and column of the cursor, from 0.
    pub(crate) fn cursor(&self) -> (usize, usize) {
        (self.cursor.0, self.cursor.1.min(self.columns - 1))
    }

    /// Shows what a program writes.
    pub(crate) fn write(&mut self, text: &str) {
        self.letters.extend(text.chars());
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
            '\r' => self.cursor.1 = 0,
            '\n' => self.feed(),
            letter if letter.is_control() => {}
            letter => self.put(letter),
        }
        Some(1)
    }

    fn control(&mut self, parameters: &str, command: char) {
        let (row, column) = self.cursor;
        match command {
            'm' => self.style = self.style.after(parameters),
            'A' => self.cursor.0 = row.saturating_sub(parameters.parse::<usize>().unwrap_or(1).max(1)),
            // The rest of the row, or all of it.
            'K' => self.rows[row].truncate(if parameters == "2" { 0 } else { column }),
            // The rest of the screen.
            'J' => {
                self.rows[row].truncate(column);
                for below in self.rows.iter_mut().skip(row + 1) {
                    below.clear();
                }
            }
            _ => {}
        }
    }

    /// Moves the cursor to the next row; at the end of the screen all rows move up.
    fn feed(&mut self) {
        if self.cursor.0 + 1 < self.rows.len() {
            self.cursor.0 += 1;
        } else {
            self.rows.pop_front();
            self.rows.push_back(Row::new());
        }
    }

    fn put(&mut self, letter: char) {
        if self.cursor.1 == self.columns {
            self.cursor.1 = 0;
            self.feed();
        }
        let (row, column) = self.cursor;
        let cells = &mut self.rows[row];
        if cells.len() <= column {
            cells.resize(column + 1, BLANK);
        }
        cells[column] = Cell {
            letter,
            style: self.style,
        };
        self.cursor.1 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(screen: &Screen) -> Vec<String> {
        let line = |row: Row| row.iter().map(|cell| cell.letter).collect();
        screen.rows().into_iter().map(line).collect()
    }

    #[test]
    fn a_screen_wraps_scrolls_and_draws_a_line_again() {
        let mut screen = Screen::new(4, 3);
        screen.write("abcdef\r\n");
        assert_eq!(lines(&screen), ["abcd", "ef", ""]);
        screen.write("| wait\r\u{1b}[Kx\r\n");
        assert_eq!(lines(&screen), ["| wa", "x", ""]);
        screen.write("one\u{1b}[1A\r\u{1b}");
        screen.write("[J");
        assert_eq!(
            (lines(&screen), screen.cursor()),
            (vec!["| wa".to_owned(), String::new(), String::new()], (1, 0))
        );
        screen.write("1234");
        assert_eq!(screen.cursor(), (1, 3), "the next letter begins a row");
    }

    #[test]
    fn letters_have_the_look_of_the_last_sequence() {
        let mut screen = Screen::new(10, 1);
        screen.write("\u{1b}[1;31ma\u{1b}[22mb\u{1b}[2;39mc\u{1b}[0md\u{1b}[?25le");
        let rows = screen.rows();
        let styles = rows[0].iter().map(|cell| cell.style);
        let style = |colour, bold, faint| Style { colour, bold, faint };
        assert_eq!(
            styles.collect::<Vec<_>>(),
            [
                style(1, true, false),
                style(1, false, false),
                style(0, false, true),
                Style::default(),
                Style::default()
            ]
        );
    }
}
