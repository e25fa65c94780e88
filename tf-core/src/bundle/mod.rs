//! The run bundle: all inputs of a run except the artifact, resolved by the controller. The executor passes it to the runner, or
//! the controller stores it in immutable Secrets that the run owns. `Debug` prints none of its values.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sluice_api::terraform::IgnoredDrift;

use crate::canonical;

mod codec;
mod run_environment;
mod state_check;

pub use codec::{BundleError, BundlePayload, CHUNK_SIZE, secret_name, secret_names, verify};
pub use run_environment::{CliConfig, Content, Location, MappedFile, RunEnvironment};
pub use state_check::{StateCheck, StateSecrets};

/// Largest bundle, in bytes: 16 MiB. Values from Secrets may count twice, since they are also listed in [`Bundle::secrets`].
pub const LIMIT: usize = 16 * 1024 * 1024;
/// The version of the format.
pub const VERSION: u32 = 1;
/// Shortest time from the interrupt of the CLI to its kill, in seconds: it has to write the state.
pub const MIN_CLI_GRACE_SECONDS: u64 = 60;

/// What the controller resolved for one run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bundle {
    /// [`VERSION`].
    pub version: u32,
    /// The stack.
    pub stack: Stack,
    /// The artifact of the source.
    pub artifact: Artifact,
    /// Module directory in the artifact; empty for its root.
    #[serde(default)]
    pub path: String,
    /// Workspace of the CLI.
    pub workspace: String,
    /// The CLI of the last run (`terraform` or `tofu`). It changes only with `spec.tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// `spec.tool`, if it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_tool: Option<SelectedTool>,
    /// Content of `backend_override.tf`; absent for the module's own backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Content of `generated.auto.tfvars.json`.
    pub variables: String,
    /// Variable files, relative to the artifact's root, in order.
    #[serde(default)]
    pub variable_files: Vec<String>,
    /// Environment variables of the CLI, in addition to the inherited ones.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Environment variables that the runner's pod takes from its fields and resources: the sources by name. The runner inherits them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_environment: BTreeMap<String, String>,
    /// Backend arguments, CLI configuration and mapped files.
    #[serde(default, rename = "surroundings")]
    pub run_environment: RunEnvironment,
    /// Options of the CLI commands.
    pub options: Options,
    /// The Secret for outputs, if they are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<OutputsTarget>,
    /// The form of the readable plan.
    #[serde(default)]
    pub readable_plan: ReadablePlan,
    /// The steps after an apply.
    #[serde(default, rename = "aftermath")]
    pub post_apply: PostApply,
    /// Digest of closure, variables, backend, workspace and targets.
    pub inputs_digest: String,
    /// Seconds from the interrupt of the CLI to its kill, if the stack requests more than [`MIN_CLI_GRACE_SECONDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u32>,
    /// Differences that do not count as drift; empty except for drift detection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_drift: Vec<IgnoredDrift>,
    /// Name of the last started apply run of the stack, which makes approvals single-use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_apply: Option<String>,
    /// Name of the run whose plan was rejected since the last apply. It takes the place of `last_apply` in the ids of later plans, so that
    /// no approval of the rejected plan counts for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rejected: Option<String>,
    /// Key of the object for digests of sensitive values, in hex.
    pub key: String,
    /// Keys that seal stored plans: the first seals new plans, all open stored ones. Empty: plans are not sealed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan_keys: Vec<PlanKey>,
    /// Keys that seal the files of an apply, shared by all stacks of the namespace; in the order of `plan_keys`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_keys: Vec<PlanKey>,
    /// Webhooks, called before a plan is stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<Webhook>,
    /// Values from Secrets, redacted from every text that the run shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The closure: directories and files of the artifact that the stack reads. Empty: the whole artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "reads")]
    pub closure: Vec<String>,
    /// Size limit of the files in the last applied record, in compressed bytes. Absent: no record is stored.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "keepFiles")]
    pub files_limit: Option<u64>,
    /// The last applied record that replaces the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "kept")]
    pub last_applied: Option<LastAppliedRef>,
    /// The copies of the state that the run stores before it applies.
    #[serde(default, skip_serializing_if = "StateCopies::is_unset")]
    pub state_copies: StateCopies,
    /// What the state that the CLI finds is compared with.
    #[serde(default, skip_serializing_if = "StateCheck::is_unset")]
    pub state_check: StateCheck,
    /// The stack has no earlier run, not even of another controller, so the run need not search for stored objects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nothing_stored: bool,
}

/// The CLI that `spec.tool` selects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectedTool {
    /// `terraform` or `tofu`.
    pub name: String,
    /// A version below `--tools-dir`, or a constraint, which the runner resolves; empty: the newest one, or the CLI on `PATH`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// A key that seals Secrets of this stack.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanKey {
    /// Its name in the Secret of `--plan-encryption-secret`.
    pub id: String,
    /// 32 bytes in hex, derived for this stack or its namespace.
    pub key: String,
}

