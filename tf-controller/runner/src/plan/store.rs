//! Stored plans: what an exact apply needs, in immutable Secrets `tfplan-<workspace>-<name>-<digest10>-<i>` that the Terraform
//! owns. Count and digest are recorded in each and checked when they are read. The codec is pure; `super::super::run` writes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sluice_api::annotation;
use sluice_api::terraform::{workspace_label, workspace_part};

use crate::bundle::{Bundle, Stack};
use crate::chunk::{self, ChunkError};

/// Annotation: number of chunks.
pub const CHUNKS: &str = "infra.sluice.dev/plan-chunks";
/// Annotation: SHA-256 over all chunks.
pub const DIGEST: &str = "infra.sluice.dev/plan-digest";
/// Annotation: the run that made the plan.
pub const RUN: &str = "infra.sluice.dev/run";
/// Largest plan file, and largest context, once decompressed.
const LIMIT: u64 = 256 * 1024 * 1024;
/// Longest front of an object's name: a digest and a number follow.
const NAME_LIMIT: usize = 230;
/// Most Secrets of one plan.
const CHUNK_LIMIT: usize = 64;

/// A plan with all that its exact apply needs.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredPlan {
    /// The plan file; empty for a plan that its CLI could not save.
    pub plan: Vec<u8>,
    /// What lay around it.
    pub context: PlanContext,
}

/// What an exact apply needs beside the plan file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanContext {
    /// The bundle that the plan was made with.
    pub bundle: Bundle,
    /// `.terraform.lock.hcl`, when there is one.
    pub provider_lock: Option<String>,
    /// Files that planning made.
    pub files: Vec<MadeFile>,
    /// They were too large to keep: they are made again before the apply.
    pub files_omitted: bool,
    /// Digest of the modules that `init` downloaded.
    pub modules: String,
    /// The effect digest.
    pub effect: String,
    /// `terraform` or `tofu`.
    pub tool: String,
    /// Its version.
    pub tool_version: String,
    /// Whether it is a plan to destroy.
    pub destroy: bool,
}

/// One file that planning made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MadeFile {
    /// Path below the artifact's root.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Content, in base64.
    pub content: String,
}

impl MadeFile {
    /// Of a file's bytes.
    #[must_use]
    pub fn new(path: String, mode: u32, bytes: &[u8]) -> Self {
        Self {
            path,
            mode,
            content: STANDARD.encode(bytes),
        }
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// When the text is no base64.
    pub fn bytes(&self) -> Result<Vec<u8>, StoreError> {
        STANDARD.decode(&self.content).map_err(|_| StoreError::Malformed)
    }
}

/// Which plan of which stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanName {
    /// The stack.
    pub stack: Stack,
    /// The workspace.
    pub workspace: String,
    /// The plan id.
    pub id: String,
    /// The run that made it.
    pub run: String,
}

/// Why a plan cannot be stored or loaded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StoreError {
    /// It needs too many Secrets.
    #[error("the plan needs {chunks} Secrets, more than {CHUNK_LIMIT}")]
    TooLarge {
        /// Secrets that it would need.
        chunks: usize,
    },
    /// There is none.
    #[error("no plan secrets found for plan {id}")]
    NotFound {
        /// The plan id.
        id: String,
    },
    /// The chunks are not whole.
    #[error("the stored plan {id} is not whole: {source}")]
    Broken {
        /// The plan id.
        id: String,
        /// What is wrong.
        source: ChunkError,
    },
    /// What they hold is not what is written.
    #[error("the stored plan is not understood")]
    Malformed,
    /// It cannot be compressed.
    #[error("the plan cannot be packed")]
    Packing,
}

/// The Secrets of a plan.
///
/// # Errors
/// When it is too large.
pub fn encode(stored: &StoredPlan, name: &PlanName) -> Result<Vec<Secret>, StoreError> {
    let context = serde_json::to_vec(&stored.context).map_err(|_| StoreError::Malformed)?;
    let plan = chunk::compress(&stored.plan).map_err(|_| StoreError::Packing)?;
    let context = chunk::compress(&context).map_err(|_| StoreError::Packing)?;
    let pieces = chunk::pack(&[("tfplan", &plan), ("context", &context)]);
    if pieces.len() > CHUNK_LIMIT {
        return Err(StoreError::TooLarge { chunks: pieces.len() });
    }
    let digest = digest(&plan, &context);
    // Of the run as well: two runs may store the very same, and the older one's goes.
    let mark = hex::encode(Sha256::digest(format!("{digest} {}", name.run)));
    let count = pieces.len();
    let hash = hex::encode(Sha256::digest(&stored.plan));
    let secrets = pieces.into_iter().enumerate().map(|(index, data)| {
        let mut annotations = annotations(name, index);
        annotations.insert(annotation::PLAN_HASH.to_owned(), hash.clone());
        annotations.insert("encoding".to_owned(), "gzip".to_owned());
        annotations.insert(CHUNKS.to_owned(), count.to_string());
        annotations.insert(DIGEST.to_owned(), digest.clone());
        Secret {
            metadata: ObjectMeta {
                name: Some(format!("{}-{}-{index}", base_name(name), &mark[..10])),
                namespace: Some(name.stack.namespace.clone()),
                labels: Some(labels(&name.stack.name, &name.workspace)),
                annotations: Some(annotations),
                owner_references: Some(vec![owner(&name.stack)]),
                ..ObjectMeta::default()
            },
            immutable: Some(true),
            type_: Some("Opaque".to_owned()),
            data: Some(data),
            ..Secret::default()
        }
    });
    Ok(secrets.collect())
}

