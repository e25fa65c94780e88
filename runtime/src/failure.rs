//! How a failed phase is classed: the class decides when to look again, the reason is what users match on.

use std::time::Duration;

/// What can be done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Another attempt may succeed: retry with the object's back-off.
    Transient,
    /// Something else must become ready first: look again after this long, back-off reset.
    Waiting(Duration),
    /// Only an edit of this object can help: set `Stalled`, await a change.
    Terminal,
}

/// An error of a phase, classed. Implementations `match` exhaustively, so that a new variant does not compile until
/// somebody has decided about it.
pub trait Failure: std::error::Error {
    /// When another attempt makes sense.
    fn class(&self) -> Class;

    /// The reason shown in conditions and events: one `CamelCase` word, part of the public interface.
    fn reason(&self) -> &'static str;
}

/// The error with all its causes in one line, `outer: inner: innermost`. Parts that already contain their cause
/// are not repeated.
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
    fn a_chain_names_each_cause_once() {
        assert_eq!(
            chain(&Outer(std::io::Error::other("disk on fire"))),
            "cannot read the file: disk on fire"
        );
        let transparent = std::io::Error::other(std::io::Error::other("once"));
        assert_eq!(chain(&transparent), "once");
    }
}
