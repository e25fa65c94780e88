//! Words: their case, their initials, and lines of them.

use std::sync::LazyLock;

use gotmpl::Value;
use regex::Regex;

use super::args::TextBuilder;
use super::text::{is_space, one, simple};
use super::{Fault, Table};

/// Functions by name.
pub(super) const TABLE: Table = &[
    ("initials", |args| one(args, initials)),
    ("swapcase", |args| one(args, swapped)),
    ("camelcase", |args| one(args, pascal)),
    ("snakecase", |args| one(args, |text| join_words(text, '_'))),
    ("kebabcase", |args| one(args, |text| join_words(text, '-'))),
    ("wrap", |args| {
        args.exactly(2)?;
        wrapped(args.text(1)?, args.int(0)?, "\n", false)
    }),
    ("wrapWith", |args| {
        args.exactly(3)?;
        let separator = Some(args.text(1)?).filter(|text| !text.is_empty());
        wrapped(args.text(2)?, args.int(0)?, separator.unwrap_or("\n"), true)
    }),
];

fn initials(text: &str) -> String {
    let mut gap = true;
    text.chars()
        .filter(|character| {
            let first = gap && !is_space(*character);
            gap = is_space(*character);
            first
        })
        .collect()
}

fn swapped(text: &str) -> String {
    text.chars()
        .map(|character| {
            if character.is_lowercase() {
                simple(character, character.to_uppercase())
            } else {
                simple(character, character.to_lowercase())
            }
        })
        .collect()
}

const fn is_bar(character: char) -> bool {
    matches!(character, '-' | '_')
}

/// Whether a character separates words.
fn is_connector(character: char) -> bool {
    is_bar(character) || is_space(character)
}

/// `xstrings.ToPascalCase`: words begin in upper case. Connectors are removed except for leading and repeated ones.
fn pascal(text: &str) -> String {
    let front = text.len() - text.trim_start_matches(is_connector).len();
    let (mut out, rest) = (text[..front].to_owned(), &text[front..]);
    let mut characters = rest.chars();
    let Some(first) = characters.next() else {
        // If there are only connectors, the original writes the last one twice.
        out.extend(text.chars().next_back());
        return out;
    };
    let mut shouted = first.is_uppercase();
    let mut last = simple(first, first.to_uppercase());
    for character in characters {
        let mut now = character;
        if is_connector(now) && is_connector(last) {
            out.push(last);
            last = now;
            continue;
        }
        if is_connector(last) {
            shouted = now.is_uppercase();
            now = simple(now, now.to_uppercase());
        } else {
            if shouted && now.is_uppercase() {
                now = simple(now, now.to_lowercase());
            } else {
                shouted = false;
            }
            out.push(last);
        }
        last = now;
    }
    out.push(last);
    out
}

/// The class of a run of characters in `xstrings`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Number,
    Upper,
    Letters,
    Connector,
    Punctuation,
    Other,
}

/// Returns the next run and the rest.
fn next_run(text: &str) -> Option<(Run, &str, &str)> {
    let first = text.chars().next()?;
    let while_is = |is: fn(char) -> bool| text.find(|c| !is(c)).unwrap_or(text.len());
    let small = |c: char| is_letter(c) && !c.is_uppercase();
    let (run, end) = match first {
        c if is_connector(c) => (Run::Connector, while_is(is_connector)),
        c if is_punctuation(c) => (Run::Punctuation, while_is(is_punctuation)),
        c if c.is_uppercase() => (Run::Upper, upper_end(text)),
        c if is_letter(c) => (Run::Letters, text.find(|c| !small(c)).unwrap_or(text.len())),
        c if c.is_numeric() => (Run::Number, while_is(char::is_numeric)),
        _ => (
            Run::Other,
            while_is(|c| !is_connector(c) && !is_letter(c) && !c.is_numeric() && !is_punctuation(c)),
        ),
    };
    let (word, rest) = text.split_at(end);
    Some((run, word, rest))
}

/// Returns the end of a run that begins in upper case: `HTTP` of `HTTPStatus`, `Status` of `Status2`.
fn upper_end(text: &str) -> usize {
    let capitals = text.find(|c: char| !c.is_uppercase()).unwrap_or(text.len());
    let (head, rest) = text.split_at(capitals);
    let word_follows = rest.chars().next().is_some_and(is_letter);
    match head.char_indices().next_back() {
        Some((0, _)) => {
            let more = rest.find(|c: char| !is_letter(c) || c.is_uppercase());
            capitals + more.unwrap_or(rest.len())
        }
        Some((last, _)) if word_follows => last,
        _ => capitals,
    }
}

/// Whether a character is a letter except for ideographs.
fn is_letter(character: char) -> bool {
    let ideograph =
        matches!(character, '\u{3400}'..='\u{4d85}' | '\u{4e00}'..='\u{9fcc}' | '\u{20000}'..='\u{2b81d}');
    character.is_alphabetic() && !ideograph
}

