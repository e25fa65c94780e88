//! Tables in the form of `kubectl get`, cut to the width of the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{Console, Tone, printable};

/// Spaces between columns, as in `kubectl`.
const GAP: usize = 3;
/// The smallest width that a column is cut to.
const MIN_COLUMN: usize = 8;
/// The width that a column keeps as long as another one can be hidden.
const MIN_READABLE_COLUMN: usize = 12;
/// The text of an empty cell.
const EMPTY: &str = "-";

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
        let text = if line.is_empty() { EMPTY.to_owned() } else { line };
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
    /// Columns that a narrow terminal does not show; the first one is hidden first.
    optional: &'static [&'static str],
}

/// A column that is shown.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// Its index in a row of the table.
    index: usize,
    heading: &'static str,
    /// Its width in columns of the terminal.
    width: usize,
}

impl Table {
    /// Creates a table without rows.
    #[must_use]
    pub fn new(headings: &[&'static str]) -> Self {
        Self {
            headings: headings.to_vec(),
            rows: Vec::new(),
            optional: &[],
        }
    }

    /// Sets the columns that are hidden on a terminal that is too narrow for all: those without a text, then these, the first one first.
    #[must_use]
    pub(crate) fn optional_columns(mut self, headings: &'static [&'static str]) -> Self {
        self.optional = headings;
        self
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
        let columns = self.columns(console.width());
        let mut text = String::new();
        let headings: Vec<Cell> = self.headings.iter().map(|heading| (*heading).into()).collect();
        push_row(&mut text, &headings, &columns, console);
        self.push_rows(&mut text, &columns, console);
        text
    }

    /// Formats the rows without the headings.
    #[must_use]
    pub(crate) fn render_rows(&self, console: &Console) -> String {
        let mut text = String::new();
        self.push_rows(&mut text, &self.columns(console.width()), console);
        text
    }

    fn push_rows(&self, text: &mut String, columns: &[Column], console: &Console) {
        for row in &self.rows {
            push_row(text, row, columns, console);
        }
    }

    /// Returns the columns that are shown. As long as a row is wider than the terminal, the widest column becomes smaller.
    fn columns(&self, limit: Option<usize>) -> Vec<Column> {
        let all = self.full_columns();
        let Some(limit) = limit else { return all };
        let mut columns = self.hide_optional(all, limit);
        let mut excess = row_width(&columns, usize::MAX).saturating_sub(limit);
        while excess != 0 {
            let Some(widest) = columns.iter_mut().max_by_key(|column| column.width) else {
                break;
            };
            if widest.width <= MIN_COLUMN {
                break;
            }
            widest.width -= 1;
            excess -= 1;
        }
        columns
    }

    /// Returns all columns, each as wide as its widest cell.
    fn full_columns(&self) -> Vec<Column> {
        let widest = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            cells.map(|cell| cell.text.width()).max().unwrap_or_default()
        };
        let headings = self.headings.iter().enumerate();
        headings
            .map(|(index, heading)| Column {
                index,
                heading,
                width: heading.width().max(widest(index)),
            })
            .collect()
    }

    /// Hides columns until the others are readable in a row of this width.
    fn hide_optional(&self, mut columns: Vec<Column>, limit: usize) -> Vec<Column> {
        if self.optional.is_empty() {
            return columns;
        }
        if row_width(&columns, usize::MAX) > limit {
            columns.retain(|column| !self.is_empty_column(column.index));
        }
        for heading in self.optional {
            if row_width(&columns, MIN_READABLE_COLUMN) <= limit {
                break;
            }
            columns.retain(|column| column.heading != *heading);
        }
        columns
    }

    fn is_empty_column(&self, index: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(index));
        cells.all(|cell| cell.text == EMPTY)
    }
}

/// Returns the width of a row whose columns are cut to at most `most`.
fn row_width(columns: &[Column], most: usize) -> usize {
    let gaps = GAP * columns.len().saturating_sub(1);
    let widths = columns.iter().map(|column| column.width.min(most));
    widths.sum::<usize>() + gaps
}

fn push_row(text: &mut String, row: &[Cell], columns: &[Column], console: &Console) {
    let last = columns.len().saturating_sub(1);
    for (index, column) in columns.iter().enumerate() {
        let cell = row.get(column.index).cloned().unwrap_or_default();
        let shown = cut(&cell.text, column.width);
        let padding = column.width.saturating_sub(shown.width());
        text.push_str(&console.paint(cell.tone, &shown));
        if index != last {
            text.extend(std::iter::repeat_n(' ', padding + GAP));
        }
    }
    // The last cells of a row may be missing.
    text.truncate(text.trim_end_matches(' ').len());
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
            table().render(&Console::of_width(None)),
            "NAME                  READY   STATUS\n\
             app                   True    Applied\n\
             network-of-the-team   False   -\n"
        );
    }

    #[test]
    fn a_short_row_has_no_spaces_at_its_end() {
        let mut table = Table::new(&["COMPONENT", "VERSION", "IMAGE"]);
        table.push(vec!["client".into(), "0.1.0".into()]);
        assert_eq!(
            table.render(&Console::of_width(None)),
            "COMPONENT   VERSION   IMAGE\nclient      0.1.0\n"
        );
    }

    #[test]
    fn the_widest_column_is_cut_to_the_terminal() {
        assert_eq!(
            table().render(&Console::of_width(Some(30))),
            "NAME           READY   STATUS\n\
             app            True    Applied\n\
             network-of-…   False   -\n"
        );
    }

    #[test]
    fn a_narrow_terminal_leaves_columns_out_before_it_cuts_the_others() {
        let mut table = Table::new(&["RUN", "ACTION", "REVISION", "SUBJECT", "APPROVED BY"])
            .optional_columns(&["ACTION"]);
        let revision = "main@sha1:b8e362c206";
        table.push(vec![
            "7".into(),
            "PlanAndApply".into(),
            revision.into(),
            "Add a bucket".into(),
            "".into(),
        ]);
        let rendered = |width| table.render(&Console::of_width(Some(width)));
        // A whole row has 70 columns; one without the empty column, whose revision is cut to 12, has 48.
        assert!(rendered(70).contains("APPROVED BY"));
        assert_eq!(
            rendered(69),
            "RUN   ACTION         REVISION               SUBJECT\n\
             7     PlanAndApply   main@sha1:b8e362c206   Add a bucket\n"
        );
        assert_eq!(
            rendered(47),
            "RUN   REVISION               SUBJECT\n\
             7     main@sha1:b8e362c206   Add a bucket\n"
        );
        assert_eq!(
            rendered(33),
            "RUN   REVISION       SUBJECT\n\
             7     main@sha1:b…   Add a bucket\n"
        );
        assert!(table.render(&Console::of_width(None)).contains("APPROVED BY"));
    }

    proptest! {
        #[test]
        fn a_cut_text_is_not_wider_than_its_column(text in "\\PC{0,40}", width in 1usize..20) {
            prop_assert!(cut(&text, width).width() <= width);
        }
    }
}
