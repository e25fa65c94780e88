//! Conditions: a closed vocabulary per controller, and the pure function that turns this pass's verdicts into the list
//! that status shows. The time is given, so equal input gives equal output and an unchanged status is not written.

mod source;
mod terraform;

pub use source::{SourceCondition, summarise};
pub use terraform::TerraformCondition;

use std::borrow::Cow;
use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Which status of a condition is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Polarity {
    /// `True` is good; shown with any status.
    Normal,
    /// `True` is bad; shown only while `True`.
    Abnormal,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It is not known yet.
    Unknown,
}

impl Truth {
    /// The spelling in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Reads the spelling in the API; anything unknown is `Unknown`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// How long a condition's message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// At most this many bytes, the closing `...` included.
    Bytes(usize),
    /// At most this many characters, and then `...`.
    Characters(usize),
}

impl Limit {
    /// The message, cut where it is too long; never inside a character.
    #[must_use]
    pub fn cut(self, message: &str) -> Cow<'_, str> {
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
pub trait Vocabulary: Copy + PartialEq + 'static {
    /// Every type of the vocabulary.
    const OWNED: &'static [Self];
    /// How long messages may be.
    const LIMIT: Limit;
    /// The type's name in the API.
    fn as_str(self) -> &'static str;
    /// Which status is the good one.
    fn polarity(self) -> Polarity;
}

/// What a pass says about one condition type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict<K> {
    /// The condition type.
    pub kind: K,
    /// Its status.
    pub truth: Truth,
    /// Its reason: a word in CamelCase.
    pub reason: String,
    /// Its message, of any length.
    pub message: String,
    /// The generation it was made for, when it is carried over from an earlier pass; `None`: this pass's.
    pub carried: Option<Option<i64>>,
}

impl<K: Vocabulary> Verdict<K> {
    /// A verdict of this pass.
    pub fn new(kind: K, truth: Truth, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            truth,
            reason: reason.into(),
            message: message.into(),
            carried: None,
        }
    }

    /// The held condition of this type, as it is: its generation stays that of the pass that set it.
    #[must_use]
    pub fn carried(kind: K, held: &[Condition]) -> Option<Self> {
        let found = held.iter().find(|condition| condition.type_ == kind.as_str())?;
        Some(Self {
            kind,
            truth: Truth::parse(&found.status),
            reason: found.reason.clone(),
            message: found.message.clone(),
            carried: Some(found.observed_generation),
        })
    }

    /// Whether status shows it.
    fn is_shown(&self) -> bool {
        self.truth == Truth::True || self.kind.polarity() == Polarity::Normal
    }

    /// The condition, with the transition time of an equal one that is held.
    fn settled(&self, held: &[Condition], generation: Option<i64>, now: Timestamp) -> Condition {
        let message = K::LIMIT.cut(&self.message);
        let status = self.truth.as_str();
        let same = held.iter().find(|c| {
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
            observed_generation: self.carried.unwrap_or(generation),
            message: message.into_owned(),
        }
    }
}

/// A time as the API keeps it: without a fraction, so that what is compared is what was written.
fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The conditions of an object after a pass.
///
/// Owned types without a verdict disappear, as do abnormal ones that are not `True`; of two verdicts on one type the
/// last counts. Foreign conditions are kept. Order: `Stalled`, `Reconciling`, `Ready`, then newer generations first,
/// then by type. The transition time changes with status, reason or message.
#[must_use]
pub fn settle<K: Vocabulary>(
    held: &[Condition],
    verdicts: &[Verdict<K>],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let owned = |c: &&Condition| K::OWNED.iter().any(|kind| kind.as_str() == c.type_);
    let mut conditions: Vec<_> = held.iter().filter(|c| !owned(c)).cloned().collect();
    for (index, verdict) in verdicts.iter().enumerate() {
        let last = !verdicts[index + 1..]
            .iter()
            .any(|later| later.kind == verdict.kind);
        if last && verdict.is_shown() {
            conditions.push(verdict.settled(held, generation, now));
        }
    }
    conditions.sort_by_cached_key(|c| (rank(&c.type_), Reverse(c.observed_generation), c.type_.clone()));
    conditions
}

/// The three types that tools look at first stand first.
fn rank(kind: &str) -> u8 {
    match kind {
        "Stalled" => 0,
        "Reconciling" => 1,
        "Ready" => 2,
        _ => 3,
    }
}

/// The held condition of a type.
#[must_use]
pub fn find<K: Vocabulary>(held: &[Condition], kind: K) -> Option<&Condition> {
    held.iter().find(|condition| condition.type_ == kind.as_str())
}

#[cfg(test)]
mod tests;
