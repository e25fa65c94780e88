//! The run bundle: everything a run needs beside the artifact, resolved by the controller. The executor hands it to the runner,
//! or the controller stores it in immutable Secrets that the run owns. Decoding is strict and bounded; nothing of it is printed.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sluice_api::terraform::IgnoredDrift;

pub mod aftermath;
mod secret;
pub mod surroundings;

pub use aftermath::Aftermath;
pub use secret::{PIECE, Packed, prove, secret_name, secret_names};
pub use surroundings::Surroundings;

/// Largest bundle, in bytes: 16 MiB. Values that come from Secrets may count twice, since they are also told as what is not shown.
pub const LIMIT: usize = 16 * 1024 * 1024;
/// The only version of the form so far.
pub const VERSION: u32 = 1;

/// What the controller resolved for one run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bundle {
    /// [`VERSION`].
    pub version: u32,
    /// The stack.
    pub stack: Stack,
    /// The source, as the run fetches it.
    pub artifact: Artifact,
    /// Module directory inside the artifact; empty for its root.
    #[serde(default)]
    pub path: String,
    /// Workspace; `default` is the CLI's own.
    pub workspace: String,
    /// The program this stack was last run with (`terraform` or `tofu`); it is never switched silently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What `spec.tool` came to. Absent: the stack does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_tool: Option<SelectedTool>,
    /// Text of `backend_override.tf`; absent for the module's own backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Text of `generated.auto.tfvars.json`.
    pub variables: String,
    /// Variable files, relative to the artifact's root, in order.
    #[serde(default)]
    pub variable_files: Vec<String>,
    /// Environment of the CLI beside what it inherits.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Backend arguments, the CLI's configuration, mapped files.
    #[serde(default)]
    pub surroundings: Surroundings,
    /// Options of the command lines.
    pub options: Options,
    /// Where outputs go; absent when they are not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<OutputsTarget>,
    /// Whether a readable form of the plan is stored.
    #[serde(default)]
    pub readable_plan: ReadablePlan,
    /// What follows an apply.
    #[serde(default)]
    pub aftermath: Aftermath,
    /// Digest of closure, variables, backend, workspace and targets.
    pub inputs_digest: String,
    /// Seconds from the interrupt of the CLI to its kill, where the stack asks for more than the runner gives anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u32>,
    /// Differences that are not called drift; empty for a run that is no check for drift.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_drift: Vec<IgnoredDrift>,
    /// Name of the stack's last started apply run, which makes approvals single-use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_apply: Option<String>,
    /// The object's key for digests of sensitive values, in hex.
    pub key: String,
    /// Keys that stored plans are sealed with: the first for new plans, each for those that it sealed. None: not sealed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan_keys: Vec<PlanKey>,
    /// Keys that the files of an apply are sealed with, which all stacks of the namespace have: in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_keys: Vec<PlanKey>,
    /// Services that are asked before a plan is stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<Webhook>,
    /// Values that came out of Secrets: they are taken out of every text that the run shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// What of the artifact the stack reads: directories and files from its root. Empty: all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// Most bytes of files, compressed, that are kept of what is applied, for a destroy without the source. Absent: nothing is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_files: Option<u64>,
    /// What an earlier run applied takes the place of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// Nothing is stored of the stack yet: it has no earlier run, and no other program planned it. Then nothing old is looked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nothing_stored: bool,
}

/// The program that `spec.tool` selects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectedTool {
    /// `terraform` or `tofu`.
    pub name: String,
    /// The version in the directory of installed programs; empty: whichever is on PATH.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// A key that something of this stack is sealed with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanKey {
    /// What that is called where it stands.
    pub id: String,
    /// 32 bytes in hex, derived for this stack or its namespace alone.
    pub key: String,
}

impl PlanKey {
    /// The key's bytes.
    ///
    /// # Errors
    /// When it is not hex of 32 bytes.
    pub fn bytes(&self) -> Result<[u8; 32], BundleError> {
        let mut key = [0; 32];
        hex::decode_to_slice(&self.key, &mut key).map_err(|_| BundleError::BadKey)?;
        Ok(key)
    }
}

impl fmt::Debug for PlanKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PlanKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A service that is asked whether a plan may go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Webhook {
    /// Its address.
    pub url: String,
    /// What is sent.
    pub payload: String,
    /// Template over the answer that must give true or yes.
    pub test_expression: String,
    /// Template of the message when the test fails.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error_message_template: String,
}

