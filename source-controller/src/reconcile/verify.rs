//! Verifies the signatures that a spec requests. Reads the keys from a Secret and the objects from the mirror;
//! `crate::signature` checks the signatures.
//!
//! A verified revision is not verified again while the mode requires nothing more, the condition is `True`, and the
//! keys are unchanged according to the checksum in the status. If an older CRD prunes the checksum, the stored revision
//! is verified in each reconciliation, from the mirror and without network access.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::condition::{SourceCondition, find};
use sluice_api::digest::Digest;
use sluice_api::source::{GitRepositorySpec, GitRepositoryStatus, VerificationMode};
use sluice_runtime::failure::{Class, Failure};

use super::content::ContentConfig;
use super::secrets::Secrets;
use crate::git::{Checkout, Head, ReadError, TagRef};
use crate::signature::{self, ObjectKind, SignatureError, SignedObject, TrustedKeys};

/// An error that leaves a revision unverified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The Secret with the keys does not exist.
    #[error("public keys secret error: secrets \"{name}\" not found")]
    MissingKeys {
        /// Name of the Secret, in the object's namespace.
        name: String,
    },
    /// The Secret cannot be read.
    #[error("public keys secret error: {0}")]
    Keys(#[source] Box<kube::Error>),
    /// The mode requires a tag, but the reference names none.
    #[error("cannot verify tag object's signature if a tag reference is not specified")]
    NoTag,
    /// The tag is lightweight or has no signature.
    #[error("cannot verify signature of tag '{tag}' since it is not signed")]
    Unsigned {
        /// The tag, with its object name if there is one.
        tag: String,
    },
    /// The tag's signature is invalid.
    #[error("signature verification of tag '{tag}' failed: {source}")]
    Tag {
        /// The tag with its object name.
        tag: String,
        /// The cause.
        source: SignatureError,
    },
    /// The commit's signature is missing or invalid.
    #[error("signature verification of commit '{commit}' failed: {source}")]
    Commit {
        /// The full object name.
        commit: String,
        /// The cause.
        source: SignatureError,
    },
    /// The object is missing from the mirror; it is fetched again.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Failure for VerifyError {
    fn class(&self) -> Class {
        match self {
            Self::NoTag => Class::Terminal,
            Self::Read(error) => error.class(),
            // Keys and refs may change at any time.
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

/// The state of a source's signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignatureState {
    /// The spec requests no verification.
    NotRequested,
    /// The verification of an earlier reconciliation is still valid.
    StillValid,
    /// This reconciliation verified the signatures.
    Verified(Verified),
}

impl SignatureState {
    /// Returns the digest of the keys used by this reconciliation.
    pub(super) const fn keys(&self) -> Option<&Digest> {
        match self {
            Self::Verified(verified) => Some(&verified.keys),
            Self::NotRequested | Self::StillValid => None,
        }
    }
}

/// A successful verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    /// The mode, as recorded in the status.
    pub(super) mode: &'static str,
    /// The message: verified objects and keys.
    pub(super) message: String,
    /// Digest of the trusted keys.
    keys: Digest,
}

/// A requested verification, with its keys.
#[derive(Clone, Debug)]
pub(super) struct Verification {
    mode: VerificationMode,
    keys: TrustedKeys,
}

impl Verification {
    /// Loads the keys, if the spec requests verification.
    ///
    /// # Errors
    /// The Secret is missing or cannot be read.
    pub(super) async fn load(
        spec: &GitRepositorySpec,
        namespace: &str,
        secrets: &Secrets,
    ) -> Result<Option<Self>, VerifyError> {
        let Some(verify) = &spec.verify else {
            return Ok(None);
        };
        let name = &verify.secret_ref.name;
        let secret = secrets
            .read(namespace, name)
            .await
            .map_err(|error| VerifyError::Keys(Box::new(error)))?
            .ok_or_else(|| VerifyError::MissingKeys { name: name.clone() })?;
        Ok(Some(Self {
            mode: verify.mode,
            keys: TrustedKeys::new(secret.data.clone()),
        }))
    }

    /// Returns whether the stored revision must be verified again.
    pub(super) fn is_required(&self, status: &GitRepositoryStatus, content: &ContentConfig) -> bool {
        let checksum = content.checksum(Some(&self.keys.digest())).to_string();
        !is_verified(&status.conditions)
            || requires_more(status.source_verification_mode.as_deref(), self.mode)
            || status.content_config_checksum != Some(checksum)
    }

    /// Verifies the signatures. Blocks.
    ///
    /// # Errors
    /// The first missing or invalid signature; a tag is checked before its commit.
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
            let signed = SignedObject::commit(&checkout.raw_commit()?);
            match signature::verify(&signed, ObjectKind::Commit, &self.keys, now) {
                Ok(key) => text.extend(["\n\t- commit '", &commit, "' with key '", &key, "'"]),
                Err(source) => return Err(VerifyError::Commit { commit, source }),
            }
        }
        Ok(Verified {
            mode: self.mode.status_value(),
            message: text,
            keys: self.keys.digest(),
        })
    }

    /// Verifies the tag object that the ref points to; nested tags are ignored. Returns the tag and the key.
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
        let signed = SignedObject::tag(&raw);
        if signed.signature.is_empty() {
            return Err(VerifyError::Unsigned { tag });
        }
        match signature::verify(&signed, ObjectKind::Tag, &self.keys, now) {
            Ok(key) => Ok((tag, key)),
            Err(source) => Err(VerifyError::Tag { tag, source }),
        }
    }
}

fn is_verified(conditions: &[Condition]) -> bool {
    find(conditions, SourceCondition::SourceVerified).is_some_and(|existing| existing.status == "True")
}

/// Returns whether a mode requires more than the recorded verification.
fn requires_more(recorded: Option<&str>, mode: VerificationMode) -> bool {
    match (recorded, mode.status_value()) {
        (Some("TagAndHEAD"), _) => false,
        (Some(recorded), mode) => recorded != mode,
        (None, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stricter_mode_than_recorded_requires_verification() {
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
            assert_eq!(requires_more(recorded, mode), due, "{recorded:?} {mode:?}");
        }
    }
}
