//! The artifact of a source: an archive with its address and digest.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, DigestError};
use crate::revision::Revision;

/// The output of a source: a `tar.gz` with a digest, served by the source controller over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Digest of the compressed file, as `<algorithm>:<hex>`.
    #[schemars(extend("pattern" = r"^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$"))]
    pub digest: String,
    /// Time when the artifact was created.
    pub last_update_time: Time,
    /// Annotations that depend on the kind of source; unset for Git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Path of the file below the storage root.
    pub path: String,
    /// The revision of the source, e.g. `main@sha1:<commit>`.
    pub revision: String,
    /// Size of the compressed file in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// URL of the file.
    pub url: String,
}

impl Artifact {
    /// Parses the digest.
    ///
    /// # Errors
    /// The text is not a digest or has an unknown algorithm.
    pub fn checksum(&self) -> Result<Digest, DigestError> {
        self.digest.parse()
    }

    /// Parses the revision; converts legacy forms.
    #[must_use]
    pub fn parsed_revision(&self) -> Revision {
        Revision::parse(&self.revision)
    }
}
