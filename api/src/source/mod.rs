//! The API group `source.toolkit.fluxcd.io`: spec and status of a Git repository, and the artifact that consumers read. The
//! schema is Flux's; Sluice's additions are marked.

mod git_repository;

use std::borrow::Cow;
use std::collections::BTreeMap;

pub use git_repository::{
    GitInclude, GitReference, GitRepository, GitRepositorySpec, GitRepositoryStatus, GitVerification,
    Provider, VerificationMode,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::annotation::{COMMIT_AUTHOR, COMMIT_SUBJECT};
use crate::condition::MessageLimit;
use crate::digest::{Digest, DigestError};
use crate::revision::Revision;

/// The API group of all source kinds.
pub const GROUP: &str = "source.toolkit.fluxcd.io";

/// The finalizer that the source controller adds to its objects.
pub const FINALIZER: &str = "finalizers.fluxcd.io";

/// Limit of the subject of a commit in an artifact and in a run.
const SUBJECT_LIMIT: MessageLimit = MessageLimit::Bytes(256);

/// Returns the subject of a commit for an artifact and a run: without control characters, and at most 256 bytes. A longer one ends in
/// `...`.
#[must_use]
pub fn short_subject(subject: &str) -> String {
    let visible: String = subject.chars().filter(|letter| !letter.is_control()).collect();
    SUBJECT_LIMIT.truncate(&visible).into_owned()
}

/// Expands the short form of ssh, `user@host:path`, to `ssh://user@host/path`; returns everything else unchanged.
#[must_use]
pub fn expand_ssh_short_form(address: &str) -> Cow<'_, str> {
    let short = || {
        let (host, path) = address.split_once(':')?;
        let is_short = !host.is_empty() && !host.contains('/') && !path.starts_with("//");
        is_short.then(|| format!("ssh://{host}/{}", path.trim_start_matches('/')))
    };
    short().map_or(Cow::Borrowed(address), Cow::Owned)
}

/// A reference to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalReference {
    /// Name of the object.
    pub name: String,
}

/// The output of a source: a `tar.gz` with a digest, served by the source controller over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Digest of the compressed file, as `<algorithm>:<hex>`.
    #[schemars(extend("pattern" = r"^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$"))]
    pub digest: String,
    /// Time when the artifact was created.
    pub last_update_time: Time,
    /// Annotations that depend on the kind of source. Of Git: infra.sluice.dev/commit-author and infra.sluice.dev/commit-subject, Sluice's additions.
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

    /// Returns the author of the commit; empty if the source does not say.
    #[must_use]
    pub fn commit_author(&self) -> &str {
        self.commit_text(COMMIT_AUTHOR)
    }

    /// Returns the subject of the commit, as [`short_subject`] has it; empty if the source does not say. Any writer of the status may have
    /// written it, so it is shortened again.
    #[must_use]
    pub fn commit_subject(&self) -> String {
        short_subject(self.commit_text(COMMIT_SUBJECT))
    }

    fn commit_text(&self, key: &str) -> &str {
        let metadata = self.metadata.as_ref();
        metadata
            .and_then(|metadata| metadata.get(key))
            .map_or("", String::as_str)
    }

    /// Returns whether it has this revision, in any of its notations.
    #[must_use]
    pub fn has_revision(&self, revision: &str) -> bool {
        // Only legacy notations, which have no colon, are converted.
        if self.revision.contains(':') {
            self.revision == revision
        } else {
            self.parsed_revision().to_string() == revision
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_compared_in_its_current_notation() {
        let hash = "b8e362c206e3d0cbb7ed22ced771a0056455a2fb";
        let current = format!("main@sha1:{hash}");
        let recorded = [
            current.clone(),
            format!("main/{hash}"),
            format!("sha1:{hash}"),
            format!("HEAD/{hash}"),
            hash.to_owned(),
            format!("dev@sha1:{hash}"),
            "a@b:c".to_owned(),
            "main".to_owned(),
            String::new(),
        ];
        for revision in recorded {
            let artifact = serde_json::json!({ "digest": "", "lastUpdateTime": "2026-01-02T03:04:05Z", "path": "",
                "revision": revision, "url": "" });
            let artifact: Artifact = serde_json::from_value(artifact).unwrap();
            for other in [current.as_str(), &format!("sha1:{hash}"), &revision, ""] {
                let is_same = artifact.parsed_revision().to_string() == *other;
                assert_eq!(artifact.has_revision(other), is_same, "{revision} {other}");
            }
        }
    }

    #[test]
    fn a_subject_is_one_short_line_without_control_characters() {
        for (subject, expected) in [
            ("Add a bucket", "Add a bucket".to_owned()),
            ("", String::new()),
            ("Add\x1b[31m a\tbucket\u{9b}\r\n", "Add[31m abucket".to_owned()),
            // Each `ü` has two bytes; 253 bytes are left before the dots.
            ("ü".repeat(200).as_str(), format!("{}...", "ü".repeat(126))),
            ("a".repeat(256).as_str(), "a".repeat(256)),
        ] {
            assert_eq!(short_subject(subject), expected, "{subject:?}");
        }
    }

    #[test]
    fn only_the_short_form_of_ssh_is_expanded() {
        for (address, expected) in [
            (
                "git@github.com:owner/repo.git",
                "ssh://git@github.com/owner/repo.git",
            ),
            ("git@h:team/lib.git", "ssh://git@h/team/lib.git"),
            ("h:/abs/lib", "ssh://h/abs/lib"),
            ("https://other/x.git", "https://other/x.git"),
            ("https://h:8443/x.git", "https://h:8443/x.git"),
            ("ssh://git@h/lib", "ssh://git@h/lib"),
            ("ftp://h/lib", "ftp://h/lib"),
            ("/srv/git/lib", "/srv/git/lib"),
            ("lib", "lib"),
            ("dir/x:y", "dir/x:y"),
        ] {
            assert_eq!(expand_ssh_short_form(address), expected);
        }
    }
}
