//! Tables in the form of `kubectl get`, cut to the width of the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{Console, Tone, printable};

/// Spaces between columns, as in `kubectl`.
const GAP: usize = 3;
/// The smallest width that a column is cut to.
const MIN_COLUMN: usize = 8;

/// A cell: one line of text, with its meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Creates a cell. Only the first line of the text is shown; an empty text is shown as `-`.
    #[must_use]
    pub fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        let line = text.as_ref().lines().next().unwrap_or_default();
        let line = printable(line).replace('\t', " ");
        let text = if line.is_empty() { "-".to_owned() } else { line };
        Self { text, tone }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Rows below headings.
#[derive(Clone, Debug, Default)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Creates a table without rows.
    #[must_use]
    pub fn new(headings: &[&'static str]) -> Self {
        Self {
            headings: headings.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty.
    pub fn push(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Formats the table. On a terminal, wide columns are cut until a row fits.
    #[must_use]
    pub(crate) fn render(&self, console: &Console) -> String {
        let mut text = String::new();
        let headings = self
            .headings
            .iter()
            .map(|heading| Cell::new(heading, Tone::Plain));
        let widths = self.widths(console.width());
        push_row(&mut text, &headings.collect::<Vec<_>>(), &widths, console);
        text + &self.render_rows(console)
    }

    /// Formats the rows without the headings.
    #[must_use]
    pub(crate) fn render_rows(&self, console: &Console) -> String {
        let widths = self.widths(console.width());
        let mut text = String::new();
        for row in &self.rows {
            push_row(&mut text, row, &widths, console);
        }
        text
    }

    /// Returns the width of each column. As long as a row is wider than the terminal, the widest column becomes smaller.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| heading.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        let Some(limit) = limit else { return widths };
        let gaps = GAP * widths.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(limit);
        while excess != 0 {
            let Some(widest) = widths.iter_mut().max() else {
                break;
            };
            if *widest <= MIN_COLUMN {
                break;
            }
            *widest -= 1;
            excess -= 1;
        }
        widths
    }
}

fn push_row(text: &mut String, row: &[Cell], widths: &[usize], console: &Console) {
    let last = widths.len().saturating_sub(1);
    for (index, width) in widths.iter().enumerate() {
        let cell = row.get(index).cloned().unwrap_or_default();
        let shown = cut(&cell.text, *width);
        let padding = width.saturating_sub(shown.width());
        text.push_str(&console.paint(cell.tone, &shown));
        if index != last {
            text.extend(std::iter::repeat_n(' ', padding + GAP));
        }
    }
    text.push('\n');
}

/// Cuts a text to a number of columns; the last one is `…` if something is missing.
#[must_use]
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut shown = String::new();
    for letter in text.chars() {
        let columns = letter.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left -= columns;
        shown.push(letter);
    }
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn console(width: Option<usize>) -> Console {
        Console {
            width,
            ..Console::plain()
        }
    }

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "READY", "STATUS"]);
        table.push(vec!["app".into(), "True".into(), "Applied\nsecond line".into()]);
        table.push(vec![
            "network-of-the-team".into(),
            "False".into(),
            Cell::new("", Tone::Muted),
        ]);
        table
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        assert_eq!(
            table().render(&console(None)),
            "NAME                  READY   STATUS\n\
             app                   True    Applied\n\
             network-of-the-team   False   -\n"
        );
    }

    #[test]
    fn the_widest_column_is_cut_to_the_terminal() {
        assert_eq!(
            table().render(&console(Some(30))),
            "NAME           READY   STATUS\n\
             app            True    Applied\n\
             network-of-…   False   -\n"
        );
    }

    proptest! {
        #[test]
        fn a_cut_text_is_not_wider_than_its_column(text in "\\PC{0,40}", width in 1usize..20) {
            prop_assert!(cut(&text, width).width() <= width);
        }
    }
}