/// The Terraform object of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stack {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: what a run stores is owned by exactly this object.
    pub uid: String,
}

/// The artifact of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Artifact {
    /// Where it is fetched; the file server's host is already the one that this run reaches.
    pub url: String,
    /// `sha256:` and its hex digits, over the compressed bytes.
    pub digest: String,
    /// Its size in bytes, if the source tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Revision of the source.
    pub revision: String,
}

/// What an earlier run applied, in the Secrets that it was kept in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kept {
    /// The run that applied it.
    pub run: String,
    /// What that run recorded of the Secrets.
    #[serde(default)]
    pub digest: String,
}

/// Options of the command lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Options {
    /// `-target` addresses.
    #[serde(default)]
    pub targets: Vec<String>,
    /// `-lock-timeout`; empty for `0s`.
    #[serde(default)]
    pub lock_timeout: String,
    /// `-parallelism` of an apply; 0 for the CLI's default.
    #[serde(default)]
    pub parallelism: u32,
    /// Whether a plan takes the state lock.
    pub plan_lock: bool,
    /// Whether `init` may move providers and modules before a plan.
    pub upgrade_on_init: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            lock_timeout: String::new(),
            parallelism: 0,
            plan_lock: true,
            upgrade_on_init: true,
        }
    }
}

/// The Secret that outputs are written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputsTarget {
    /// Name of the Secret, in the stack's namespace.
    pub name: String,
    /// `name` or `name:alias` of each output; empty for all.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// Labels of a new Secret.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations of a new Secret.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// `spec.storeReadablePlan`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadablePlan {
    /// No readable form.
    #[default]
    None,
    /// The plan's JSON, compressed, in Secrets.
    Json,
    /// The plan's text in ConfigMaps.
    Human,
}

/// Why a bundle cannot be stored or read. No text of the bundle is part of it.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It is too large.
    #[error(
        "what the run is given (variables, environment, mapped files, configuration) has {size} bytes, more than the {LIMIT} \
         that are stored; values that come from Secrets may count twice"
    )]
    TooLarge {
        /// Its size.
        size: usize,
    },
    /// The runner was handed none.
    #[error("the runner was given no bundle, and the run names no Secrets that hold one")]
    NotGiven,
    /// The runner was handed that of another run.
    #[error(
        "the bundle that the runner was given is not the one that the controller made for this run; nothing of it was used"
    )]
    OfAnotherRun,
    /// The Secret holds no bundle.
    #[error("the Secret {name} holds no run bundle")]
    Missing {
        /// Name of the Secret.
        name: String,
    },
    /// The Secret is not the one that the run was made with.
    #[error(
        "the Secret {name} is not the bundle that the controller made for this run: it was replaced, or an older version \
         made the run; nothing of it was used"
    )]
    Foreign {
        /// Name of the Secret.
        name: String,
    },
    /// It is not the JSON of a bundle.
    #[error("the run bundle is not understood (line {line}, column {column})")]
    Malformed {
        /// Line of the first surprise.
        line: usize,
        /// Column of the first surprise.
        column: usize,
    },
    /// It was written by another version of the controller.
    #[error("the run bundle has version {version}, this runner reads {VERSION}")]
    Version {
        /// The version found.
        version: u64,
    },
    /// The key is not hex.
    #[error("the key of the run bundle is no hex text of 32 bytes")]
    BadKey,
}

impl Bundle {
    /// Its JSON.
    ///
    /// # Errors
    /// When it is longer than [`LIMIT`].
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

    /// Reads stored bytes; unknown members and other versions are refused.
    ///
    /// # Errors
    /// When the bytes are too many or are no bundle of this version.
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

    /// The same without the keys of seals: a key does not lie in what it seals. The run that opens it is given its own.
    #[must_use]
    pub fn without_seal_keys(&self) -> Self {
        Self {
            plan_keys: Vec::new(),
            file_keys: Vec::new(),
            ..self.clone()
        }
    }

    /// The key for digests of sensitive values.
    ///
    /// # Errors
    /// When it is not hex of 32 bytes.
    pub fn key_bytes(&self) -> Result<[u8; 32], BundleError> {
        let mut key = [0; 32];
        hex::decode_to_slice(&self.key, &mut key).map_err(|_| BundleError::BadKey)?;
        Ok(key)
    }
}

impl fmt::Debug for Bundle {
    /// Names the stack only: variables, environment and key are secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Bundle")
            .field("stack", &self.stack)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
