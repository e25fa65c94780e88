//! `GitRepository` v1: field for field the schema of Flux's source-controller 1.9.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Artifact, LocalReference};
use crate::interval::Interval;
use crate::shape::is_false;

/// The desired state of a Git repository: which ref to follow, how often, and what of it becomes the artifact.
#[expect(
    clippy::duplicated_attributes,
    reason = "each printer column repeats the words of the one before"
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
    /// Patterns, in the notation of .gitignore, of what is left out of the artifact. Absent: the default patterns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Other GitRepository objects whose artifacts are merged into this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<GitInclude>,
    /// How often the remote is asked for news. A small jitter is added.
    #[schemars(extend("pattern" = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"))]
    pub interval: Interval,
    /// Who provides the credentials. Absent means generic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    /// Secret that holds the address and credentials of a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalReference>,
    /// Whether submodules are fetched as well.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recurse_submodules: bool,
    /// What to check out. Absent: the branch master.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitReference>,
    /// Secret that holds the credentials for the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// ServiceAccount whose identity is used towards the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Only paths that begin with one of these are checked out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sparse_checkout: Vec<String>,
    /// While true, the object is not reconciled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Bound on each remote Git operation.
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
    /// A spec with every default in place.
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
    /// Credentials stand in the Secret.
    Generic,
    /// AWS CodeCommit, by workload identity.
    Aws,
    /// Azure DevOps, by workload identity.
    Azure,
    /// A GitHub App.
    Github,
}

/// Which state of the repository is wanted. Where several are set: commit, then name, tag, semver, branch.
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
    /// The newest tag that this range of versions admits.
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
    /// The commit; an older spelling of `HEAD`.
    #[serde(rename = "head")]
    LegacyHead,
    /// The commit that is checked out.
    #[default]
    #[serde(rename = "HEAD")]
    Head,
    /// The tag that is checked out.
    Tag,
    /// The tag and the commit that it names.
    #[serde(rename = "TagAndHEAD")]
    TagAndHead,
}

impl VerificationMode {
    /// The spelling that is recorded in status.
    #[must_use]
    pub const fn recorded(self) -> &'static str {
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
    /// Directory in the other artifact that is taken. Absent: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_path: Option<String>,
    /// The GitRepository whose artifact is included.
    pub repository: LocalReference,
    /// Directory it is put to. Absent: the name of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_path: Option<String>,
}

impl GitInclude {
    /// The directory that is taken; empty means the root.
    #[must_use]
    pub fn source_path(&self) -> &str {
        self.from_path.as_deref().unwrap_or_default()
    }

    /// The directory it is put to.
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
    /// The last stored artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// What is true of the object now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Digest of all fields that shape the artifact's content. Sluice's addition; tells why a pass was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_config_checksum: Option<String>,
    /// The artifacts that were merged into this one, in the order of spec.include.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included_artifacts: Vec<Artifact>,
    /// The reconcile request that was handled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The generation that was handled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The ignore patterns that the artifact was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// The includes that the artifact was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_include: Vec<GitInclude>,
    /// Whether the artifact was made with submodules.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observed_recurse_submodules: bool,
    /// The sparse paths that the artifact was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_sparse_checkout: Vec<String>,
    /// What was verified last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_verification_mode: Option<String>,
}
