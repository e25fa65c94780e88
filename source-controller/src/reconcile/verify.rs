//! Whether the signatures are there that the spec asks for. The keys come from a Secret, the objects from the mirror; who
//! signed is judged by `crate::signature`.
//!
//! A revision that was verified is not verified again as long as the mode asks for nothing more, the condition still says
//! so, and the keys are the same, which the checksum in the status tells. Where an older definition prunes that checksum,
//! nothing tells, and the stored revision is verified at each pass: never less, and never over the network, because the
//! mirror holds the commit.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client};
use sluice_api::condition::{SourceCondition, find};
use sluice_api::digest::Digest;
use sluice_api::source::{GitRepositorySpec, GitRepositoryStatus, VerificationMode};
use sluice_runtime::failure::{Class, Failure};

use super::content::ContentConfig;
use crate::git::{Checkout, Head, ReadError, TagRef};
use crate::signature::{self, Carrier, Keys, SignatureError, Signed};

/// Why a revision is not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// There is no Secret with keys.
    #[error("public keys secret error: secrets \"{name}\" not found")]
    MissingKeys {
        /// The name of the Secret, in the object's namespace.
        name: String,
    },
    /// The Secret cannot be read.
    #[error("public keys secret error: {0}")]
    Keys(#[source] Box<kube::Error>),
    /// A tag is to be verified, and none is named.
    #[error("cannot verify tag object's signature if a tag reference is not specified")]
    NoTag,
    /// The tag has no signature, or is no object at all.
    #[error("cannot verify signature of tag '{tag}' since it is not signed")]
    Unsigned {
        /// The tag, with its object if it has one.
        tag: String,
    },
    /// The tag's signature does not count.
    #[error("signature verification of tag '{tag}' failed: {source}")]
    Tag {
        /// The tag with its object.
        tag: String,
        /// What is wrong.
        source: SignatureError,
    },
    /// The commit's signature does not count, or there is none.
    #[error("signature verification of commit '{commit}' failed: {source}")]
    Commit {
        /// The full object name.
        commit: String,
        /// What is wrong.
        source: SignatureError,
    },
    /// The mirror lost the object; it is fetched again.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Failure for VerifyError {
    fn class(&self) -> Class {
        match self {
            Self::NoTag => Class::Terminal,
            Self::Read(error) => error.class(),
            // Keys may be added, and refs moved, at any time.
            Self::MissingKeys { .. }
            | Self::Keys(_)
            | Self::Unsigned { .. }
            | Self::Tag { .. }
            | Self::Commit { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::MissingKeys { .. } | Self::Keys(_) => "VerificationError",
            Self::NoTag => "InvalidVerificationMode",
            Self::Unsigned { .. } => "InvalidGitObject",
            Self::Tag { .. } => "InvalidTagSignature",
            Self::Commit { .. } => "InvalidCommitSignature",
            Self::Read(error) => error.reason(),
        }
    }
}

/// What a pass found out about signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The spec asks for none.
    Unasked,
    /// An earlier pass verified what is stored, and that still holds.
    Held,
    /// This pass verified.
    Verified(Verified),
}

impl Standing {
    /// Digest of the keys that this pass verified with.
    pub(super) const fn keys(&self) -> Option<&Digest> {
        match self {
            Self::Verified(verified) => Some(&verified.keys),
            Self::Unasked | Self::Held => None,
        }
    }
}

/// What was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    /// The mode, as the status records it.
    pub(super) mode: &'static str,
    /// Which objects, and with which keys.
    pub(super) text: String,
    /// Digest of the keys that were trusted.
    keys: Digest,
}

/// What the spec asks for, with the keys for it.
#[derive(Clone, Debug)]
pub(super) struct Verification {
    mode: VerificationMode,
    keys: Keys,
}

impl Verification {
    /// Reads the keys, if the spec asks for a verification.
    ///
    /// # Errors
    /// The Secret is missing or cannot be read.
    pub(super) async fn asked(
        spec: &GitRepositorySpec,
        namespace: &str,
        client: &Client,
    ) -> Result<Option<Self>, VerifyError> {
        let Some(verify) = &spec.verify else {
            return Ok(None);
        };
        let name = &verify.secret_ref.name;
        let secret = Api::<Secret>::namespaced(client.clone(), namespace)
            .get_opt(name)
            .await
            .map_err(|error| VerifyError::Keys(Box::new(error)))?
            .ok_or_else(|| VerifyError::MissingKeys { name: name.clone() })?;
        let entries = secret.data.unwrap_or_default().into_iter();
        Ok(Some(Self {
            mode: verify.mode,
            keys: Keys::new(entries.map(|(key, value)| (key, value.0)).collect()),
        }))
    }

