//! Regular expressions in the syntax of Go, and splitting.

use std::sync::Arc;

use gotmpl::Value;
use regex::Regex;

use super::args::TextBuilder;
use super::lists::texts;
use super::pattern::compile;
use super::{Args, Fault, Table};
use crate::template::value::string;

/// Functions by name.
pub(super) const TABLE: Table = &[
    // Unlike the other functions, sprig returns `false` for an invalid expression.
    ("regexMatch", is_match),
    ("mustRegexMatch", is_match),
    ("regexFind", find),
    ("mustRegexFind", find),
    ("regexFindAll", find_all),
    ("mustRegexFindAll", find_all),
    ("regexReplaceAll", |args| replace(args, true)),
    ("mustRegexReplaceAll", |args| replace(args, true)),
    ("regexReplaceAllLiteral", |args| replace(args, false)),
    ("mustRegexReplaceAllLiteral", |args| replace(args, false)),
    ("regexSplit", split_at_matches),
    ("mustRegexSplit", split_at_matches),
    ("regexQuoteMeta", quote),
    ("split", |args| {
        args.exactly(2)?;
        Ok(numbered(&parts(args.text(0)?, args.text(1)?, -1)))
    }),
    ("splitList", |args| {
        args.exactly(2)?;
        Ok(texts(parts(args.text(0)?, args.text(1)?, -1)))
    }),
    ("splitn", |args| {
        args.exactly(3)?;
        Ok(numbered(&parts(args.text(0)?, args.text(2)?, args.int(1)?)))
    }),
];

/// Compiles the first argument for the text of the second.
fn expression<'a>(args: &Args<'a>) -> Result<(Regex, &'a str), Fault> {
    let text = args.text(1)?;
    Ok((compile(args, args.text(0)?, text.len())?, text))
}

fn is_match(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(2)?;
    let (expression, text) = expression(args)?;
    Ok(Value::Bool(expression.is_match(text)))
}

fn find(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(2)?;
    let (expression, text) = expression(args)?;
    Ok(string(expression.find(text).map_or("", |found| found.as_str())))
}

/// Returns the limit of a count: a negative count is unlimited.
fn at_most(count: i64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn find_all(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(3)?;
    let (expression, text) = expression(args)?;
    let found = expression.find_iter(text).take(at_most(args.int(2)?));
    Ok(texts(found.map(|found| found.as_str())))
}

/// Replaces all matches. If `expand`, `$1` and `${name}` refer to groups.
fn replace(args: &Args<'_>, expand: bool) -> Result<Value, Fault> {
    args.exactly(3)?;
    let (expression, text) = expression(args)?;
    let with = args.text(2)?;
    let mut out = TextBuilder::default();
    let mut behind = 0;
    if !expand || !with.contains('$') {
        for found in expression.find_iter(text) {
            out.push(&text[behind..found.start()])?;
            out.push(with)?;
            behind = found.end();
        }
    } else {
        let groups = with.matches('$').count();
        for found in expression.captures_iter(text) {
            let Some(whole) = found.get(0) else { continue };
            out.push(&text[behind..whole.start()])?;
            // A group is not longer than the match.
            out.check(whole.len().saturating_mul(groups).saturating_add(with.len()))?;
            let mut expanded = String::new();
            found.expand(with, &mut expanded);
            out.push(&expanded)?;
            behind = whole.end();
        }
    }
    out.push(&text[behind..])?;
    Ok(out.finish())
}

/// `regexp.Split`: an empty match at the start does not split.
fn split_at_matches(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(3)?;
    let (expression, text) = expression(args)?;
    let most = at_most(args.int(2)?);
    if most == 0 {
        return Ok(texts([""; 0]));
    }
    if text.is_empty() && !args.text(0)?.is_empty() {
        return Ok(texts([""]));
    }
    let mut parts = Vec::new();
    let (mut start, mut end) = (0, 0);
    for found in expression.find_iter(text).take(most) {
        if parts.len() == most - 1 {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(&text[start..end]);
        }
        start = found.end();
    }
    if end != text.len() {
        parts.push(&text[start..]);
    }
    Ok(texts(parts))
}

fn quote(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    let mut out = String::new();
    for character in args.text(0)?.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            out.push('\\');
        }
        out.push(character);
    }
    Ok(string(out))
}

/// `strings.SplitN`: an empty separator splits into characters.
fn parts<'a>(separator: &str, text: &'a str, count: i64) -> Vec<&'a str> {
    match at_most(count) {
        0 => Vec::new(),
        most if separator.is_empty() => {
            let ends = text.char_indices().skip(1).map(|(at, _)| at).take(most - 1);
            let mut start = 0;
            let mut parts: Vec<_> = ends
                .map(|end| &text[std::mem::replace(&mut start, end)..end])
                .collect();
            if !text.is_empty() {
                parts.push(&text[start..]);
            }
            parts
        }
        most => text.splitn(most, separator).collect(),
    }
}

/// Returns a map of the parts with the keys `_0`, `_1`, …
fn numbered(parts: &[&str]) -> Value {
    let named = parts.iter().enumerate();
    Value::Map(Arc::new(
        named
            .map(|(index, part)| (Arc::from(format!("_{index}")), string(part)))
            .collect(),
    ))
}
