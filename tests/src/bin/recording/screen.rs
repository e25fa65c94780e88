//! What a terminal shows after the texts of a program: letters and their looks.

use vt100::{Color, Parser};

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
    fn of(cell: &vt100::Cell) -> Self {
        Self {
            colour: match cell.fgcolor() {
                Color::Idx(number @ 1..=6) => number,
                _ => 0,
            },
            bold: cell.bold(),
            faint: cell.dim(),
        }
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

/// The cells of a row, without the blanks at its end.
pub(crate) type Row = Vec<Cell>;

/// A terminal of a fixed size.
pub(crate) struct Screen(Parser);

impl Screen {
    /// Creates an empty screen.
    pub(crate) fn new(columns: u16, rows: u16) -> Self {
        Self(Parser::new(rows, columns, 0))
    }

    /// Shows what a program writes.
    pub(crate) fn write(&mut self, text: &str) {
        self.0.process(text.as_bytes());
    }

    /// Returns all rows.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let (rows, columns) = self.0.screen().size();
        (0..rows).map(|row| self.row(row, columns)).collect()
    }

    fn row(&self, row: u16, columns: u16) -> Row {
        let cells = (0..columns).filter_map(|column| self.0.screen().cell(row, column));
        let mut cells: Row = cells
            .map(|cell| Cell {
                letter: cell.contents().chars().next().unwrap_or(' '),
                style: Style::of(cell),
            })
            .collect();
        let end = cells.iter().rposition(|cell| cell.letter != ' ');
        cells.truncate(end.map_or(0, |end| end + 1));
        cells
    }

    /// Returns row and column of the cursor, from 0. After the last letter of a row it is on that letter.
    pub(crate) fn cursor(&self) -> (usize, usize) {
        let (row, column) = self.0.screen().cursor_position();
        let (_, columns) = self.0.screen().size();
        (row.into(), column.min(columns.saturating_sub(1)).into())
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