impl PlanKey {
    /// Decodes the key.
    ///
    /// # Errors
    /// The key is not hex of 32 bytes.
    pub fn bytes(&self) -> Result<[u8; 32], BundleError> {
        decode_key(&self.key)
    }
}

fn decode_key(text: &str) -> Result<[u8; 32], BundleError> {
    let mut key = [0; 32];
    hex::decode_to_slice(text, &mut key).map_err(|_| BundleError::InvalidKey)?;
    Ok(key)
}

impl fmt::Debug for PlanKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PlanKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The copies of the state that runs store before they apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateCopies {
    /// Number of copies that remain; 0: none is stored.
    pub count: u16,
    /// Size limit of a copy, in compressed bytes.
    pub limit: u64,
    /// Keys that seal the copies: the first seals new ones, all open stored ones. They do not depend on the uid of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<PlanKey>,
}

impl StateCopies {
    fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

/// A service that a run calls after a plan and that may reject it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Webhook {
    /// Its URL.
    pub url: String,
    /// The body of the request.
    pub payload: String,
    /// Template over the response that must yield `true` or `yes`.
    pub test_expression: String,
    /// Template of the message if the plan is rejected.
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
    /// Its uid, for owner references.
    pub uid: String,
}

/// The artifact of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Artifact {
    /// Its URL, with a host that the run can reach.
    pub url: String,
    /// `sha256:` and hex digits, over the compressed bytes.
    pub digest: String,
    /// Its size in bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Revision of the source.
    pub revision: String,
}

/// A last applied record in its Secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LastAppliedRef {
    /// The run that wrote it.
    pub run: String,
    /// The digest of the Secrets in the status of that run.
    #[serde(default)]
    pub digest: String,
}

/// Options of the CLI commands.
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
    /// Whether `init` may upgrade providers and modules before a plan.
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

/// The outputs Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputsTarget {
    /// Its name, in the namespace of the stack.
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
    /// No readable plan.
    #[default]
    None,
    /// The plan's JSON, compressed, in Secrets.
    Json,
    /// The plan's text in ConfigMaps.
    Human,
}

/// The steps after an apply. Plans do not depend on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PostApply {
    /// Whether to list the resources of the state after an apply.
    #[serde(default)]
    pub inventory: bool,
    /// Whether to list them even without an apply, since the inventory is unknown.
    #[serde(default)]
    pub inventory_due: bool,
    /// The health checks after an apply, in order.
    #[serde(default)]
    pub health_checks: Vec<HealthCheck>,
    /// Whether to run them even without an apply, since they failed or never ran.
    #[serde(default)]
    pub health_due: bool,
}

/// One health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub kind: HealthCheckKind,
    /// Host and port, or a URL; a template over the outputs.
    pub target: String,
    /// Its timeout in milliseconds.
    pub timeout_millis: u64,
}

/// The protocol of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthCheckKind {
    /// A TCP connection.
    Tcp,
    /// An HTTP GET.
    Http,
}

impl PostApply {
    /// Returns a digest of the list of checks; empty if there are none.
    #[must_use]
    pub fn checks_digest(&self) -> String {
        if self.health_checks.is_empty() {
            return String::new();
        }
        let checks = serde_json::to_value(&self.health_checks)
            .unwrap_or_else(|_| unreachable!("health checks serialise to JSON"));
        hex::encode(&Sha256::digest(canonical::json(&checks).as_bytes())[..8])
    }
}

impl Bundle {
    /// Returns the bundle without seal keys, for storage: a sealed Secret must not contain its key. Readers have their own keys.
    #[must_use]
    pub fn without_seal_keys(&self) -> Self {
        Self {
            plan_keys: Vec::new(),
            file_keys: Vec::new(),
            state_copies: StateCopies::default(),
            ..self.clone()
        }
    }

    /// Returns the name of the last run that used up the id of a plan, by its apply or by a rejection. Empty: there is none.
    #[must_use]
    pub fn last_spent_plan(&self) -> &str {
        let newest = self.last_rejected.as_deref().or(self.last_apply.as_deref());
        newest.unwrap_or_default()
    }

    /// Decodes the key for digests of sensitive values.
    ///
    /// # Errors
    /// The key is not hex of 32 bytes.
    pub fn key_bytes(&self) -> Result<[u8; 32], BundleError> {
        decode_key(&self.key)
    }
}

impl fmt::Debug for Bundle {
    /// Prints the stack only: variables, environment and keys are sensitive.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Bundle")
            .field("stack", &self.stack)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
