//! The vocabulary of the source controller, and how `Ready` follows from the rest.

use super::{Limit, Polarity, Truth, Verdict, Vocabulary};

/// The condition types of source objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceCondition {
    /// The object is what its spec asks for.
    Ready,
    /// Work is going on, or is tried again.
    Reconciling,
    /// Only an edit can help.
    Stalled,
    /// The source could not be fetched.
    FetchFailed,
    /// An included artifact is missing.
    IncludeUnavailable,
    /// The storage could not be read or written.
    StorageOperationFailed,
    /// The stored artifact is not the newest.
    ArtifactOutdated,
    /// The artifact is in storage.
    ArtifactInStorage,
    /// The signature is good.
    SourceVerified,
}

impl SourceCondition {
    /// The types that `Ready` is computed from, first ones first.
    const PRIORITY: [Self; 8] = [
        Self::StorageOperationFailed,
        Self::FetchFailed,
        Self::IncludeUnavailable,
        Self::ArtifactOutdated,
        Self::ArtifactInStorage,
        Self::SourceVerified,
        Self::Stalled,
        Self::Reconciling,
    ];
}

impl Vocabulary for SourceCondition {
    const OWNED: &'static [Self] = &[
        Self::Ready,
        Self::Reconciling,
        Self::Stalled,
        Self::FetchFailed,
        Self::IncludeUnavailable,
        Self::StorageOperationFailed,
        Self::ArtifactOutdated,
        Self::ArtifactInStorage,
        Self::SourceVerified,
    ];
    const LIMIT: Limit = Limit::Bytes(32768);

    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::FetchFailed => "FetchFailed",
            Self::IncludeUnavailable => "IncludeUnavailable",
            Self::StorageOperationFailed => "StorageOperationFailed",
            Self::ArtifactOutdated => "ArtifactOutdated",
            Self::ArtifactInStorage => "ArtifactInStorage",
            Self::SourceVerified => "SourceVerified",
        }
    }

    fn polarity(self) -> Polarity {
        match self {
            Self::Ready | Self::ArtifactInStorage | Self::SourceVerified => Polarity::Normal,
            Self::Reconciling
            | Self::Stalled
            | Self::FetchFailed
            | Self::IncludeUnavailable
            | Self::StorageOperationFailed
            | Self::ArtifactOutdated => Polarity::Abnormal,
        }
    }
}

/// `Ready` at the end of a pass, from the other verdicts; `None` when none of them bears on it, and `Ready` stays.
///
/// A bad condition speaks before a good one, and among equals the first in the order of priority. A signature that is
/// `False` has the last word.
#[must_use]
pub fn summarise(verdicts: &[Verdict<SourceCondition>]) -> Option<Verdict<SourceCondition>> {
    let in_order = || {
        let last = |kind| verdicts.iter().rev().find(move |verdict| verdict.kind == kind);
        SourceCondition::PRIORITY.into_iter().filter_map(last)
    };
    let unsigned = in_order().find(|v| v.kind == SourceCondition::SourceVerified && v.truth == Truth::False);
    // `min_by_key` takes the first of equals.
    let voice = unsigned.or_else(|| in_order().min_by_key(|verdict| group(verdict)))?;
    let truth = match group(voice) {
        0 | 1 => Truth::False,
        2 | 3 => Truth::True,
        _ => Truth::Unknown,
    };
    Some(Verdict::new(
        SourceCondition::Ready,
        truth,
        voice.reason.clone(),
        voice.message.clone(),
    ))
}

/// How loudly a verdict speaks; 0 is loudest.
fn group(verdict: &Verdict<SourceCondition>) -> u8 {
    match (verdict.kind.polarity(), verdict.truth) {
        (Polarity::Abnormal, Truth::True) => 0,
        (Polarity::Normal, Truth::False) => 1,
        (Polarity::Normal, Truth::True) => 2,
        (Polarity::Abnormal, Truth::False) => 3,
        (_, Truth::Unknown) => 4,
    }
}
