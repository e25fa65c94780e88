//! Plan ids: `plan-<ref>-<first 10 of the revision's hash>-<effect digest>`. The prefix is informative; only the complete
//! effect digest identifies a plan.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::serialization::text_conversions;

/// Number of hex digits of an effect digest.
const DIGITS: usize = 40;

/// Digest of the effects of a plan: 40 lowercase hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EffectDigest(String);

impl EffectDigest {
    /// Creates a digest from the first 20 bytes of a hash.
    #[must_use]
    pub fn of_bytes(bytes: [u8; DIGITS / 2]) -> Self {
        Self(hex::encode(bytes))
    }

    /// Returns the hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EffectDigest {
    type Err = PlanIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let good = text.len() == DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(PlanIdError::MissingEffect)
        }
    }
}

text_conversions!(EffectDigest, PlanIdError);

/// A text is not a valid [`PlanId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanIdError {
    /// The prefix `plan-` is missing.
    #[error("a plan id begins with \"plan-\"")]
    MissingPrefix,
    /// The text does not end in an effect digest.
    #[error("a plan id ends in the {DIGITS} hex digits of its effect")]
    MissingEffect,
}

/// The id of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PlanId {
    front: String,
    effect: EffectDigest,
}

impl PlanId {
    /// Creates the id of a plan for this revision with this effect.
    #[must_use]
    pub fn new(revision: &str, effect: EffectDigest) -> Self {
        Self {
            front: front(revision),
            effect,
        }
    }

    /// Returns the effect digest, the part that approvals compare.
    #[must_use]
    pub const fn effect(&self) -> &EffectDigest {
        &self.effect
    }

    /// Returns the informative part, e.g. `plan-main-b8e362c206`, which tofu-controller calls the plan id.
    #[must_use]
    pub fn front(&self) -> &str {
        &self.front
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.front, self.effect)
    }
}

impl FromStr for PlanId {
    type Err = PlanIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.starts_with("plan-") {
            return Err(PlanIdError::MissingPrefix);
        }
        let (front, effect) = text.rsplit_once('-').ok_or(PlanIdError::MissingEffect)?;
        Ok(Self {
            front: front.to_owned(),
            effect: effect.parse()?,
        })
    }
}

text_conversions!(PlanId, PlanIdError);

/// The front part, formed as tofu-controller forms its ids, from new and legacy revisions alike.
fn front(revision: &str) -> String {
    let two = |separator| {
        revision
            .split_once(separator)
            .filter(|(_, rest)| !rest.contains(separator))
    };
    if let Some((reference, sum)) = two('@') {
        let hash = sum.split_once(':').map_or(sum, |(_, hash)| hash);
        return format!("plan-{reference}-{}", ten(hash));
    }
    two('/').map_or_else(
        || format!("plan-{}", ten(revision)),
        |(branch, hash)| format!("plan-{branch}-{}", ten(hash)),
    )
}

/// The first ten characters.
fn ten(text: &str) -> &str {
    text.char_indices().nth(10).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "b8e362c206e3d0cbb7ed22ced771a0056455a2fb";

    #[test]
    fn the_prefix_is_upstreams_plan_id() {
        for (revision, wanted) in [
            (format!("main@sha1:{HASH}"), "plan-main-b8e362c206"),
            ("v2.6@sha256:c7fd0cc69b924aa5".into(), "plan-v2.6-c7fd0cc69b"),
            (format!("feature/x@sha1:{HASH}"), "plan-feature/x-b8e362c206"),
            (format!("main/{HASH}"), "plan-main-b8e362c206"),
            ("sha256:d02f9f31".into(), "plan-sha256:d02"),
            (format!("sha1:{HASH}"), "plan-sha1:b8e36"),
            // Three components and no `@`: neither form, so the revision's first ten characters.
            (format!("feature/x/{HASH}"), "plan-feature/x/"),
            ("main@b8e362c206e3".into(), "plan-main-b8e362c206"),
            ("main@".into(), "plan-main-"),
            (String::new(), "plan-"),
        ] {
            assert_eq!(front(&revision), wanted, "{revision}");
        }
    }

    #[test]
    fn an_id_requires_a_complete_effect_digest() {
        let id = PlanId::new(&format!("main@sha1:{HASH}"), HASH.parse().unwrap());
        assert_eq!(id.to_string(), format!("plan-main-b8e362c206-{HASH}"));
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        assert_eq!((id.front(), id.effect().as_str()), ("plan-main-b8e362c206", HASH));
        for (text, error) in [
            ("", PlanIdError::MissingPrefix),
            ("auto", PlanIdError::MissingPrefix),
            (HASH, PlanIdError::MissingPrefix),
            ("replan-main-b8e362c206", PlanIdError::MissingPrefix),
            ("plan-", PlanIdError::MissingEffect),
            ("plan-main-b8e362c206", PlanIdError::MissingEffect),
            (
                &format!("plan-main-b8e362c206-{}", &HASH[..39]),
                PlanIdError::MissingEffect,
            ),
            (
                &format!("plan-main-b8e362c206-{HASH}0"),
                PlanIdError::MissingEffect,
            ),
            (
                &format!("plan-main-b8e362c206-{}", HASH.to_uppercase()),
                PlanIdError::MissingEffect,
            ),
        ] {
            assert_eq!(text.parse::<PlanId>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_revision_gives_an_id_that_reads_back(revision in "\\PC{0,80}", effect in any::<[u8; 20]>()) {
            let id = PlanId::new(&revision, EffectDigest::of_bytes(effect));
            prop_assert_eq!(id.to_string().parse::<PlanId>().unwrap(), id);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,120}") {
            let _ = text.parse::<PlanId>();
        }
    }
}
