//! Strings.

use gotmpl::Value;

use super::args::TextBuilder;
use super::{Args, Fault, Table};
use crate::template::value::{display, quoted, string};

/// Functions by name.
pub(super) const TABLE: Table = &[
    ("abbrev", |args| {
        args.exactly(2)?;
        Ok(string(abbreviate(args.text(1)?, 0, args.int(0)?)))
    }),
    ("abbrevboth", |args| {
        args.exactly(3)?;
        Ok(string(abbreviate(args.text(2)?, args.int(0)?, args.int(1)?)))
    }),
    ("trunc", trunc),
    ("trim", |args| {
        one(args, |text| text.trim_matches(is_space).to_owned())
    }),
    ("upper", |args| one(args, upper)),
    ("lower", |args| one(args, lower)),
    ("title", |args| one(args, title)),
    ("untitle", |args| {
        one(args, |text| {
            first_of_words(text, |first| first.to_lowercase().next().unwrap_or(first))
        })
    }),
    ("substr", substr),
    ("repeat", repeat),
    ("trimall", |args| two(args, trim_all)),
    ("trimAll", |args| two(args, trim_all)),
    ("trimSuffix", |args| {
        two(args, |end, text| {
            text.strip_suffix(end).unwrap_or(text).to_owned()
        })
    }),
    ("trimPrefix", |args| {
        two(args, |start, text| {
            text.strip_prefix(start).unwrap_or(text).to_owned()
        })
    }),
    ("nospace", |args| {
        one(args, |text| text.chars().filter(|c| !is_space(*c)).collect())
    }),
    ("contains", |args| test(args, |part, text| text.contains(part))),
    ("hasPrefix", |args| {
        test(args, |part, text| text.starts_with(part))
    }),
    ("hasSuffix", |args| test(args, |part, text| text.ends_with(part))),
    ("quote", |args| quote(args, quoted)),
    ("squote", |args| quote(args, |text| format!("'{text}'"))),
    ("cat", cat),
    ("indent", |args| indent(args, "")),
    ("nindent", |args| indent(args, "\n")),
    ("replace", replace),
    ("plural", |args| {
        args.exactly(3)?;
        Ok(string(args.text(usize::from(args.int(2)? != 1))?))
    }),
    ("toString", |args| {
        args.exactly(1)?;
        Ok(string(display(args.value(0)?)))
    }),
    ("fail", |args| {
        Err(Fault::new(args.text(0)?.chars().take(200).collect::<String>()))
    }),
    ("hello", |args| {
        args.exactly(0)?;
        Ok(string("Hello!"))
    }),
];

/// Applies a function to the only argument.
pub(super) fn one(args: &Args<'_>, with: fn(&str) -> String) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(string(with(args.text(0)?)))
}

fn two(args: &Args<'_>, with: fn(&str, &str) -> String) -> Result<Value, Fault> {
    args.exactly(2)?;
    Ok(string(with(args.text(0)?, args.text(1)?)))
}

fn test(args: &Args<'_>, with: fn(&str, &str) -> bool) -> Result<Value, Fault> {
    args.exactly(2)?;
    Ok(Value::Bool(with(args.text(0)?, args.text(1)?)))
}

/// Go's `unicode.IsSpace`.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace()
}

fn trim_all(set: &str, text: &str) -> String {
    text.trim_matches(|c| set.contains(c)).to_owned()
}

/// As in Go, each character maps to one character.
fn upper(text: &str) -> String {
    text.chars().map(|c| simple(c, c.to_uppercase())).collect()
}

fn lower(text: &str) -> String {
    text.chars().map(|c| simple(c, c.to_lowercase())).collect()
}

/// Returns the mapped character, or the character itself if the mapping has several.
pub(super) fn simple(character: char, mut mapped: impl ExactSizeIterator<Item = char>) -> char {
    if mapped.len() == 1 {
        return mapped.next().unwrap_or(character);
    }
    character
}

/// Go's `strings.Title`: a word begins after a character that is not a letter, digit or underscore; beyond ASCII, after a space.
fn title(text: &str) -> String {
    let mut inside = false;
    text.chars()
        .map(|character| {
            let now = if inside {
                character
            } else {
                simple(character, character.to_uppercase())
            };
            inside = if character.is_ascii() {
                character.is_ascii_alphanumeric() || character == '_'
            } else {
                !is_space(character)
            };
            now
        })
        .collect()
}

