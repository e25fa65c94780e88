//! The Secret that a bundle lies in. Its name is predictable and who may write Secrets may make it first or replace it: it
//! counts only where the run, whose spec nobody can change, names the digest of its bytes.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest as _, Sha256};
use sluice_api::run::TerraformRun;

use super::{Bundle, BundleError};

/// Key of the bundle in its Secret.
const KEY: &str = "bundle";

/// Name of the Secret of a run's bundle.
#[must_use]
pub fn secret_name(run: &str) -> String {
    format!("{run}-bundle")
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

impl Bundle {
    /// What a run names in its `spec.bundleDigest`: `sha256:` and its hex digits, over the bytes that are stored.
    ///
    /// # Errors
    /// When the bundle does not fit.
    pub fn digest(&self) -> Result<String, BundleError> {
        self.encode().map(|bytes| digest(&bytes))
    }

    /// The immutable Secret that the run owns.
    ///
    /// # Errors
    /// When the bundle does not fit.
    pub fn to_secret(&self, run: &str, run_uid: &str) -> Result<Secret, BundleError> {
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(secret_name(run)),
                namespace: Some(self.stack.namespace.clone()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "infra.sluice.dev/v1alpha1".to_owned(),
                    kind: "TerraformRun".to_owned(),
                    name: run.to_owned(),
                    uid: run_uid.to_owned(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            immutable: Some(true),
            type_: Some("Opaque".to_owned()),
            data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(self.encode()?))])),
            ..Secret::default()
        })
    }

    /// Reads the bundle of a run out of its Secret. Nothing of it is looked at before its digest is found to be the run's.
    ///
    /// # Errors
    /// When the Secret is another's, holds other bytes than the run names, or no valid bundle.
    pub fn of_run(secret: &Secret, run: &TerraformRun) -> Result<Self, BundleError> {
        Self::decode(bytes_of_run(secret, run)?)
    }
}

/// Proves that a Secret is the bundle of this very run.
///
/// # Errors
/// When it is another's, or holds other bytes than the run names.
pub fn prove(secret: &Secret, run: &TerraformRun) -> Result<(), BundleError> {
    bytes_of_run(secret, run).map(drop)
}

fn bytes_of_run<'s>(secret: &'s Secret, run: &TerraformRun) -> Result<&'s [u8], BundleError> {
    let name = || secret.metadata.name.clone().unwrap_or_default();
    let data = secret.data.as_ref().and_then(|data| data.get(KEY));
    let bytes = data.ok_or_else(|| BundleError::Missing { name: name() })?;
    let uid = run.metadata.uid.as_deref().unwrap_or_default();
    let mut owners = secret.metadata.owner_references.iter().flatten();
    let is_own = !uid.is_empty() && owners.any(|owner| owner.uid == uid);
    if is_own && digest(&bytes.0) == run.spec.bundle_digest {
        Ok(&bytes.0)
    } else {
        Err(BundleError::Foreign { name: name() })
    }
}
