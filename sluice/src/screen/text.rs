//! Texts in columns: cut, padded or wrapped to a width. Pure.

use ratatui::style::{Color, Modifier, Style};
use sluice_cli::output::{Tone, printable};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns the first line of a text in exactly `width` columns. The last column is `…` if something is missing.
pub(super) fn fit(text: &str, width: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = printable(line).replace('\t', " ");
    let mut fitted = if line.width() <= width {
        line
    } else {
        let mut start = take(&line, width.saturating_sub(1));
        if width != 0 {
            start.push('…');
        }
        start
    };
    let missing = width.saturating_sub(fitted.width());
    fitted.extend(std::iter::repeat_n(' ', missing));
    fitted
}

/// Returns a path that is not wider than `width`: its end, since that tells more than its start.
pub(super) fn path_end(path: &str, width: usize) -> String {
    let path = printable(path);
    if path.width() <= width {
        return path;
    }
    let mut kept: Vec<char> = Vec::new();
    let mut left = width.saturating_sub(1);
    for letter in path.chars().rev() {
        let columns = letter.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left -= columns;
        kept.push(letter);
    }
    kept.push('…');
    kept.into_iter().rev().collect()
}

/// Splits a line into rows of at most `width` columns. An empty line is one row.
pub(super) fn wrap(line: &str, width: usize) -> Vec<String> {
    let width = width.max(4); // a letter has at most three columns
    let mut rows = Vec::new();
    let mut rest = line;
    loop {
        let row = take(rest, width);
        rest = &rest[row.len()..];
        rows.push(row);
        if rest.is_empty() {
            return rows;
        }
    }
}

/// Returns the start of a text with at most `width` columns.
fn take(text: &str, width: usize) -> String {
    let mut left = width;
    let mut taken = String::new();
    for letter in text.chars() {
        let columns = letter.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left -= columns;
        taken.push(letter);
    }
    taken
}

/// Returns the style for a meaning. Without colours, what needs attention is bold; the text says the same.
pub(super) fn style(tone: Tone, colours: bool) -> Style {
    let style = Style::new();
    match tone {
        Tone::Muted => style.add_modifier(Modifier::DIM),
        Tone::Good if colours => style.fg(Color::Green),
        Tone::Bad if colours => style.fg(Color::Red),
        Tone::Attention if colours => style.fg(Color::Yellow),
        Tone::Plain | Tone::Good => style,
        Tone::Heading | Tone::Bad | Tone::Attention => style.add_modifier(Modifier::BOLD),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_fills_its_columns() {
        for (text, fitted) in [
            ("ab", "ab   "),
            ("abcdef", "abcd…"),
            ("a\x1b[31m\nb", "a[31m"),
            ("", "     "),
        ] {
            assert_eq!(fit(text, 5), fitted);
        }
        assert_eq!(path_end("/var/lib/sluice.log", 8), "…ice.log");
        assert_eq!(wrap("abcdefghi", 4), ["abcd", "efgh", "i"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn without_colours_there_are_none() {
        for tone in [Tone::Good, Tone::Bad, Tone::Attention, Tone::Muted, Tone::Heading] {
            let style = style(tone, false);
            assert_eq!((style.fg, style.bg), (None, None), "{tone:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_wider_than_its_columns(text in "[a-c漢é\u{301} ]{0,40}", width in 0usize..20) {
            prop_assert_eq!(fit(&text, width).width(), width);
            prop_assert!(path_end(&text, width + 1).width() <= width + 1);
            let rows = wrap(&text, width);
            prop_assert!(rows.iter().all(|row| row.width() <= width.max(4)));
            prop_assert_eq!(rows.concat(), text);
        }
    }
}
