//! Classification of failures: the class decides when to retry, the reason is part of the API.

use std::time::Duration;

/// When a failed operation is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A retry may succeed: retry with the object's back-off.
    Transient,
    /// A dependency is not ready: retry after this time and reset the back-off.
    Waiting(Duration),
    /// A retry cannot succeed: set `Stalled` and wait for a change of the object.
    Terminal,
}

/// A classified error. Implementations `match` exhaustively, so that each new variant must be classified.
pub trait Failure: std::error::Error {
    /// Returns when to retry.
    fn class(&self) -> Class;

    /// Returns the `CamelCase` reason for conditions and events, which is part of the API.
    fn reason(&self) -> &'static str;
}

/// Formats an error with all its causes in one line: `outer: inner: innermost`. Causes that their parent's text contains are
/// not repeated.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let part = inner.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the file")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_chain_contains_each_cause_once() {
        assert_eq!(
            chain(&Outer(std::io::Error::other("disk on fire"))),
            "cannot read the file: disk on fire"
        );
        let transparent = std::io::Error::other(std::io::Error::other("once"));
        assert_eq!(chain(&transparent), "once");
    }
}
