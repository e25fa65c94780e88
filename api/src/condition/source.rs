//! Condition types of the source controller, and the rule that derives `Ready` from the others.

use super::{ConditionStatus, ConditionType, ConditionUpdate, MessageLimit, Polarity};
use crate::serialization::api_enum;

api_enum! {
    /// The condition types of source objects.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    SourceCondition {
        /// The object matches its spec.
        Ready = "Ready",
        /// A reconciliation is in progress or will be retried.
        Reconciling = "Reconciling",
        /// The reconciliation cannot succeed until a user changes something.
        Stalled = "Stalled",
        /// The source could not be fetched.
        FetchFailed = "FetchFailed",
        /// An included artifact is not available.
        IncludeUnavailable = "IncludeUnavailable",
        /// Artifact storage could not be read or written.
        StorageOperationFailed = "StorageOperationFailed",
        /// The stored artifact is not the latest.
        ArtifactOutdated = "ArtifactOutdated",
        /// The artifact is in storage.
        ArtifactInStorage = "ArtifactInStorage",
        /// The signature is valid.
        SourceVerified = "SourceVerified",
    }
}

impl SourceCondition {
    /// The types that `Ready` is derived from, highest priority first.
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

impl ConditionType for SourceCondition {
    const OWNED: &'static [Self] = Self::ALL;
    const MESSAGE_LIMIT: MessageLimit = MessageLimit::Bytes(32768);

    fn as_str(self) -> &'static str {
        Self::as_str(self)
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

/// Derives `Ready` from the other updates; `None` when no update affects it, so that the existing `Ready` stays.
///
/// An unhealthy condition wins over a healthy one; among equals the order of priority decides. `SourceVerified=False`
/// always wins.
#[must_use]
pub fn ready_condition(
    updates: &[ConditionUpdate<SourceCondition>],
) -> Option<ConditionUpdate<SourceCondition>> {
    let in_order = || {
        let last = |kind| updates.iter().rev().find(move |update| update.kind == kind);
        SourceCondition::PRIORITY.into_iter().filter_map(last)
    };
    let unsigned =
        in_order().find(|v| v.kind == SourceCondition::SourceVerified && v.status == ConditionStatus::False);
    // `min_by_key` takes the first of equals.
    let voice = unsigned.or_else(|| in_order().min_by_key(|update| group(update)))?;
    let status = match group(voice) {
        0 | 1 => ConditionStatus::False,
        2 | 3 => ConditionStatus::True,
        _ => ConditionStatus::Unknown,
    };
    Some(ConditionUpdate::new(
        SourceCondition::Ready,
        status,
        voice.reason.clone(),
        voice.message.clone(),
    ))
}

/// Returns the precedence of an update for `Ready`; 0 is the highest.
fn group(update: &ConditionUpdate<SourceCondition>) -> u8 {
    match (update.kind.polarity(), update.status) {
        (Polarity::Abnormal, ConditionStatus::True) => 0,
        (Polarity::Normal, ConditionStatus::False) => 1,
        (Polarity::Normal, ConditionStatus::True) => 2,
        (Polarity::Abnormal, ConditionStatus::False) => 3,
        (_, ConditionStatus::Unknown) => 4,
    }
}
