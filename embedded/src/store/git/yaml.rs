//! YAML files of objects: splits a file into documents, and edits one so that the lines of unchanged fields stay as they are.
//!
//! The editor knows block mappings with plain or quoted keys. It checks its work: if the edited text does not parse to the expected object,
//! it writes the whole document. A form that it does not know costs comments, never data. A document that does not parse to the object in
//! any form is an error.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Map, Value};

use crate::depth::{self, MAX_DEPTH};
use crate::yaml::{self, YamlError};

/// Returns the documents of a file, without their separators.
pub(super) fn documents(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        let line = line.trim_end();
        if line == "---" || line.starts_with("--- #") {
            ranges.push(start..at);
            start = end;
        }
        at = end;
    }
    ranges.push(start..at);
    ranges
}

/// The documents of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct ParsedFile {
    /// Those that parse, in their order.
    pub(super) documents: Vec<Value>,
    /// Why a document does not parse.
    pub(super) problem: Option<String>,
}

impl ParsedFile {
    /// Parses a file.
    pub(super) fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for range in documents(text) {
            match parse(&text[range]) {
                Ok(document) => file.documents.push(document),
                Err(reason) => file.problem = Some(reason),
            }
        }
        file
    }

    /// Creates a file that is not read for this reason.
    pub(super) fn unreadable(reason: String) -> Self {
        Self {
            documents: Vec::new(),
            problem: Some(reason),
        }
    }
}

/// Parses a document; `Null` for one without content. The error is the reason.
pub(super) fn parse(document: &str) -> Result<Value, String> {
    if is_blank(document) {
        return Ok(Value::Null);
    }
    let content: Value = yaml::parse(document.as_bytes()).map_err(|error| error.to_string())?;
    // As in a write, the depth is limited: clients could not read a deeper object in a list.
    if !depth::is_within(&content, MAX_DEPTH) {
        return Err(YamlError::TooDeep.to_string());
    }
    Ok(content)
}

/// Writes an object as a new document. The error is the reason.
pub(super) fn write(object: &Value) -> Result<String, String> {
    let is_exact = |text: &String| parse(text).is_ok_and(|content| content == *object);
    let text = serde_yaml_ng::to_string(object).ok().filter(is_exact);
    text.or_else(|| Some(to_json(object)).filter(is_exact))
        .ok_or_else(|| "its YAML would be read as another object".to_owned())
}

/// Returns an object as JSON, which is YAML, too. YAML has line breaks and characters that are not printable beyond those that JSON
/// escapes (YAML 1.2, 5.1 and 5.4), and no surrogates, so that all characters beyond ASCII are escaped as in YAML.
fn to_json(object: &Value) -> String {
    let mut text = String::new();
    for c in object.to_string().chars() {
        // Writing to a String cannot fail.
        let _ = match u32::from(c) {
            0..0x7f => text.write_char(c),
            code @ 0x7f..0x1_0000 => write!(text, "\\u{code:04x}"),
            code => write!(text, "\\U{code:08x}"),
        };
    }
    text.push('\n');
    text
}

/// Returns the document with another content. The error is the reason.
pub(super) fn edit(document: &str, wanted: &Value) -> Result<String, String> {
    let edited = match (parse(document), wanted) {
        (Ok(Value::Object(old)), Value::Object(new)) => {
            let lines: Vec<&str> = document.lines().collect();
            edit_mapping(&lines, 0, &old, new)
        }
        _ => None,
    };
    edited
        .filter(|text| parse(text).is_ok_and(|content| content == *wanted))
        .map_or_else(|| write(wanted), Ok)
}

/// Appends text that ends with a line break.
pub(super) fn push_lines(to: &mut String, text: &str) {
    to.push_str(text);
    if !text.is_empty() && !text.ends_with('\n') {
        to.push('\n');
    }
}