/// Whether a character is Unicode punctuation; symbols are not.
fn is_punctuation(character: char) -> bool {
    static PUNCTUATION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{P}$").ok());
    if character.is_ascii() {
        let symbol = matches!(character, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~');
        return character.is_ascii_punctuation() && !symbol;
    }
    let known = PUNCTUATION.as_ref();
    known.is_some_and(|known| known.is_match(character.encode_utf8(&mut [0; 4])))
}

/// `xstrings.ToSnakeCase` and `ToKebabCase`: lower-case words with connectors. A number belongs to the previous word unless
/// lower-case letters follow it.
fn join_words(text: &str, connector: char) -> String {
    let mut out = String::new();
    let Some((mut run, mut word, mut rest)) = next_run(text) else {
        return out;
    };
    let mut ended = false;
    while !rest.is_empty() {
        if run != Run::Connector {
            put(&mut out, run, word, connector);
        }
        let (before, last) = (run, word);
        let mut at = next_run(rest);
        match before {
            Run::Number => {
                at = put_following(&mut out, at, connector);
                connect(&mut out, at, connector);
            }
            Run::Connector => put(&mut out, before, last, connector),
            Run::Punctuation => {}
            Run::Upper | Run::Letters | Run::Other => {
                at = behind_word(&mut out, at, connector);
            }
        }
        let Some(next) = at else {
            ended = true;
            break;
        };
        (run, word, rest) = next;
    }
    if !ended {
        put(&mut out, run, word, connector);
    }
    out
}

/// A run and the rest, or the end.
type At<'a> = Option<(Run, &'a str, &'a str)>;

/// Writes the lower-case letters and numbers after a number.
fn put_following<'a>(out: &mut String, mut at: At<'a>, connector: char) -> At<'a> {
    while let Some((run @ (Run::Letters | Run::Number), word, rest)) = at {
        put(out, run, word, connector);
        at = next_run(rest);
    }
    at
}

/// Writes a connector before a word.
fn connect(out: &mut String, at: At<'_>, connector: char) {
    if at.is_some_and(|(run, ..)| run != Run::Punctuation && run != Run::Connector) {
        out.push(connector);
    }
}

/// Writes the rest of a word, which may be a number.
fn behind_word<'a>(out: &mut String, at: At<'a>, connector: char) -> At<'a> {
    let Some((Run::Number, number, rest)) = at else {
        connect(out, at, connector);
        return at;
    };
    if rest.is_empty() {
        return at;
    }
    let at = next_run(rest);
    if let Some((Run::Letters, ..)) = at {
        out.push(connector);
        put(out, Run::Number, number, connector);
        let at = put_following(out, at, connector);
        connect(out, at, connector);
        return at;
    }
    put(out, Run::Number, number, connector);
    connect(out, at, connector);
    at
}

fn put(out: &mut String, run: Run, word: &str, connector: char) {
    match run {
        Run::Upper => out.extend(word.chars().map(|c| simple(c, c.to_lowercase()))),
        Run::Connector => out.extend(word.chars().map(|_| connector)),
        _ => out.push_str(word),
    }
}

/// `goutils.WrapCustom`: breaks lines at spaces and, if `hard`, inside of long words.
fn wrapped(text: &str, width: i64, separator: &str, hard: bool) -> Result<Value, Fault> {
    let width = usize::try_from(width).unwrap_or(1).max(1);
    let mut out = TextBuilder::default();
    let mut rest = text;
    while rest.len() > width {
        if let Some(behind) = rest.strip_prefix(' ') {
            rest = behind;
            continue;
        }
        let window = rest.as_bytes().get(..=width).unwrap_or(rest.as_bytes());
        let space = match window.iter().rposition(|byte| *byte == b' ') {
            Some(space) => Some(space),
            None if hard => {
                // Characters are not split: one that is wider than a line is alone on it.
                let ends = rest
                    .char_indices()
                    .map(|(at, character)| at + character.len_utf8());
                let (mut fitting, mut ends) = (None, ends.peekable());
                while let Some(end) = ends.next_if(|end| *end <= width) {
                    fitting = Some(end);
                }
                let cut = fitting.or_else(|| ends.next()).unwrap_or(rest.len());
                out.push(&rest[..cut])?;
                out.push(separator)?;
                rest = &rest[cut..];
                continue;
            }
            None => rest.as_bytes()[width..]
                .iter()
                .position(|byte| *byte == b' ')
                .map(|space| width + space),
        };
        let Some(space) = space else { break };
        out.push(&rest[..space])?;
        out.push(separator)?;
        rest = &rest[space + 1..];
    }
    out.push(rest)?;
    Ok(out.finish())
}