fn first_of_words(text: &str, with: fn(char) -> char) -> String {
    let mut start = true;
    text.chars()
        .map(|character| {
            let now = if start { with(character) } else { character };
            start = is_space(character);
            now
        })
        .collect()
}

/// Returns the text between two byte positions; partial characters are replaced.
fn between(text: &str, start: usize, end: usize) -> String {
    let bytes = text.as_bytes().get(start..end).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

fn trunc(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(2)?;
    let (count, text) = (args.int(0)?, args.text(1)?);
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    Ok(string(match count {
        _ if size >= text.len() => text.to_owned(),
        0.. => between(text, 0, size),
        _ => between(text, text.len() - size, text.len()),
    }))
}

fn substr(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(3)?;
    let (start, end, text) = (args.int(0)?, args.int(1)?, args.text(2)?);
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let (start, end) = match (start, end) {
        (..0, end) => (0, end),
        (start, end) if end < 0 || end > length => (start, length),
        both => both,
    };
    let outside = || Fault::new("the bounds are outside of the text");
    let start = usize::try_from(start).map_err(|_| outside())?;
    let end = usize::try_from(end).map_err(|_| outside())?;
    if start > end || end > text.len() {
        return Err(outside());
    }
    Ok(string(between(text, start, end)))
}

fn repeat(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(2)?;
    let times = usize::try_from(args.int(0)?).map_err(|_| Fault::new("negative count"))?;
    let mut out = TextBuilder::default();
    out.push_times(args.text(1)?, times)?;
    Ok(out.finish())
}

fn quote(args: &Args<'_>, with: fn(&str) -> String) -> Result<Value, Fault> {
    let present = args.all().iter().filter(|value| !matches!(value, Value::Nil));
    let mut out = TextBuilder::default();
    for (index, value) in present.enumerate() {
        out.push(if index > 0 { " " } else { "" })?;
        out.push(&with(&display(value)))?;
    }
    Ok(out.finish())
}

fn cat(args: &Args<'_>) -> Result<Value, Fault> {
    let present = args.all().iter().filter(|value| !matches!(value, Value::Nil));
    let mut out = TextBuilder::default();
    for (index, value) in present.enumerate() {
        out.push(if index > 0 { " " } else { "" })?;
        out.push(&display(value))?;
    }
    Ok(out.finish())
}

fn indent(args: &Args<'_>, before: &str) -> Result<Value, Fault> {
    args.exactly(2)?;
    let spaces = usize::try_from(args.int(0)?).map_err(|_| Fault::new("negative count"))?;
    let mut out = TextBuilder::default();
    out.push(before)?;
    for (index, line) in args.text(1)?.split('\n').enumerate() {
        out.push(if index > 0 { "\n" } else { "" })?;
        out.push_times(" ", spaces)?;
        out.push(line)?;
    }
    Ok(out.finish())
}

fn replace(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(3)?;
    let (old, new, text) = (args.text(0)?, args.text(1)?, args.text(2)?);
    let mut out = TextBuilder::default();
    let mut behind = 0;
    for (at, found) in text.match_indices(old) {
        out.push(&text[behind..at])?;
        out.push(new)?;
        behind = at + found.len();
    }
    out.push(&text[behind..])?;
    Ok(out.finish())
}

/// `goutils.AbbreviateFull`: truncates to `width` with dots.
fn abbreviate(text: &str, offset: i64, width: i64) -> String {
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if width < 4 || offset > 0 && width < 7 || length <= width {
        return text.to_owned();
    }
    let at = |index: i64| usize::try_from(index).unwrap_or(0);
    let mut offset = offset.min(length);
    if length - offset < width - 3 {
        offset = length - (width - 3);
    }
    if offset <= 4 {
        return format!("{}...", between(text, 0, at(width - 3)));
    }
    if offset + width - 3 < length {
        let rest = abbreviate(&between(text, at(offset), text.len()), 0, width - 3);
        return format!("...{rest}");
    }
    format!("...{}", between(text, at(length - (width - 3)), text.len()))
}
