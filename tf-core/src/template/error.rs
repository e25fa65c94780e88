//! What can be wrong with a template. No text here holds a value of the data, but for what `fail` is told to say.

/// Why a template gives no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template is longer than is read.
    #[error("the template has {size} bytes, more than the {limit} that are read")]
    TooLong {
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// It does not follow the rules of Go templates.
    #[error("the template cannot be parsed: line {line}, column {column}: {text}")]
    Syntax {
        /// Line of the first surprise, from 1.
        line: usize,
        /// Column of the first surprise, from 1.
        column: usize,
        /// What is wrong.
        text: String,
    },
    /// A function that is not there.
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
    /// A function of the original that is left out on purpose.
    #[error("line {line}: function {name:?} is refused: {why}")]
    RefusedFunction {
        /// The function.
        name: String,
        /// Line of the template.
        line: usize,
        /// Why it is left out.
        why: &'static str,
    },
    /// A use of `set` and its like whose effect would be lost.
    #[error(
        "line {line}: {name} changes the map in the variable that it is given; write {{{{ $m := .. }}}} and \
             {{{{ $_ := {name} $m .. }}}}"
    )]
    LostChange {
        /// The function.
        name: String,
        /// Line of the template.
        line: usize,
    },
    /// Rendering failed.
    #[error("the template cannot be rendered: {0}")]
    Execution(String),
    /// Rendering would take more time or memory than a template may.
    #[error("the template asks for too much: {0}")]
    TooMuch(&'static str),
}
