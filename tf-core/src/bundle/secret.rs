//! The Secrets that a bundle lies in. Their names are predictable and who may write Secrets may make them first or replace them:
//! they count only where the run, whose spec nobody can change, names the digest of their bytes.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest as _, Sha256};
use sluice_api::run::TerraformRun;

use super::{Bundle, BundleError, LIMIT};

/// Key of the bundle, or of a piece of it, in its Secret.
const KEY: &str = "bundle";
/// Bytes in one Secret: it holds 1 MiB, the rest is for its metadata.
pub const PIECE: usize = 1_000_000;

/// Name of the Secret of a run's bundle, of the first one where there are several. The names of the others begin with it.
#[must_use]
pub fn secret_name(run: &str) -> String {
    format!("{run}-bundle")
}

/// The name of one of the Secrets, counted from 0.
fn piece_name(run: &str, index: usize) -> String {
    let first = secret_name(run);
    if index == 0 {
        first
    } else {
        format!("{first}-{index}")
    }
}

/// The names of the Secrets that a run's bundle lies in, in their order, as many as its spec says. None where the executor hands
/// the bundle to the runner.
pub fn secret_names(run: &TerraformRun) -> impl Iterator<Item = String> {
    let most = LIMIT.div_ceil(PIECE);
    let count = usize::try_from(run.spec.bundle_secrets).unwrap_or(0).min(most);
    let name = run.metadata.name.clone().unwrap_or_default();
    (0..count).map(move |index| piece_name(&name, index))
}

/// A bundle as JSON: what its digest is about, what is handed to the runner or stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed {
    namespace: String,
    text: String,
}

impl Packed {
    /// What a run names in its `spec.bundleDigest`: `sha256:` and its hex digits.
    #[must_use]
    pub fn digest(&self) -> String {
        digest(self.text.as_bytes())
    }

    /// The JSON.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// What a run names in its `spec.bundleSecrets` if the bundle is stored: in how many Secrets it lies.
    #[must_use]
    pub fn count(&self) -> i64 {
        i64::try_from(self.text.len().div_ceil(PIECE)).unwrap_or(i64::MAX)
    }

    /// The immutable Secrets that the run owns, in their order.
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
        let secret = |(index, piece): (usize, &[u8])| Secret {
            metadata: ObjectMeta {
                name: Some(piece_name(run, index)),
                namespace: Some(self.namespace.clone()),
                owner_references: Some(vec![owner.clone()]),
                ..ObjectMeta::default()
            },
            immutable: Some(true),
            type_: Some("Opaque".to_owned()),
            data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(piece.to_vec()))])),
            ..Secret::default()
        };
        self.text
            .as_bytes()
            .chunks(PIECE)
            .enumerate()
            .map(secret)
            .collect()
    }
}

impl Bundle {
    /// Its JSON.
    ///
    /// # Errors
    /// When it is larger than [`LIMIT`].
    pub fn pack(&self) -> Result<Packed, BundleError> {
        let (namespace, text) = (self.stack.namespace.clone(), self.encode()?);
        Ok(Packed { namespace, text })
    }

    /// Reads the bundle that a runner was handed. Nothing of it is decoded before its digest is found to be the run's.
    ///
    /// # Errors
    /// When there is none, it is not the run's, or no valid bundle.
    pub fn of_input(text: Option<&str>, run: &TerraformRun) -> Result<Self, BundleError> {
        let text = text.ok_or(BundleError::NotGiven)?;
        if digest(text.as_bytes()) != run.spec.bundle_digest {
            return Err(BundleError::OfAnotherRun);
        }
        Self::decode(text.as_bytes())
    }

    /// Reads the bundle of a run out of its Secrets, which are in their order. Nothing of it is looked at before its digest is
    /// found to be the run's.
    ///
    /// # Errors
    /// When a Secret is another's, they hold other bytes than the run names, or no valid bundle.
    pub fn of_run(secrets: &[Secret], run: &TerraformRun) -> Result<Self, BundleError> {
        Self::decode(&bytes_of_run(secrets, run)?)
    }
}

/// Proves that these Secrets are the bundle of this very run.
///
/// # Errors
/// When one is another's, or they hold other bytes than the run names.
pub fn prove(secrets: &[Secret], run: &TerraformRun) -> Result<(), BundleError> {
    bytes_of_run(secrets, run).map(drop)
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn bytes_of_run(secrets: &[Secret], run: &TerraformRun) -> Result<Vec<u8>, BundleError> {
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
        if !is_own || data.0.len() > PIECE {
            return Err(BundleError::Foreign { name });
        }
        bytes.extend_from_slice(&data.0);
    }
    if digest(&bytes) == run.spec.bundle_digest {
        return Ok(bytes);
    }
    // Which of them it was cannot be told.
    let name = secret_names(run).collect::<Vec<_>>().join(", ");
    Err(BundleError::Foreign { name })
}