/// Returns the length of what [`push_lines`] appends.
pub(super) fn size_of_lines(text: &str) -> usize {
    text.len() + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

/// Whether a document has no content: only blank lines, comments and, before the first separator, the version of YAML.
pub(super) fn is_blank(document: &str) -> bool {
    document.lines().all(|line| is_gap(line) || is_version(line))
}

/// Whether a separator must follow a document without content.
pub(super) fn needs_separator(document: &str) -> bool {
    document.lines().any(is_version)
}

/// Whether a line is a directive (YAML 1.2, 6.8.1) of a version that the parser reads.
fn is_version(line: &str) -> bool {
    line.starts_with("%YAML 1.")
}

/// Whether a line is blank or a comment.
fn is_gap(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// A field of a block mapping.
struct Field {
    name: String,
    /// Number of the line with the key.
    start: usize,
    /// Number of the line after the last one of the value.
    end: usize,
    /// Whether the line of the key contains nothing else.
    is_block: bool,
}

/// Returns the fields of a block mapping at this indentation, or `None` for another form.
fn fields(lines: &[&str], indent: usize) -> Option<Vec<Field>> {
    let mut fields: Vec<Field> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        if is_gap(line) {
            continue;
        }
        let at = indentation(line);
        // The items of a list may have the indentation of its key.
        let is_item = at == indent && (line[at..].starts_with("- ") || &line[at..] == "-");
        if at > indent || is_item {
            fields.last_mut()?.end = number + 1;
            continue;
        }
        if at < indent {
            return None;
        }
        let (name, rest) = key(&line[at..])?;
        fields.push(Field {
            name,
            start: number,
            end: number + 1,
            is_block: is_gap(rest),
        });
    }
    Some(fields)
}

/// Splits a line into its key and what follows the colon.
fn key(line: &str) -> Option<(String, &str)> {
    let quote = line.chars().next().filter(|first| matches!(first, '"' | '\''));
    let (name, rest) = match quote {
        Some(quote) => {
            let (name, rest) = line[1..].split_once(quote)?;
            (name, rest.strip_prefix(':')?)
        }
        None => line
            .split_once(": ")
            .or_else(|| Some((line.strip_suffix(':')?, "")))?,
    };
    let is_simple = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    (!name.is_empty() && name.chars().all(is_simple)).then(|| (name.to_owned(), rest))
}

/// Edits the lines of a block mapping; `None` for another form.
fn edit_mapping(
    lines: &[&str],
    indent: usize,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Option<String> {
    let fields = fields(lines, indent)?;
    let mut edited = String::new();
    let mut done = 0;
    for field in &fields {
        push_all(&mut edited, &lines[done..field.start]);
        let own = &lines[field.start..field.end];
        done = field.end;
        match (old.get(&field.name)?, new.get(&field.name)) {
            (before, Some(after)) if before == after => push_all(&mut edited, own),
            (_, None) => {}
            (before, Some(after)) => edited.push_str(&edit_field(field, own, indent, before, after)?),
        }
    }
    for (name, value) in new {
        if !fields.iter().any(|field| field.name == *name) {
            edited.push_str(&render(name, value, indent)?);
        }
    }
    push_all(&mut edited, &lines[done..]);
    Some(edited)
}

fn edit_field(field: &Field, lines: &[&str], indent: usize, before: &Value, after: &Value) -> Option<String> {
    if let (Value::Object(before), Value::Object(after)) = (before, after)
        && field.is_block
        && !after.is_empty()
        && let Some(first) = lines[1..].iter().find(|line| !is_gap(line))
        && indentation(first) > indent
        && let Some(inner) = edit_mapping(&lines[1..], indentation(first), before, after)
    {
        return Some(format!("{}\n{inner}", lines[0]));
    }
    let text = render(&field.name, after, indent)?;
    match lines {
        [line] if text.lines().count() == 1 => Some(with_comment(&text, comment(&line[indent..]))),
        _ => Some(text),
    }
}

/// Returns a line of one field with the comment of the line before.
fn with_comment(line: &str, comment: &str) -> String {
    let space = if comment.starts_with('#') { " " } else { "" };
    format!("{}{space}{comment}\n", line.trim_end())
}

/// Returns the comment behind a value, with the space before it; empty if there is none, or the value is a list or map.
fn comment(line: &str) -> &str {
    let value = key(line).map_or("", |(_, rest)| rest.trim_start());
    let end = match value.chars().next() {
        Some('#') => Some(0),
        Some('"') => end_of_quoted(value, '"'),
        Some('\'') => end_of_quoted(value, '\''),
        Some('[' | '{') | None => None,
        // In a plain scalar a comment begins with `#` after white space (YAML 1.2, 6.6 and 7.3.3).
        Some(_) => [" #", "\t#"].iter().filter_map(|start| value.find(start)).min(),
    };
    let Some((before, _)) = end.and_then(|end| value.split_at_checked(end)) else {
        return "";
    };
    let comment = &value[before.trim_end().len()..];
    if comment.trim_start().starts_with('#') {
        comment.trim_end()
    } else {
        ""
    }
}

/// Returns the position after a quoted scalar at the start of a text; `None` if the text does not contain its end.
fn end_of_quoted(text: &str, quote: char) -> Option<usize> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        let is_pair = quote == '\'' && c == quote && chars.peek().is_some_and(|(_, next)| *next == quote);
        if is_pair || (quote == '"' && c == '\\') {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    None
}

/// Writes a whole field; `None` if it has no YAML.
fn render(name: &str, value: &Value, indent: usize) -> Option<String> {
    let mut field = Map::new();
    field.insert(name.to_owned(), value.clone());
    let mut text = String::new();
    for line in write(&Value::Object(field)).ok()?.lines() {
        if !line.is_empty() {
            text.push_str(&" ".repeat(indent));
            text.push_str(line);
        }
        text.push('\n');
    }
    Some(text)
}

fn push_all(to: &mut String, lines: &[&str]) {
    for line in lines {
        to.push_str(line);
        to.push('\n');
    }
}

#[cfg(test)]
mod tests;
