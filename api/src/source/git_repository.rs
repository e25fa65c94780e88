//! `GitRepository` v1: the schema of Flux's source-controller 1.9.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Artifact, LocalReference};
use crate::interval::Interval;
use crate::serialization::is_false;

/// The desired state of a Git repository: the ref to follow, the interval, and the content of the artifact.
#[expect(
    clippy::duplicated_attributes,
    reason = "printer columns repeat the same attributes"
)]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "GitRepository",
    plural = "gitrepositories",
    namespaced,
    status = "GitRepositoryStatus",
    shortname = "gitrepo",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    annotation("kustomize.toolkit.fluxcd.io/substitute", "disabled"),
    doc = "GitRepository turns the state of a Git repository into an artifact.",
    derive = "PartialEq",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "serviceAccountName can only be set when provider is 'azure' or 'aws'",
    "rule": "!has(self.serviceAccountName) || (has(self.provider) && (self.provider == 'azure' || self.provider == 'aws'))"
}]))]
pub struct GitRepositorySpec {
    /// Patterns in .gitignore syntax of files excluded from the artifact. Absent: the default patterns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Other GitRepository objects whose artifacts are merged into this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<GitInclude>,
    /// Interval at which the remote is polled. A small jitter is added.
    #[schemars(extend("pattern" = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"))]
    pub interval: Interval,
    /// Provider of the credentials. Absent: generic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    /// Secret with the address and credentials of a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalReference>,
    /// Whether submodules are fetched as well.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recurse_submodules: bool,
    /// What to check out. Absent: the branch master.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitReference>,
    /// Secret with the credentials for the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// ServiceAccount that authenticates to the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Path prefixes to check out. Absent: all paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sparse_checkout: Vec<String>,
    /// While true, the object is not reconciled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Timeout of each remote Git operation.
    #[serde(default = "one_minute")]
    #[schemars(extend("pattern" = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$"))]
    pub timeout: Interval,
    /// Address of the repository: http, https or ssh.
    #[schemars(extend("pattern" = "^(http|https|ssh)://.*$"))]
    pub url: String,
    /// Verification of the signature of the commit, the tag, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<GitVerification>,
}

impl GitRepositorySpec {
    /// Creates a spec with default values.
    #[must_use]
    pub fn new(url: impl Into<String>, interval: Interval) -> Self {
        Self {
            ignore: None,
            include: Vec::new(),
            interval,
            provider: None,
            proxy_secret_ref: None,
            recurse_submodules: false,
            reference: None,
            secret_ref: None,
            service_account_name: None,
            sparse_checkout: Vec::new(),
            suspend: false,
            timeout: one_minute(),
            url: url.into(),
            verify: None,
        }
    }
}

/// The schema's default of `spec.timeout`.
fn one_minute() -> Interval {
    Interval::from_secs(60)
}

/// A provider of credentials for Git.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Provider {
    /// Credentials from the Secret.
    Generic,
    /// AWS CodeCommit with workload identity.
    Aws,
    /// Azure DevOps with workload identity.
    Azure,
    /// A GitHub App.
    Github,
}

/// The Git reference to check out. Precedence: commit, name, tag, semver, branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitReference {
    /// Head of this branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// This commit, as its full hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Full name of a Git reference, e.g. refs/pull/420/head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The highest tag that matches this version range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    /// This tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// How signatures are verified.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitVerification {
    /// What must be signed.
    #[serde(default)]
    pub mode: VerificationMode,
    /// Secret that holds the public keys of trusted authors.
    pub secret_ref: LocalReference,
}

/// What must carry a valid signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum VerificationMode {
    /// The commit; the former spelling of `HEAD`.
    #[serde(rename = "head")]
    LegacyHead,
    /// The commit that is checked out.
    #[default]
    #[serde(rename = "HEAD")]
    Head,
    /// The tag that is checked out.
    Tag,
    /// The tag and the commit that it points to.
    #[serde(rename = "TagAndHEAD")]
    TagAndHead,
}

impl VerificationMode {
    /// Returns the value for `status.sourceVerificationMode`.
    #[must_use]
    pub const fn status_value(self) -> &'static str {
        match self {
            Self::LegacyHead | Self::Head => "HEAD",
            Self::Tag => "Tag",
            Self::TagAndHead => "TagAndHEAD",
        }
    }
}

/// Another repository whose artifact is merged into this one's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitInclude {
    /// Directory in the included artifact to copy. Absent: its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_path: Option<String>,
    /// The GitRepository whose artifact is included.
    pub repository: LocalReference,
    /// Target directory. Absent: the name of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_path: Option<String>,
}

impl GitInclude {
    /// Returns the directory to copy; empty for the root.
    #[must_use]
    pub fn source_path(&self) -> &str {
        self.from_path.as_deref().unwrap_or_default()
    }

    /// Returns the target directory.
    #[must_use]
    pub fn target_path(&self) -> &str {
        self.to_path
            .as_deref()
            .filter(|path| !path.is_empty())
            .unwrap_or(&self.repository.name)
    }
}

/// The observed state of a Git repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryStatus {
    /// The latest stored artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Conditions of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Digest of all fields that affect the artifact's content. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_config_checksum: Option<String>,
    /// Artifacts included in this one, in the order of spec.include.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included_artifacts: Vec<Artifact>,
    /// The last reconcile request that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The last generation that was reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ignore patterns of the current artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// Includes of the current artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_include: Vec<GitInclude>,
    /// Whether the current artifact contains submodules.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observed_recurse_submodules: bool,
    /// Sparse checkout paths of the current artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_sparse_checkout: Vec<String>,
    /// The verification mode of the last verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_verification_mode: Option<String>,
}
