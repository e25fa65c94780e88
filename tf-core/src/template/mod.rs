//! Go templates: of `values`, of health checks and webhooks (`${{ }}`, Go's own functions), and of `main.tf.tpl` (`{{ }}`, with
//! the text functions of sprig).
//!
//! A template is foreign text that is given secrets. Rendering is a pure function of template and data (an approval
//! covers both), it opens no file, no socket and no environment, it ends after a counted amount of work, and its errors hold
//! no value. What differs from the original is told in `docs/reference/templates.md`.

mod budget;
mod error;
mod functions;
mod tree;
mod value;

pub use budget::{OUTPUT_LIMIT, TEXT_LIMIT};
pub use error::TemplateError;
pub use functions::Functions;

use budget::{Budget, Output, RANGE_LIMIT};
use gotmpl::parse::Parser;
use gotmpl::{Template, TemplateError as Fault};
use std::sync::Arc;

/// What begins and ends an action.
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

/// Name of the template to the library. No `define` has it by chance.
const NAME: &str = "\u{1}";

/// Renders a template with data, which is read as Go decodes JSON: numbers are floats.
///
/// # Errors
/// [`TemplateError`]; never with a value of the data in it.
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
    let parsed = Template::new(NAME)
        .delims(left, right)
        .parse(text)
        .map_err(syntax)?;
    let (main, _) = Parser::new(text, left, right)
        .and_then(Parser::parse)
        .map_err(syntax)?;
    let budget = Arc::new(Budget::default());
    let mut prepared = Template::new(NAME)
        .max_range_iters(RANGE_LIMIT)
        .funcs(functions::map(functions, &budget))
        .add_parse_tree(NAME, tree::prepare(&main, functions)?);
    for (name, body) in parsed
        .templates()
        .into_iter()
        .filter(|name| *name != NAME)
        .filter_map(|name| Some((name, parsed.lookup(name)?)))
    {
        prepared = prepared.add_parse_tree(name, tree::prepare(body, functions)?);
    }
    let mut output = Output::new(&budget);
    let rendered = prepared.execute_template_fmt(&mut output, NAME, &value::from_json(data));
    let text = output.into_text();
    match (budget.exceeded(), rendered) {
        (Some(what), _) => Err(TemplateError::TooMuch(what)),
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

/// Beginnings of the library's own texts that hold names of the template and of types, but no values.
const PLAIN: [&str; 12] = [
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
        Fault::RangeIterLimit => return TemplateError::TooMuch("its loops run more than 1000000 times"),
        Fault::RecursionLimit => return TemplateError::TooMuch("its templates call each other too deep"),
        Fault::Exec(text) => match text.strip_prefix(functions::OURS) {
            Some(ours) => ours.to_owned(),
            None if PLAIN.iter().any(|plain| text.starts_with(plain)) => text.clone(),
            None => "an expression has a value that is of no use there".to_owned(),
        },
        Fault::IndexOutOfRange { .. } => "an index is out of range".to_owned(),
        Fault::FuncPanic { name, .. } => format!("function {name} failed"),
        Fault::TypeMismatch { .. }
        | Fault::UndefinedTemplate(_)
        | Fault::UndefinedFunction(_)
        | Fault::UndefinedVariable(_)
        | Fault::ArgCount { .. }
        | Fault::NotIterable(_) => fault.to_string(),
        _ => "it cannot be carried out".to_owned(),
    };
    TemplateError::Execution(text)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