/// Puts a plan together out of the stack's plan Secrets, whichever others are among them.
///
/// # Errors
/// When chunks are missing, altered or not understood.
pub fn decode(secrets: &[Secret], id: &str, run: &str) -> Result<StoredPlan, StoreError> {
    let broken = |source| StoreError::Broken {
        id: id.to_owned(),
        source,
    };
    let mut chunks: Vec<(usize, &Secret)> = secrets
        .iter()
        .filter(|secret| held(secret, annotation::SAVED_PLAN) == id && held(secret, RUN) == run)
        .filter_map(|secret| Some((held(secret, annotation::PLAN_CHUNK).parse().ok()?, secret)))
        .collect();
    chunks.sort_by_key(|(index, _)| *index);
    let Some((_, first)) = chunks.first() else {
        return Err(StoreError::NotFound { id: id.to_owned() });
    };
    let wanted = held(first, CHUNKS).parse().unwrap_or(0);
    let in_order = chunks
        .iter()
        .enumerate()
        .all(|(place, (index, _))| place == *index);
    if chunks.len() != wanted || !in_order {
        return Err(broken(ChunkError::Incomplete {
            found: chunks.len(),
            wanted,
        }));
    }
    let data: Vec<_> = chunks
        .iter()
        .filter_map(|(_, secret)| secret.data.as_ref())
        .collect();
    let plan = chunk::joined(data.iter().copied(), "tfplan");
    let context = chunk::joined(data.iter().copied(), "context");
    if digest(&plan, &context) != held(first, DIGEST) {
        return Err(broken(ChunkError::Altered));
    }
    let plan = chunk::decompress(&plan, LIMIT).map_err(broken)?;
    let context = chunk::decompress(&context, LIMIT).map_err(broken)?;
    let context = serde_json::from_slice(&context).map_err(|_| StoreError::Malformed)?;
    Ok(StoredPlan { plan, context })
}

/// The label selector of a stack's plan Secrets in all workspaces.
#[must_use]
pub fn selector_of_all(stack: &str) -> String {
    format!("{}={}", annotation::PLAN_NAME, short_label(stack))
}

/// The label selector of a stack's plan Secrets.
#[must_use]
pub fn selector(stack: &str, workspace: &str) -> String {
    let labels = labels(stack, workspace);
    labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// `tfplan-<workspace>-<name>`.
#[must_use]
pub fn base_name(name: &PlanName) -> String {
    object_name("tfplan", &name.workspace, &name.stack.name)
}

/// `<kind>-<workspace>-<stack>`, as upstream names them, where that is a name; else one that is, with a hash.
#[must_use]
pub fn object_name(kind: &str, workspace: &str, stack: &str) -> String {
    let name = format!("{kind}-{}-{stack}", workspace_part(workspace));
    if name.len() <= NAME_LIMIT {
        return name;
    }
    let front: String = name.chars().take(NAME_LIMIT - 17).collect();
    let hash = hex::encode(&Sha256::digest(name.as_bytes())[..8]);
    format!("{}-{hash}", front.trim_end_matches(['-', '.']))
}

/// Labels of everything stored of a plan.
#[must_use]
pub fn labels(plan_name: &str, workspace: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (annotation::PLAN_NAME.to_owned(), short_label(plan_name)),
        (annotation::PLAN_WORKSPACE.to_owned(), workspace_label(workspace)),
    ])
}

/// Annotations of one chunk.
#[must_use]
pub fn annotations(name: &PlanName, index: usize) -> BTreeMap<String, String> {
    BTreeMap::from([
        (annotation::SAVED_PLAN.to_owned(), name.id.clone()),
        (annotation::PLAN_FULL_NAME.to_owned(), name.stack.name.clone()),
        (annotation::PLAN_FULL_WORKSPACE.to_owned(), name.workspace.clone()),
        (annotation::PLAN_CHUNK.to_owned(), index.to_string()),
        (RUN.to_owned(), name.run.clone()),
    ])
}

/// The Terraform as an owner that does not block its deletion.
#[must_use]
pub fn owner(stack: &Stack) -> OwnerReference {
    OwnerReference {
        api_version: "infra.contrib.fluxcd.io/v1alpha2".to_owned(),
        kind: "Terraform".to_owned(),
        name: stack.name.clone(),
        uid: stack.uid.clone(),
        ..OwnerReference::default()
    }
}

/// A label value of at most 63 characters: longer ones are cut and told apart by a hash, as upstream.
#[must_use]
pub fn short_label(text: &str) -> String {
    if text.len() <= 63 {
        return text.to_owned();
    }
    let front: String = text.chars().take(46).collect();
    format!("{front}-{}", hex::encode(&Sha256::digest(text.as_bytes())[..8]))
}

fn held<'a>(secret: &'a Secret, key: &str) -> &'a str {
    secret
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(key))
        .map_or("", String::as_str)
}

fn digest(plan: &[u8], context: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update((plan.len() as u64).to_be_bytes());
    hash.update(plan);
    hash.update(context);
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests;
