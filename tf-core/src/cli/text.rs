//! What the CLI prints, made fit for a status (pure): variable values masked; and texts of a bounded length.

/// Longest text that a status carries, as upstream's conditions.
pub const TEXT_LIMIT: usize = 20_000;

const MARKER: &str = "on generated.auto.tfvars.json line";

/// Without colours, and with the values of generated variables masked that an error quotes. It is bounded only when it is
/// shown: of a value that was cut in two, nobody would know that it is sensitive.
#[must_use]
pub fn presentable(text: &str) -> String {
    masked(&plain(text)).trim().to_owned()
}

/// Without colours and boxes: `state push` and a crash know no `-no-color`.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        rest = after.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ';');
        rest = rest
            .strip_prefix(|letter: char| letter.is_ascii_alphabetic())
            .unwrap_or(rest);
    }
    out.push_str(rest);
    let open = |line: &str| {
        line.strip_prefix('\u{2502}')
            .map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned())
    };
    let edge = |line: &&str| !matches!(line.trim(), "\u{2577}" | "\u{2575}");
    out.lines()
        .filter(edge)
        .map(|line| open(line).unwrap_or_else(|| line.to_owned()))
        .collect::<Vec<_>>()
        .join("\n")
}

/// At most `limit` characters, with `...` where something was cut.
#[must_use]
pub fn bounded(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}...", &text[..at]),
    }
}

/// The CLI quotes the offending line of `generated.auto.tfvars.json`, which may hold secrets: their values become `***`.
#[must_use]
pub fn masked(text: &str) -> String {
    let mut quoting = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.contains(MARKER) {
            quoting = true;
            lines.push(line.to_owned());
        } else if quoting && !line.trim_matches(['\u{2502}', ' ', '\t']).is_empty() {
            lines.push(masked_line(line));
        } else {
            quoting = false;
            lines.push(line.to_owned());
        }
    }
    lines.join("\n")
}

/// One quoted line: `<number>: <source>`. Names stay, values go; what is not understood goes whole.
fn masked_line(line: &str) -> String {
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
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_on_the_quoted_line_are_masked() {
        let text = "Error: Invalid value for input variable\n\n  on generated.auto.tfvars.json line 1:\n   \
                    1: {\"n\":\"secretvalue\",\"other\":{\"a\":\"zzz\"}}\n\nThe given value is not suitable";
        assert_eq!(
            masked(text),
            "Error: Invalid value for input variable\n\n  on generated.auto.tfvars.json line 1:\n   \
             1: {\"n\":\"***\",\"other\":\"***\"}\n\nThe given value is not suitable"
        );
    }

    #[test]
    fn one_member_per_line_and_broken_lines_are_masked() {
        let text = "  on generated.auto.tfvars.json line 2:\n   2:   \"n\": \"secret: value\",\n\nrest";
        assert!(masked(text).contains("2:   \"n\": \"***\""), "{}", masked(text));
        let text =
            "on generated.auto.tfvars.json line 2:\n   2:   \"n\": [\"secretvalue\n   3: more secretvalue";
        assert!(!masked(text).contains("secretvalue"), "{}", masked(text));
    }

    #[test]
    fn colours_and_boxes_go() {
        let text = "\u{1b}[31m\u{2577}\u{1b}[0m\n\u{1b}[31m\u{2502}\u{1b}[0m \u{1b}[0m\u{1b}[1mError: \u{1b}[0mno\n\u{1b}[31m\u{2575}\u{1b}[0m";
        assert_eq!(plain(text), "Error: no");
        assert_eq!(plain("\u{1b}["), "");
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(bounded("äöü", 2), "äö...");
        assert_eq!(bounded("äöü", 3), "äöü");
    }

    proptest! {
        #[test]
        fn a_quoted_value_never_survives(value in "[a-zA-Z0-9 \"\\\\{}:,]{12,40}") {
            let json = serde_json::json!({ "name": value }).to_string();
            let text = format!("  on generated.auto.tfvars.json line 1:\n   1: {json}\n\nrest");
            prop_assert!(!masked(&text).contains(&value));
        }
    }
}
