//! Translation of Go's regular expressions for the Rust library: Perl classes are ASCII, brackets in a class are characters, and `\Q`
//! quotes.

use std::fmt::Write;

use regex::{Regex, RegexBuilder};

use super::{Args, Fault};

/// Length limit of an expression.
const LENGTH_LIMIT: usize = 4096;
/// Sizes of a compiled expression, and the cost of each byte of text.
const SIZES: [(usize, usize); 4] = [(8 << 10, 4), (32 << 10, 64), (128 << 10, 512), (512 << 10, 4096)];
/// Cost to compile an expression of the smallest size.
const COMPILE_COST: usize = 64 << 10;

/// Compiles an expression for a text of this many bytes, and charges both: large expressions are slow for each byte.
pub(super) fn compile(args: &Args<'_>, pattern: &str, text: usize) -> Result<Regex, Fault> {
    let wrong = || Fault::new("the pattern is not a regular expression");
    if pattern.len() > LENGTH_LIMIT {
        return Err(Fault::new(format!(
            "the pattern is longer than {LENGTH_LIMIT} bytes"
        )));
    }
    let translated = translate(pattern).ok_or_else(wrong)?;
    for (size, weight) in SIZES {
        args.charge(COMPILE_COST.saturating_mul((weight / 4).min(16)))?;
        let built = RegexBuilder::new(&translated)
            .size_limit(size)
            .nest_limit(100)
            .build();
        match built {
            Ok(expression) => {
                args.charge(text.saturating_mul(weight))?;
                return Ok(expression);
            }
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => return Err(wrong()),
        }
    }
    Err(Fault::new("the pattern makes too large an expression"))
}

/// Whether the previous item is a repetition, which cannot be repeated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Not,
    Once,
    Lazily,
}

impl Repeated {
    fn again(self) -> Option<Self> {
        (self == Self::Not).then_some(Self::Once)
    }
}

/// Translates an expression. Returns `None` if it is invalid in Go.
fn translate(pattern: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = pattern;
    let mut class = false;
    let mut repeated = Repeated::Not;
    while let Some(character) = rest.chars().next() {
        let behind = &rest[character.len_utf8()..];
        repeated = match character {
            '?' if !class && repeated == Repeated::Once => Repeated::Lazily,
            '*' | '+' | '?' if !class => repeated.again()?,
            '{' if !class && is_repetition(behind) => {
                let end = behind.find('}')? + 2;
                out.push_str(rest.get(..end)?);
                rest = rest.get(end..)?;
                repeated = repeated.again()?;
                continue;
            }
            _ => Repeated::Not,
        };
        rest = match character {
            '\\' => escape(&mut out, behind, class)?,
            '[' if class => bracket_inside(&mut out, rest),
            '[' => {
                class = true;
                opening(&mut out, behind)
            }
            ']' if class => {
                class = false;
                out.push(']');
                behind
            }
            '&' | '~' if class => {
                out.push('\\');
                out.push(character);
                behind
            }
            '-' if class && behind.starts_with('-') => {
                out.push_str("-\\-");
                &behind[1..]
            }
            // Outside of repetitions, braces are characters.
            '{' if !class => {
                out.push_str("\\{");
                behind
            }
            other => {
                out.push(other);
                behind
            }
        };
    }
    Some(out)
}

/// Whether `2}`, `2,}` or `2,3}` follows.
fn is_repetition(behind: &str) -> bool {
    let Some((inside, _)) = behind.split_once('}') else {
        return false;
    };
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

/// Translates `[`, `[^`, and a literal first `]` or `-`.
fn opening<'a>(out: &mut String, behind: &'a str) -> &'a str {
    out.push('[');
    let mut rest = behind;
    if let Some(negated) = rest.strip_prefix('^') {
        out.push('^');
        rest = negated;
    }
    for literal in [']', '-'] {
        if let Some(more) = rest.strip_prefix(literal) {
            out.push('\\');
            out.push(literal);
            return more;
        }
    }
    rest
}

/// Translates `[:alpha:]`, or a literal bracket.
fn bracket_inside<'a>(out: &mut String, rest: &'a str) -> &'a str {
    let named = rest.strip_prefix("[:").and_then(|name| name.split_once(":]"));
    match named {
        Some((name, behind))
            if name
                .trim_start_matches('^')
                .bytes()
                .all(|b| b.is_ascii_lowercase()) =>
        {
            out.push_str(&rest[..rest.len() - behind.len()]);
            behind
        }
        _ => {
            out.push_str("\\[");
            &rest[1..]
        }
    }
}

/// Translates an escape.
fn escape<'a>(out: &mut String, behind: &'a str, class: bool) -> Option<&'a str> {
    let letter = behind.chars().next()?;
    let rest = &behind[letter.len_utf8()..];
    if letter == 'Q' && !class {
        let (quoted, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
        out.push_str(&regex::escape(quoted));
        return Some(rest);
    }
    let ascii = match letter {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => r"[\t\n\f\r ]",
        'S' => r"[^\t\n\f\r ]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        'b' if !class => r"(?-u:\b)",
        'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'x' | 'p' | 'P' => "",
        'A' | 'z' | 'B' if !class => "",
        // Octal digits.
        '0'..='7' => return octal(out, behind),
        punctuation if punctuation.is_ascii_punctuation() => "",
        _ => return None,
    };
    match (letter, ascii) {
        // Word boundaries in the Rust library.
        ('<' | '>', _) => out.push(letter),
        (_, "") => {
            out.push('\\');
            out.push(letter);
        }
        _ => out.push_str(ascii),
    }
    // `\x{10FFFF}` and `\p{Greek}` are the same.
    if matches!(letter, 'p' | 'P' | 'x') && rest.starts_with('{') {
        let end = rest.find('}')? + 1;
        out.push_str(&rest[..end]);
        return Some(&rest[end..]);
    }
    Some(rest)
}

/// Translates `\123` or `\0`. `\1` would be a back-reference, which Go does not have.
fn octal<'a>(out: &mut String, digits: &'a str) -> Option<&'a str> {
    let end = digits
        .bytes()
        .take(3)
        .take_while(|byte| (b'0'..=b'7').contains(byte))
        .count();
    let (number, rest) = digits.split_at(end);
    if end == 1 && number != "0" {
        return None;
    }
    let code = u32::from_str_radix(number, 8).ok()?;
    let _ = write!(out, "\\x{{{code:x}}}");
    Some(rest)
}
