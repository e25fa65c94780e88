//! Conditions: one closed set of types per controller, and the pure merge of a reconciliation's updates into
//! `status.conditions`. The caller passes the time, so equal input gives equal output and an unchanged status is not
//! written.

mod source;
mod terraform;

use std::borrow::Cow;
use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
pub use source::{SourceCondition, ready_condition};
pub use terraform::TerraformCondition;

/// Which status of a condition is the healthy one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Polarity {
    /// `True` is healthy; shown with any status.
    Normal,
    /// `True` is unhealthy; shown only while `True`.
    Abnormal,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// The condition is true.
    True,
    /// The condition is false.
    False,
    /// Not known yet.
    Unknown,
}

impl ConditionStatus {
    /// Returns the value in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Parses the value in the API; any other text is `Unknown`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// Maximum length of a condition's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageLimit {
    /// Bytes, including the closing `...`.
    Bytes(usize),
    /// Characters, followed by `...`.
    Characters(usize),
}

impl MessageLimit {
    /// Truncates a message that is too long, on a character boundary.
    #[must_use]
    pub fn truncate(self, message: &str) -> Cow<'_, str> {
        let end = match self {
            Self::Bytes(most) if message.len() > most => (0..=most.saturating_sub(3))
                .rev()
                .find(|end| message.is_char_boundary(*end)),
            Self::Bytes(_) => None,
            Self::Characters(most) => message.char_indices().nth(most).map(|(end, _)| end),
        };
        end.map_or(Cow::Borrowed(message), |end| {
            Cow::Owned(format!("{}...", &message[..end]))
        })
    }
}

/// The condition types that a controller owns.
pub trait ConditionType: Copy + PartialEq + 'static {
    /// All types that the controller owns.
    const OWNED: &'static [Self];
    /// Maximum length of a message.
    const MESSAGE_LIMIT: MessageLimit;
    /// Returns the type's name in the API.
    fn as_str(self) -> &'static str;
    /// Returns which status is the healthy one.
    fn polarity(self) -> Polarity;
}

/// The new value of one condition, as a reconciliation reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate<K> {
    /// The condition type.
    pub kind: K,
    /// Its status.
    pub status: ConditionStatus,
    /// Its reason in CamelCase.
    pub reason: String,
    /// Its message; truncated when it is merged.
    pub message: String,
    /// The `observedGeneration` of a condition that is retained from an earlier reconciliation; `None`: the current one.
    pub retained_generation: Option<Option<i64>>,
}

impl<K: ConditionType> ConditionUpdate<K> {
    /// Creates an update of the current reconciliation.
    pub fn new(
        kind: K,
        status: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            status,
            reason: reason.into(),
            message: message.into(),
            retained_generation: None,
        }
    }

    /// Retains the existing condition of this type unchanged, including its `observedGeneration`.
    #[must_use]
    pub fn retained(kind: K, existing: &[Condition]) -> Option<Self> {
        let found = find(existing, kind)?;
        Some(Self {
            kind,
            status: ConditionStatus::parse(&found.status),
            reason: found.reason.clone(),
            message: found.message.clone(),
            retained_generation: Some(found.observed_generation),
        })
    }

    /// Whether status shows this condition.
    fn is_shown(&self) -> bool {
        self.status == ConditionStatus::True || self.kind.polarity() == Polarity::Normal
    }

    /// Builds the condition; keeps the transition time of an existing condition with equal status, reason and message.
    fn to_condition(&self, existing: &[Condition], generation: Option<i64>, now: Timestamp) -> Condition {
        let message = K::MESSAGE_LIMIT.truncate(&self.message);
        let status = self.status.as_str();
        let same = existing.iter().find(|c| {
            c.type_ == self.kind.as_str()
                && c.status == status
                && c.reason == self.reason
                && c.message == message
        });
        Condition {
            type_: self.kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: self.reason.clone(),
            last_transition_time: same.map_or_else(|| whole_seconds(now), |c| c.last_transition_time.clone()),
            observed_generation: self.retained_generation.unwrap_or(generation),
            message: message.into_owned(),
        }
    }
}

/// Truncates to whole seconds, the precision that the API stores, so that comparisons see stored values.
fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// Merges updates into the conditions of an object.
///
/// Removes owned types without an update and abnormal conditions that are not `True`. The last of several updates of one
/// type wins. Foreign conditions are kept. Order: `Stalled`, `Reconciling`, `Ready`, then newer generations first, then by
/// type. The transition time changes with status, reason or message.
#[must_use]
pub fn merge_conditions<K: ConditionType>(
    existing: &[Condition],
    updates: &[ConditionUpdate<K>],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let owned = |c: &&Condition| K::OWNED.iter().any(|kind| kind.as_str() == c.type_);
    let mut conditions: Vec<_> = existing.iter().filter(|c| !owned(c)).cloned().collect();
    for (index, update) in updates.iter().enumerate() {
        let last = !updates[index + 1..].iter().any(|later| later.kind == update.kind);
        if last && update.is_shown() {
            conditions.push(update.to_condition(existing, generation, now));
        }
    }
    conditions.sort_by(|left, right| order(left).cmp(&order(right)));
    conditions
}

/// Returns whether conditions are in the order of [`merge_conditions`].
#[must_use]
pub fn is_ordered(conditions: &[Condition]) -> bool {
    conditions.is_sorted_by_key(order)
}

fn order(condition: &Condition) -> (u8, Reverse<Option<i64>>, &str) {
    let kind = condition.type_.as_str();
    (rank(kind), Reverse(condition.observed_generation), kind)
}

/// Sorts the three types that kstatus and kubectl read first to the front.
fn rank(kind: &str) -> u8 {
    match kind {
        "Stalled" => 0,
        "Reconciling" => 1,
        "Ready" => 2,
        _ => 3,
    }
}

/// Returns the existing condition of a type.
#[must_use]
pub fn find<K: ConditionType>(existing: &[Condition], kind: K) -> Option<&Condition> {
    existing.iter().find(|condition| condition.type_ == kind.as_str())
}

#[cfg(test)]
mod tests;
