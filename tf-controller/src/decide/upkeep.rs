//! What is done about a run that is there: one in progress, and one whose name was taken a moment ago.

use super::{Guard, guard};

/// A run in progress, as it was just seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress<'a> {
    /// Its process lives.
    pub(crate) alive: bool,
    /// It has ended, by a report that is newer than the decision.
    pub(crate) ended: bool,
    /// A runner has claimed it.
    pub(crate) claimed: bool,
    /// The inputs that it was made of.
    pub(crate) made_of: &'a str,
    /// The inputs now; `None`: they cannot be had.
    pub(crate) now: Option<&'a str>,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    /// It is left alone.
    Leave,
    /// Its process is gone: it is lost.
    Lose,
    /// Nobody has begun it: it is started.
    Launch,
    /// Nobody has begun it, and its inputs have changed: it ends.
    Outdated,
    /// Nobody has begun it, and its inputs are not to be had: it ends.
    Unknown,
}

/// Looks after a run in progress.
pub(crate) fn upkeep(run: Progress<'_>) -> Upkeep {
    if guard(Guard::Alive, run.alive) || run.ended {
        return Upkeep::Leave;
    }
    if guard(Guard::Claimed, run.claimed) {
        return Upkeep::Lose;
    }
    match run.now {
        Some(now) if !guard(Guard::Outdated, now != run.made_of) => Upkeep::Launch,
        Some(_) => Upkeep::Outdated,
        None => Upkeep::Unknown,
    }
}
