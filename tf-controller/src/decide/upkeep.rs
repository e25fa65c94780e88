//! The supervision of an existing run: an active run, or one whose name was taken a moment ago.

use super::{MutationPoint, holds};

/// An active run, as it was just read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress<'a> {
    /// Whether its process is alive.
    pub(crate) alive: bool,
    /// Whether it has ended, by a report that is newer than the decision.
    pub(crate) ended: bool,
    /// Whether a runner has claimed it.
    pub(crate) claimed: bool,
    /// Digest of the inputs that it was created for.
    pub(crate) made_of: &'a str,
    /// Digest of the inputs now; `None`: they are not available.
    pub(crate) now: Option<&'a str>,
}

/// What to do with the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    /// Nothing.
    Leave,
    /// Mark it as lost: its process is gone.
    MarkLost,
    /// Start its runner: no runner has claimed it.
    Launch,
    /// End it: no runner has claimed it, and its inputs have changed.
    EndOutdated,
    /// End it: no runner has claimed it, and its inputs are not available.
    EndWithoutInputs,
}

/// Decides what to do with an active run.
pub(crate) fn upkeep(run: Progress<'_>) -> Upkeep {
    if holds(MutationPoint::ProcessAlive, run.alive) || run.ended {
        return Upkeep::Leave;
    }
    if holds(MutationPoint::Claimed, run.claimed) {
        return Upkeep::MarkLost;
    }
    match run.now {
        Some(now) if !holds(MutationPoint::InputsOutdated, now != run.made_of) => Upkeep::Launch,
        Some(_) => Upkeep::EndOutdated,
        None => Upkeep::EndWithoutInputs,
    }
}
