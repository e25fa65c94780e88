//! Lines that fit a terminal: cut at their end, or broken between words.

use unicode_width::UnicodeWidthStr as _;

use super::{Console, Tone, cut, printable};

/// The fewest columns of a text that is broken. A narrower terminal breaks the lines itself.
const MIN_TEXT: usize = 20;

impl Console {
    /// Formats the parts of one line. On a terminal that is too narrow, its end is cut.
    #[must_use]
    pub(crate) fn line<T: AsRef<str>>(&self, parts: &[(Tone, T)]) -> String {
        let parts: Vec<(Tone, String)> = parts
            .iter()
            .map(|(tone, text)| (*tone, printable(text.as_ref())))
            .collect();
        let total: usize = parts.iter().map(|(_, text)| text.width()).sum();
        let mut left = self.width().filter(|width| total > *width).unwrap_or(usize::MAX);
        let mut line = String::new();
        for (tone, text) in parts {
            if text.width() < left {
                left -= text.width();
                line.push_str(&self.paint(tone, &text));
            } else {
                // Something is missing even if this part fits: a part behind it, or its own end.
                line.push_str(&self.paint(tone, &cut(&format!("{text}…"), left)));
                break;
            }
        }
        line
    }

    /// Formats a text after the beginning of its line, with a newline. On a terminal that is too narrow, the text is broken between words,
    /// and its other lines begin `indent` columns from the left.
    #[must_use]
    pub(crate) fn block(&self, front: (Tone, &str), indent: usize, (tone, text): (Tone, &str)) -> String {
        let (front_tone, front) = (front.0, printable(front.1));
        let (text, width) = (printable(text), self.width().unwrap_or(usize::MAX));
        let first = width.saturating_sub(front.width());
        let next = width.saturating_sub(indent);
        let lines = if first.min(next) < MIN_TEXT {
            vec![text]
        } else {
            wrap(&text, first, next)
        };
        let lines: Vec<String> = lines.iter().map(|line| self.paint(tone, line)).collect();
        let end = format!("\n{}", " ".repeat(indent));
        format!("{}{}\n", self.paint(front_tone, &front), lines.join(&end))
    }
}

/// Breaks a text between words: the first line has at most `first` columns, each other one at most `next`. A longer word is not broken.
fn wrap(text: &str, first: usize, next: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line: Option<String> = None;
    for word in text.split(' ') {
        let limit = if lines.is_empty() { first } else { next };
        line = Some(match line {
            None => word.to_owned(),
            Some(begun) if begun.width() + 1 + word.width() <= limit => format!("{begun} {word}"),
            Some(full) => {
                lines.push(full);
                word.to_owned()
            }
        });
    }
    lines.extend(line);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_of_a_line_is_cut_and_the_cut_is_visible() {
        let parts = [
            (Tone::Plain, "├─ app"),
            (Tone::Plain, "  "),
            (Tone::Good, "Ready"),
        ];
        let line = |width| Console::of_width(width).line(&parts);
        assert_eq!(line(None), "├─ app  Ready");
        assert_eq!(line(Some(13)), "├─ app  Ready");
        assert_eq!(line(Some(12)), "├─ app  Rea…");
        assert_eq!(line(Some(8)), "├─ app …");
        assert_eq!(line(Some(6)), "├─ ap…");
    }

    #[test]
    fn a_text_is_broken_between_words() {
        let text = "the plan waits for an approval";
        let block =
            |width| Console::of_width(width).block((Tone::Plain, "  Ready  "), 4, (Tone::Plain, text));
        assert_eq!(block(None), "  Ready  the plan waits for an approval\n");
        assert_eq!(block(Some(39)), "  Ready  the plan waits for an approval\n");
        assert_eq!(block(Some(30)), "  Ready  the plan waits for an\n    approval\n");
        assert_eq!(
            block(Some(20)),
            "  Ready  the plan waits for an approval\n",
            "the terminal breaks it"
        );
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(parts in prop::collection::vec("[a-zé├ ]{0,12}", 0..5), width in 1usize..40) {
            let parts: Vec<_> = parts.iter().map(|part| (Tone::Plain, part)).collect();
            prop_assert!(Console::of_width(Some(width)).line(&parts).width() <= width);
        }

        #[test]
        fn wrapping_changes_only_spaces(text in "[a-z ]{0,80}", first in 1usize..30, next in 1usize..30) {
            prop_assert_eq!(wrap(&text, first, next).join(" "), text);
        }
    }
}
