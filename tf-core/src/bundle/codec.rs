//! The encoding of a bundle and its Secrets. The names of the Secrets are predictable, and any writer of Secrets can create or
//! replace them. So a bundle is decoded only if its digest is that of the immutable spec of the run.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use sluice_api::run::TerraformRun;

use super::{Bundle, LIMIT, VERSION};
use crate::chunk;

/// Data key of a chunk in its Secret.
const KEY: &str = "bundle";
/// Bytes of a chunk. A Secret holds 1 MiB, including its metadata.
pub const CHUNK_SIZE: usize = 1_000_000;

/// Returns the name of the first Secret of a bundle, which is a prefix of the names of the others.
#[must_use]
pub fn secret_name(run: &str) -> String {
    format!("{run}-bundle")
}

/// Returns the names of the Secrets of a run's bundle, in order. Empty if the executor passes the bundle to the runner.
pub fn secret_names(run: &TerraformRun) -> impl Iterator<Item = String> {
    let limit = LIMIT.div_ceil(CHUNK_SIZE);
    let count = usize::try_from(run.spec.bundle_secrets).unwrap_or(0).min(limit);
    let first = secret_name(run.metadata.name.as_deref().unwrap_or_default());
    (0..count).map(move |index| chunk::secret_name(&first, index))
}

/// A bundle as JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct BundlePayload {
    namespace: String,
    text: String,
}

impl BundlePayload {
    /// Returns the value of `spec.bundleDigest`: `sha256:` and hex digits.
    #[must_use]
    pub fn digest(&self) -> String {
        digest(self.text.as_bytes())
    }

    /// Returns the JSON.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// Returns the value of `spec.bundleSecrets` for a stored bundle.
    #[must_use]
    pub fn count(&self) -> i64 {
        i64::try_from(self.text.len().div_ceil(CHUNK_SIZE)).unwrap_or(i64::MAX)
    }

    /// Returns the immutable Secrets of the bundle, owned by the run, in order.
    #[must_use]
    pub fn secrets(&self, run: &str, run_uid: &str) -> Vec<Secret> {
        let owner = OwnerReference {
            api_version: "infra.sluice.dev/v1alpha1".to_owned(),
            kind: "TerraformRun".to_owned(),
            name: run.to_owned(),
            uid: run_uid.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let first = secret_name(run);
        let secret = |(index, chunk): (usize, &[u8])| Secret {
            metadata: ObjectMeta {
                name: Some(chunk::secret_name(&first, index)),
                namespace: Some(self.namespace.clone()),
                owner_references: Some(vec![owner.clone()]),
                ..ObjectMeta::default()
            },
            immutable: Some(true),
            type_: Some("Opaque".to_owned()),
            data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(chunk.to_vec()))])),
            ..Secret::default()
        };
        self.text
            .as_bytes()
            .chunks(CHUNK_SIZE)
            .enumerate()
            .map(secret)
            .collect()
    }
}

/// An error of the encoding. It contains no content of the bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It exceeds [`LIMIT`].
    #[error(
        "the run bundle (variables, environment, mapped files, configuration) has {size} bytes, more than the limit of \
         {LIMIT}; values from Secrets may count twice"
    )]
    TooLarge {
        /// Its size.
        size: usize,
    },
    /// The runner received no bundle.
    #[error("the runner received no bundle, and the run names no bundle Secrets")]
    NoInput,
    /// The runner received another bundle than that of the run.
    #[error("the runner received the bundle of another run and did not use it")]
    InputMismatch,
    /// A Secret holds no bundle, or does not exist.
    #[error("the Secret {name} has no run bundle")]
    Missing {
        /// Name of the Secret.
        name: String,
    },
    /// The Secrets hold another bundle than that of the run.
    #[error(
        "the Secret {name} is not the bundle of this run and was not used: it was replaced, or an older version created \
         the run"
    )]
    SecretMismatch {
        /// Name of the Secret.
        name: String,
    },
    /// It is not JSON of a bundle.
    #[error("the run bundle is invalid (line {line}, column {column})")]
    Malformed {
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// Another version of the controller wrote it.
    #[error("the run bundle has version {version}, this runner reads {VERSION}")]
    Version {
        /// Its version.
        version: u64,
    },
    /// The key is not hex of 32 bytes.
    #[error("the key of the run bundle is not 32 bytes in hex")]
    InvalidKey,
}

