//! Go templates: `values`, health checks and webhooks (`${{ }}`, built-in functions), and `main.tf.tpl` (`{{ }}`, with the text functions
//! of sprig).
//!
//! Templates are untrusted and read sensitive data. Rendering is a pure function of template and data, which an approval covers. It
//! uses no files, sockets or environment variables, its work is limited, and its errors contain no values.
//! `docs/reference/templates.md` lists the differences from Go.

mod functions;
mod limits;
mod tree;
mod value;

use std::sync::Arc;

pub use functions::Functions;
use gotmpl::parse::Parser;
use gotmpl::{Template, TemplateError as Fault};
pub use limits::{OUTPUT_LIMIT, TEXT_LIMIT};
use limits::{Output, RANGE_LIMIT, WorkMeter};

/// A template cannot be rendered. Errors contain no values of the data, except for the message of `fail`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template exceeds [`TEXT_LIMIT`].
    #[error("the template has {size} bytes, more than the limit of {limit}")]
    TooLong {
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The syntax is invalid.
    #[error("the template cannot be parsed: line {line}, column {column}: {text}")]
    Syntax {
        /// Line of the error, from 1.
        line: usize,
        /// Column of the error, from 1.
        column: usize,
        /// The message.
        text: String,
    },
    /// The function does not exist.
    #[error(
        "line {line}: function {name:?} is not defined{hint}; docs/reference/templates.md has the table of functions"
    )]
    UnknownFunction {
        /// The function.
        name: String,
        /// Line of the template.
        line: usize,
        /// ` (did you mean ..?)`, or nothing.
        hint: String,
    },
    /// The function exists in the original but is not supported.
    #[error("line {line}: function {name:?} is refused: {why}")]
    RefusedFunction {
        /// The function.
        name: String,
        /// Line of the template.
        line: usize,
        /// The reason.
        why: &'static str,
    },
    /// The result of `set` or another changing function would be lost.
    #[error(
        "line {line}: {name} changes the map in its variable argument; write {{{{ $m := .. }}}} and \
             {{{{ $_ := {name} $m .. }}}}"
    )]
    LostChange {
        /// The function.
        name: String,
        /// Line of the template.
        line: usize,
    },
    /// The execution failed.
    #[error("the template cannot be rendered: {0}")]
    Execution(String),
    /// The execution exceeded a limit.
    #[error("the template exceeds a limit: {0}")]
    LimitExceeded(&'static str),
}

/// The delimiters of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiters {
    /// `{{` and `}}`.
    Curly,
    /// `${{` and `}}`.
    DollarCurly,
}

impl Delimiters {
    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Curly => ("{{", "}}"),
            Self::DollarCurly => ("${{", "}}"),
        }
    }
}

/// Name of the main template. No `define` uses it by accident.
const MAIN: &str = "\u{1}";

/// Renders a template. Numbers in the data are floats, as in Go.
///
/// # Errors
/// The template is invalid, its execution failed, or it exceeded a limit.
pub fn render(
    text: &str,
    delimiters: Delimiters,
    functions: Functions,
    data: &serde_json::Value,
) -> Result<String, TemplateError> {
    if text.len() > TEXT_LIMIT {
        return Err(TemplateError::TooLong {
            size: text.len(),
            limit: TEXT_LIMIT,
        });
    }
    let (left, right) = delimiters.texts();
    let parsed = Template::new(MAIN)
        .delims(left, right)
        .parse(text)
        .map_err(syntax)?;
    let (main, _) = Parser::new(text, left, right)
        .and_then(Parser::parse)
        .map_err(syntax)?;
    let meter = Arc::new(WorkMeter::default());
    let mut prepared = Template::new(MAIN)
        .max_range_iters(RANGE_LIMIT)
        .funcs(functions::map(functions, &meter))
        .add_parse_tree(MAIN, tree::prepare(&main, functions)?);
    for (name, body) in parsed
        .templates()
        .into_iter()
        .filter(|name| *name != MAIN)
        .filter_map(|name| Some((name, parsed.lookup(name)?)))
    {
        prepared = prepared.add_parse_tree(name, tree::prepare(body, functions)?);
    }
    let mut output = Output::new(&meter);
    let rendered = prepared.execute_template_fmt(&mut output, MAIN, &value::from_json(data));
    let text = output.into_text();
    match (meter.exceeded(), rendered) {
        (Some(limit), _) => Err(TemplateError::LimitExceeded(limit)),
        (None, Ok(())) => Ok(text),
        (None, Err(fault)) => Err(execution(&fault)),
    }
}

fn syntax(fault: Fault) -> TemplateError {
    match fault {
        Fault::Parse {
            line, col, message, ..
        }
        | Fault::Lex {
            line, col, message, ..
        } => TemplateError::Syntax {
            line,
            column: col,
            text: message,
        },
        other => execution(&other),
    }
}

/// Prefixes of library errors that contain names and types, but no values.
const SAFE_ERRORS: [&str; 12] = [
    "can't evaluate field",
    "can't give argument to non-function",
    "cannot assign",
    "cannot index",
    "cannot slice",
    "index of untyped nil",
    "incompatible types for comparison",
    "invalid type for comparison",
    "nil is not a command",
    "non-comparable type",
    "call",
    "slice",
];

fn execution(fault: &Fault) -> TemplateError {
    let text = match fault {
        Fault::RangeIterLimit => {
            return TemplateError::LimitExceeded("its loops run more than 1000000 times");
        }
        Fault::RecursionLimit => {
            return TemplateError::LimitExceeded("its templates are nested too deeply");
        }
        Fault::Exec(text) => match text.strip_prefix(functions::OURS) {
            Some(ours) => ours.to_owned(),
            None if SAFE_ERRORS.iter().any(|prefix| text.starts_with(prefix)) => text.clone(),
            None => "an expression has an unsuitable value".to_owned(),
        },
        Fault::IndexOutOfRange { .. } => "an index is out of range".to_owned(),
        Fault::FuncPanic { name, .. } => format!("function {name} failed"),
        Fault::TypeMismatch { .. }
        | Fault::UndefinedTemplate(_)
        | Fault::UndefinedFunction(_)
        | Fault::UndefinedVariable(_)
        | Fault::ArgCount { .. }
        | Fault::NotIterable(_) => fault.to_string(),
        _ => "it cannot be executed".to_owned(),
    };
    TemplateError::Execution(text)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
