//! The hand-over between source and consumers: one archive, its address and its checksum.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, DigestError};
use crate::revision::Revision;

/// The output of a source: a checksummed `tar.gz` that the source controller serves over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Digest of the compressed file, as `<algorithm>:<hex>`.
    #[schemars(extend("pattern" = r"^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$"))]
    pub digest: String,
    /// When this artifact was archived.
    pub last_update_time: Time,
    /// Annotations of the source's own kind; unset for Git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Path of the file below the storage root.
    pub path: String,
    /// What the source's origin called this state, e.g. `main@sha1:<commit>`.
    pub revision: String,
    /// Number of bytes of the compressed file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Where the file can be fetched.
    pub url: String,
}

impl Artifact {
    /// The digest, parsed.
    ///
    /// # Errors
    /// When the text is of another form, or names an algorithm that is not known.
    pub fn checksum(&self) -> Result<Digest, DigestError> {
        self.digest.parse()
    }

    /// The revision, parsed; legacy forms are rewritten.
    #[must_use]
    pub fn parsed_revision(&self) -> Revision {
        Revision::parse(&self.revision)
    }
}
