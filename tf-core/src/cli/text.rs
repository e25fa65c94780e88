//! Formatting of the output of the CLI for a status.

use std::borrow::Cow;

/// Length limit of texts in a status, as in conditions of tofu-controller.
pub const TEXT_LIMIT: usize = 20_000;

const MARKER: &str = "on generated.auto.tfvars.json line";

/// Strips the formatting and masks the values of variables. Truncation must come later: a truncated sensitive value could not be
/// found for redaction.
#[must_use]
pub fn strip_and_mask(text: &str) -> String {
    mask_variables(&strip_formatting(text)).trim().to_owned()
}

/// Strips colours and boxes: `state push` and crashes ignore `-no-color`.
#[must_use]
pub fn strip_formatting(text: &str) -> String {
    let out = strip_colours(text);
    let without_border = |line: &str| {
        line.strip_prefix('\u{2502}')
            .map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned())
    };
    let is_content = |line: &&str| !matches!(line.trim(), "\u{2577}" | "\u{2575}");
    out.lines()
        .filter(is_content)
        .map(|line| without_border(line).unwrap_or_else(|| line.to_owned()))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Strips colours.
#[must_use]
pub fn strip_colours(text: &str) -> Cow<'_, str> {
    const START: &str = "\u{1b}[";
    if !text.contains(START) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(START) {
        out.push_str(before);
        rest = after.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ';');
        rest = rest
            .strip_prefix(|letter: char| letter.is_ascii_alphabetic())
            .unwrap_or(rest);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Truncates a text to `limit` characters and appends `...`.
#[must_use]
pub fn truncate(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}...", &text[..at]),
    }
}

/// Replaces values by `***` in quoted lines of `generated.auto.tfvars.json`, which may be sensitive.
#[must_use]
pub fn mask_variables(text: &str) -> String {
    let mut mask = VariableMask::default();
    let lines: Vec<_> = text.lines().map(|line| mask.mask(line)).collect();
    lines.join("\n")
}

/// The replacement of values in quoted lines of `generated.auto.tfvars.json`, line by line.
#[derive(Clone, Copy, Debug, Default)]
pub struct VariableMask {
    /// The lines up to the next empty one quote the file.
    quotes: bool,
}

impl VariableMask {
    /// Returns the next line of a text without values of that file.
    pub fn mask<'l>(&mut self, line: &'l str) -> Cow<'l, str> {
        if line.contains(MARKER) {
            self.quotes = true;
            return Cow::Borrowed(line);
        }
        if self.quotes && !line.trim_matches(['\u{2502}', ' ', '\t']).is_empty() {
            return Cow::Owned(mask_line(line));
        }
        self.quotes = false;
        Cow::Borrowed(line)
    }
}

/// Masks a quoted line `<number>: <source>` except for names of variables, or all of an unknown line.
fn mask_line(line: &str) -> String {
    let Some((number, source)) = line.split_once(':') else {
        return "***".to_owned();
    };
    let source = source.trim();
    if let Ok(serde_json::Value::Object(members)) = serde_json::from_str(source) {
        let names: Vec<String> = members
            .keys()
            .map(|name| format!("{}:\"***\"", quoted(name)))
            .collect();
        return format!("{number}: {{{}}}", names.join(","));
    }
    let member = format!("{{{}}}", source.trim_end_matches(','));
    match serde_json::from_str(&member) {
        Ok(serde_json::Value::Object(members)) if members.len() == 1 => {
            let name = members.keys().next().map(String::as_str).unwrap_or_default();
            format!("{number}:   {}: \"***\"", quoted(name))
        }
        _ => format!("{number}: ***"),
    }
}

fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_on_the_quoted_line_are_masked() {
        let text = "Error: Invalid value for input variable\n\n  on generated.auto.tfvars.json line 1:\n   \
                    1: {\"n\":\"secretvalue\",\"other\":{\"a\":\"zzz\"}}\n\nThe given value is not suitable";
        assert_eq!(
            mask_variables(text),
            "Error: Invalid value for input variable\n\n  on generated.auto.tfvars.json line 1:\n   \
             1: {\"n\":\"***\",\"other\":\"***\"}\n\nThe given value is not suitable"
        );
    }

    #[test]
    fn one_member_per_line_and_broken_lines_are_masked() {
        let text = "  on generated.auto.tfvars.json line 2:\n   2:   \"n\": \"secret: value\",\n\nrest";
        assert!(
            mask_variables(text).contains("2:   \"n\": \"***\""),
            "{}",
            mask_variables(text)
        );
        let text =
            "on generated.auto.tfvars.json line 2:\n   2:   \"n\": [\"secretvalue\n   3: more secretvalue";
        assert!(
            !mask_variables(text).contains("secretvalue"),
            "{}",
            mask_variables(text)
        );
    }

    #[test]
    fn colours_and_boxes_are_removed() {
        let text = "\u{1b}[31m\u{2577}\u{1b}[0m\n\u{1b}[31m\u{2502}\u{1b}[0m \u{1b}[0m\u{1b}[1mError: \u{1b}[0mno\n\u{1b}[31m\u{2575}\u{1b}[0m";
        assert_eq!(strip_formatting(text), "Error: no");
        assert_eq!(strip_formatting("\u{1b}["), "");
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(truncate("äöü", 2), "äö...");
        assert_eq!(truncate("äöü", 3), "äöü");
    }

    proptest! {
        #[test]
        fn a_quoted_value_never_survives(value in "[a-zA-Z0-9 \"\\\\{}:,]{12,40}") {
            let json = serde_json::json!({ "name": value }).to_string();
            let text = format!("  on generated.auto.tfvars.json line 1:\n   1: {json}\n\nrest");
            prop_assert!(!mask_variables(&text).contains(&value));
        }
    }
}
