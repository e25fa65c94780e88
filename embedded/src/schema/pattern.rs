//! `pattern`: Go (RE2) regular expressions, run by the `regex` crate.
//!
//! Both run in linear time and have no look-around. The differences are translated: Perl classes are ASCII in Go, set operations
//! inside classes do not exist there, and a brace that starts no repetition is a literal.

use regex::{Regex, RegexBuilder};

/// Size limit of a compiled pattern, in bytes.
const SIZE_LIMIT: usize = 4 << 20;

/// A compiled pattern with its source for error messages.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) source: String,
    regex: Regex,
}

impl Pattern {
    pub(super) fn compile(source: &str) -> Result<Self, regex::Error> {
        let regex = compile(source)?;
        Ok(Self {
            source: source.to_owned(),
            regex,
        })
    }

    /// Whether the pattern matches anywhere in `text`.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// Compiles a Go regular expression.
pub(super) fn compile(source: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&translate(source))
        .size_limit(SIZE_LIMIT)
        .build()
}

/// Translates a Go regular expression to the syntax of the `regex` crate.
fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 16);
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '\\' => escape(rest, false, &mut out),
            '[' => class(rest, &mut out),
            '{' if !is_repetition(rest) => {
                out.push_str("\\{");
                1
            }
            c => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

/// Copies the escape sequence at the start of `rest` and returns its length in bytes.
fn escape(rest: &str, in_class: bool, out: &mut String) -> usize {
    let Some(c) = rest[1..].chars().next() else {
        out.push('\\');
        return 1;
    };
    let ascii = match (c, in_class) {
        ('d', false) => "[0-9]",
        ('d', true) => "0-9",
        ('w', false) => "[0-9A-Za-z_]",
        ('w', true) => "0-9A-Za-z_",
        ('s', false) => "[\\t\\n\\f\\r ]",
        ('s', true) => "\\t\\n\\f\\r ",
        ('D', _) => "[^0-9]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('S', _) => "[^\\t\\n\\f\\r ]",
        ('b', false) => "(?-u:\\b)",
        ('B', false) => "(?-u:\\B)",
        ('<', _) => "<",
        ('>', _) => ">",
        ('Q', false) => return literal(rest, out),
        _ => "",
    };
    if ascii.is_empty() {
        out.push('\\');
        out.push(c);
    } else {
        out.push_str(ascii);
    }
    1 + c.len_utf8()
}

/// Copies the literal `\Q...\E` at the start of `rest` and returns its length in bytes.
fn literal(rest: &str, out: &mut String) -> usize {
    let body = &rest[2..];
    let end = body.find("\\E");
    out.push_str(&regex::escape(&body[..end.unwrap_or(body.len())]));
    end.map_or(rest.len(), |end| 2 + end + 2)
}

/// Copies the character class at the start of `rest`, escapes set operations in it, and returns its length in bytes.
fn class(rest: &str, out: &mut String) -> usize {
    let mut at = 1;
    out.push('[');
    if rest[at..].starts_with('^') {
        out.push('^');
        at += 1;
    }
    let first = at;
    while let Some(c) = rest[at..].chars().next() {
        match c {
            ']' if at > first => {
                out.push(']');
                return at + 1;
            }
            '\\' => {
                at += escape(&rest[at..], true, out);
                continue;
            }
            '[' if rest[at..].starts_with("[:") && rest[at..].contains(":]") => out.push('['),
            '[' | ']' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
        if c == '[' && out.ends_with('[') && !out.ends_with("\\[") {
            let end = rest[at..].find(":]").map_or(rest.len(), |end| at + end + 2);
            out.push_str(&rest[at + 1..end]);
            at = end;
        } else {
            at += c.len_utf8();
        }
    }
    at
}

/// Whether the brace opens `{n}`, `{n,}` or `{n,m}`.
fn is_repetition(rest: &str) -> bool {
    let Some((inside, _)) = rest[1..].split_once('}') else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match inside.split_once(',') {
        None => digits(inside),
        Some((low, high)) => digits(low) && (high.is_empty() || digits(high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_like_go() {
        let table = [
            (r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$", "1m30s", true),
            (r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$", "1d", false),
            (r"^(http|https|ssh)://.*$", "ssh://x", true),
            (r"^\d$", "\u{0663}", false),
            (r"^[\d.]+$", "1.2", true),
            (r"^\w+$", "\u{e9}", false),
            (r"^[^\w]$", "\u{e9}", true),
            (r"^\/a$", "/a", true),
            (r"^a{b}$", "a{b}", true),
            (r"^a{2}$", "aa", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[[]x$", "[x", true),
            (r"^[]]x$", "]x", true),
            (r"^[[:alpha:]_]+$", "ab_", true),
            (r"^[[:alpha:]]+$", "a1", false),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"a$", "a\n", false),
            (r"^\<$", "<", true),
        ];
        for (pattern, text, expected) in table {
            let compiled = Pattern::compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), expected, "{pattern} on {text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_pattern_panics(source in ".{0,40}", text in ".{0,20}") {
            if let Ok(pattern) = Pattern::compile(&source) {
                let _ = pattern.is_match(&text);
            }
        }
        #[test]
        fn no_pattern_of_metacharacters_panics(source in r"[\[\]\\^${}()|?*+.:,a1&~Qd-]{0,24}") {
            let _ = Pattern::compile(&source);
        }
    }
}