impl Bundle {
    /// Encodes the bundle as JSON.
    ///
    /// # Errors
    /// The JSON exceeds [`LIMIT`].
    pub fn encode(&self) -> Result<String, BundleError> {
        let text = serde_json::to_string(self).map_err(|error| BundleError::Malformed {
            line: error.line(),
            column: error.column(),
        })?;
        if text.len() > LIMIT {
            return Err(BundleError::TooLarge { size: text.len() });
        }
        Ok(text)
    }

    /// Decodes a bundle; rejects unknown fields and other versions.
    ///
    /// # Errors
    /// The bytes exceed [`LIMIT`], or are not a valid bundle of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, BundleError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        if bytes.len() > LIMIT {
            return Err(BundleError::TooLarge { size: bytes.len() });
        }
        let malformed = |error: serde_json::Error| BundleError::Malformed {
            line: error.line(),
            column: error.column(),
        };
        let found: Versioned = serde_json::from_slice(bytes).map_err(malformed)?;
        if found.version != u64::from(VERSION) {
            return Err(BundleError::Version {
                version: found.version,
            });
        }
        let bundle: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        bundle.key_bytes()?;
        for key in bundle.plan_keys.iter().chain(&bundle.file_keys) {
            key.bytes()?;
        }
        Ok(bundle)
    }

    /// Encodes the bundle for the runner or for its Secrets.
    ///
    /// # Errors
    /// The JSON exceeds [`LIMIT`].
    pub fn pack(&self) -> Result<BundlePayload, BundleError> {
        let (namespace, text) = (self.stack.namespace.clone(), self.encode()?);
        Ok(BundlePayload { namespace, text })
    }

    /// Decodes the bundle that a runner received, after verifying its digest.
    ///
    /// # Errors
    /// There is none, its digest is not that of the run, or it is invalid.
    pub fn from_input(text: Option<&str>, run: &TerraformRun) -> Result<Self, BundleError> {
        let text = text.ok_or(BundleError::NoInput)?;
        if digest(text.as_bytes()) != run.spec.bundle_digest {
            return Err(BundleError::InputMismatch);
        }
        Self::decode(text.as_bytes())
    }

    /// Decodes the bundle of a run from its Secrets, in order, after verifying owners and digest.
    ///
    /// # Errors
    /// A Secret is missing or not owned by the run, the digest is not that of the run, or the bundle is invalid.
    pub fn from_secrets(secrets: &[Secret], run: &TerraformRun) -> Result<Self, BundleError> {
        Self::decode(&verified_bytes(secrets, run)?)
    }
}

/// Verifies that these Secrets hold the bundle of this run.
///
/// # Errors
/// A Secret is missing or not owned by the run, or the digest is not that of the run.
pub fn verify(secrets: &[Secret], run: &TerraformRun) -> Result<(), BundleError> {
    verified_bytes(secrets, run).map(drop)
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn verified_bytes(secrets: &[Secret], run: &TerraformRun) -> Result<Vec<u8>, BundleError> {
    let uid = run.metadata.uid.as_deref().unwrap_or_default();
    let mut bytes = Vec::new();
    for (index, name) in secret_names(run).enumerate() {
        let secret = secrets.get(index);
        let data = secret.and_then(|secret| secret.data.as_ref()?.get(KEY));
        let (Some(secret), Some(data)) = (secret, data) else {
            return Err(BundleError::Missing { name });
        };
        let mut owners = secret.metadata.owner_references.iter().flatten();
        let is_own = !uid.is_empty() && owners.any(|owner| owner.uid == uid);
        if !is_own || data.0.len() > CHUNK_SIZE {
            return Err(BundleError::SecretMismatch { name });
        }
        bytes.extend_from_slice(&data.0);
    }
    if digest(&bytes) == run.spec.bundle_digest {
        return Ok(bytes);
    }
    // The digest covers all Secrets, so the altered one is unknown.
    let name = secret_names(run).collect::<Vec<_>>().join(", ");
    Err(BundleError::SecretMismatch { name })
}