    /// Whether the stored revision must be verified again.
    pub(super) fn is_due(&self, status: &GitRepositoryStatus, content: &ContentConfig) -> bool {
        let checksum = content.checksum(Some(&self.keys.digest())).to_string();
        !is_verified(&status.conditions)
            || asks_for_more(status.source_verification_mode.as_deref(), self.mode)
            || status.content_config_checksum != Some(checksum)
    }

    /// Verifies. Blocks.
    ///
    /// # Errors
    /// The first signature that is missing or does not count; of a tag and its commit, the tag comes first.
    pub(super) fn verify(
        &self,
        checkout: &Checkout,
        head: &Head,
        now: Timestamp,
    ) -> Result<Verified, VerifyError> {
        use VerificationMode::{Head as OfHead, LegacyHead, Tag, TagAndHead};
        let mut text = String::from("verified signature of");
        if matches!(self.mode, Tag | TagAndHead) {
            let tag = head.tag().ok_or(VerifyError::NoTag)?;
            let (tag, key) = self.tag(checkout, tag, now)?;
            text.extend(["\n\t- tag '", &tag, "' with key '", &key, "'"]);
        }
        if matches!(self.mode, OfHead | LegacyHead | TagAndHead) {
            let commit = head.commit.to_string();
            let signed = Signed::commit(&checkout.raw_commit()?);
            match signature::verify(&signed, Carrier::Commit, &self.keys, now) {
                Ok(key) => text.extend(["\n\t- commit '", &commit, "' with key '", &key, "'"]),
                Err(source) => return Err(VerifyError::Commit { commit, source }),
            }
        }
        Ok(Verified {
            mode: self.mode.recorded(),
            text,
            keys: self.keys.digest(),
        })
    }

    /// Verifies the object that the ref itself holds; tags behind it do not count. Answers the tag and the key.
    fn tag(
        &self,
        checkout: &Checkout,
        tag: TagRef<'_>,
        now: Timestamp,
    ) -> Result<(String, String), VerifyError> {
        let Some(id) = tag.object else {
            return Err(VerifyError::Unsigned {
                tag: tag.name.to_owned(),
            });
        };
        let raw = checkout.raw_tag(id)?;
        let name = signature::object::tag_name(&raw).unwrap_or_else(|| tag.name.to_owned());
        let tag = format!("{name}@{id}");
        let signed = Signed::tag(&raw);
        if signed.signature.is_empty() {
            return Err(VerifyError::Unsigned { tag });
        }
        match signature::verify(&signed, Carrier::Tag, &self.keys, now) {
            Ok(key) => Ok((tag, key)),
            Err(source) => Err(VerifyError::Tag { tag, source }),
        }
    }
}

fn is_verified(conditions: &[Condition]) -> bool {
    find(conditions, SourceCondition::SourceVerified).is_some_and(|held| held.status == "True")
}

/// Whether a mode asks for more than what is recorded as verified.
fn asks_for_more(recorded: Option<&str>, mode: VerificationMode) -> bool {
    match (recorded, mode.recorded()) {
        (Some("TagAndHEAD"), _) => false,
        (Some(recorded), mode) => recorded != mode,
        (None, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_that_asks_for_more_than_was_verified_is_due() {
        use VerificationMode::{Head, LegacyHead, Tag, TagAndHead};
        for (recorded, mode, due) in [
            (None, Head, true),
            (None, Tag, true),
            (None, TagAndHead, true),
            (Some("HEAD"), Head, false),
            (Some("HEAD"), LegacyHead, false),
            (Some("HEAD"), Tag, true),
            (Some("HEAD"), TagAndHead, true),
            (Some("Tag"), Tag, false),
            (Some("Tag"), Head, true),
            (Some("Tag"), LegacyHead, true),
            (Some("Tag"), TagAndHead, true),
            (Some("TagAndHEAD"), Head, false),
            (Some("TagAndHEAD"), Tag, false),
            (Some("TagAndHEAD"), TagAndHead, false),
        ] {
            assert_eq!(asks_for_more(recorded, mode), due, "{recorded:?} {mode:?}");
        }
    }
}
