//! YAML of users: a document that would take too much memory or time is an error.
//!
//! The parser (libyaml, and serde on top of it) limits neither: its time is quadratic in the depth of the flow style, an alias repeats what
//! it names, and a tag repeats the prefix of its directive.

mod aliases;
mod cursor;
mod scan;

use serde::de::DeserializeOwned;

use crate::depth::MAX_DEPTH;

/// Why a document is not read.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// It is nested too deep.
    #[error("the document has more than {MAX_DEPTH} levels of lists and maps")]
    TooDeep,
    /// It defines a prefix of tags. JSON has no tags, so that no object needs one.
    #[error("the document has a %TAG directive, which is not supported")]
    TagDirective,
    /// It is too large once each alias is replaced by what it names.
    #[error("the aliases of the document repeat too much")]
    Aliases,
    /// It does not parse, or is not of the type.
    #[error(transparent)]
    Parse(#[from] serde_yaml_ng::Error),
}

/// Parses one document.
///
/// # Errors
/// It does not parse, is not of the type, or is above a limit.
pub fn parse<T: DeserializeOwned>(document: &[u8]) -> Result<T, YamlError> {
    scan::check(document)?;
    aliases::check(document)?;
    Ok(serde_yaml_ng::from_slice(document)?)
}
