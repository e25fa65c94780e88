//! Stored plans: a plan with the inputs that its apply requires, in immutable Secrets `tfplan-<workspace>-<name>-<digest10>-<i>` that the
//! Terraform object owns, sealed if the controller has a key.

mod metadata;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
pub use metadata::{
    CHUNKS, DIGEST, RUN, annotations, base_name, has_plan_name, immutable_secret, is_of_plan, labels,
    object_name, owner, selector, selector_of_all_workspaces, selector_of_names, short_label,
};
pub(crate) use metadata::{annotation_of, complete_chunks};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sluice_api::annotation;

use crate::bundle::{Bundle, PlanKey, Stack};
use crate::chunk::{self, ChunkError};
use crate::seal::{SALT, SEALED_WITH, Seal, SealError, Subject, digest};

/// Format of a sealed plan.
const SEALED_FORMAT: &str = "sluice.plan/1";
/// Size limit of a plan file, in bytes.
pub const PLAN_LIMIT: usize = 40 * 1024 * 1024;
/// Size limit of a decompressed plan file or context, in bytes.
const LIMIT: u64 = 64 * 1024 * 1024;
/// Limit of the Secrets of one plan.
const CHUNK_LIMIT: usize = 64;

/// A plan with everything that its apply requires.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredPlan {
    /// The plan file; empty if the CLI could not save the plan.
    pub plan: Vec<u8>,
    /// Everything else.
    pub context: PlanContext,
}

/// The requirements of an apply except for the plan file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanContext {
    /// The bundle of the plan run.
    pub bundle: Bundle,
    /// `.terraform.lock.hcl`, if it exists.
    pub provider_lock: Option<String>,
    /// Files that the plan generated.
    pub files: Vec<GeneratedFile>,
    /// Some were too large and are generated again before the apply.
    pub files_omitted: bool,
    /// The digests of these files; empty in plans of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "omitted")]
    pub omitted_files: Vec<OmittedFile>,
    /// Digest of the downloaded modules.
    pub modules: String,
    /// The effect digest.
    pub effect: String,
    /// `terraform` or `tofu`.
    pub tool: String,
    /// Its version.
    pub tool_version: String,
    /// Whether it is a destroy plan.
    pub destroy: bool,
    /// Values that the plan marks as sensitive, to redact them in the output of its apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// There are more such values than the limit, so no output of the apply is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secrets_omitted: bool,
}

/// A file that a plan generated.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GeneratedFile {
    /// Path from the root of the artifact.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Content, in base64.
    pub content: String,
}

impl GeneratedFile {
    /// Encodes a file.
    #[must_use]
    pub fn new(path: String, mode: u32, bytes: &[u8]) -> Self {
        Self {
            path,
            mode,
            content: STANDARD.encode(bytes),
        }
    }

    /// Decodes the content.
    ///
    /// # Errors
    /// The content is not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, StoreError> {
        STANDARD.decode(&self.content).map_err(|_| StoreError::Malformed)
    }
}

/// The digest of a generated file that is too large to store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OmittedFile {
    /// Path from the root of the artifact; empty for all files beyond the limit of the list.
    pub path: String,
    /// SHA-256 of the content, in hex.
    pub sha256: String,
}

/// Identifies a plan of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanName {
    /// The stack.
    pub stack: Stack,
    /// The workspace.
    pub workspace: String,
    /// The plan id.
    pub id: String,
    /// The run that created it.
    pub run: String,
}

/// A plan cannot be stored or read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StoreError {
    /// It exceeds [`PLAN_LIMIT`].
    #[error(
        "the plan has {size} bytes, more than the limit of {PLAN_LIMIT}: split the stack into smaller ones, \
         or plan it in parts with targets"
    )]
    TooLarge {
        /// Its size.
        size: usize,
    },
    /// It needs too many Secrets.
    #[error(
        "the plan and its generated files need {chunks} Secrets, more than {CHUNK_LIMIT}: split the stack into smaller ones"
    )]
    TooMany {
        /// Number of Secrets.
        chunks: usize,
    },
    /// It is sealed with an unknown key.
    #[error(
        "the stored plan {id} is sealed with the key {key:?}, which the Secret of --plan-encryption-secret does not \
         contain: restore the key, or create a new plan"
    )]
    KeyMissing {
        /// The plan id.
        id: String,
        /// Id of the key.
        key: String,
    },
    /// The key is wrong, or the Secrets were altered.
    #[error(
        "the stored plan {id} cannot be decrypted with the key {key:?}: the key was replaced under this name, or the \
         Secrets were modified"
    )]
    NotOpened {
        /// The plan id.
        id: String,
        /// Id of the key.
        key: String,
    },
    /// It does not exist.
    #[error("no plan secrets found for plan {id}")]
    NotFound {
        /// The plan id.
        id: String,
    },
    /// Chunks are missing or altered.
    #[error("the stored plan {id} is damaged: {source}")]
    Broken {
        /// The plan id.
        id: String,
        /// The error.
        source: ChunkError,
    },
    /// The digest is not the one in the status of the run that created it.
    #[error(
        "the Secrets of plan {id} do not have the digest that run {run} recorded: they were replaced, or an older version \
         created the plan; nothing was applied, a new plan is required"
    )]
    NotRecorded {
        /// The plan id.
        id: String,
        /// The run that created it.
        run: String,
    },
    /// The content is malformed.
    #[error("the stored plan is invalid")]
    Malformed,
    /// It cannot be compressed or sealed.
    #[error("the plan cannot be compressed or sealed")]
    Packing,
}

/// Encodes a plan into Secrets, sealed if there is a key.
///
/// # Errors
/// The plan is too large.
pub fn encode(
    stored: &StoredPlan,
    name: &PlanName,
    key: Option<&PlanKey>,
) -> Result<Vec<Secret>, StoreError> {
    if stored.plan.len() > PLAN_LIMIT {
        return Err(StoreError::TooLarge {
            size: stored.plan.len(),
        });
    }
    let context = serde_json::to_vec(&stored.context).map_err(|_| StoreError::Malformed)?;
    let plan = chunk::compress(&stored.plan).map_err(|_| StoreError::Packing)?;
    let context = chunk::compress(&context).map_err(|_| StoreError::Packing)?;
    let (chunks, common) = match key {
        None => {
            let hash = hex::encode(Sha256::digest(&stored.plan));
            let common = [
                ("encoding", "gzip".to_owned()),
                (annotation::PLAN_HASH, hash),
                (DIGEST, digest(&[&plan, &context])),
            ];
            (
                chunk::pack(&[("tfplan", &plan), ("context", &context)]),
                common.to_vec(),
            )
        }
        Some(key) => {
            let sealed =
                Seal::with_random_salt(subject(name), key).and_then(|seal| seal.seal(&plan, &context));
            let sealed = sealed.map_err(|error| seal_error(error, name))?;
            let mut common = vec![
                ("encoding", "gzip+aes-256-gcm".to_owned()),
                (DIGEST, sealed.digest),
            ];
            common.extend(sealed.annotations);
            (sealed.chunks, common)
        }
    };
    if chunks.len() > CHUNK_LIMIT {
        return Err(StoreError::TooMany { chunks: chunks.len() });
    }
    Ok(secrets(chunks, &common, name))
}

/// Returns one Secret for each chunk.
fn secrets(
    chunks: Vec<BTreeMap<String, ByteString>>,
    common: &[(&'static str, String)],
    name: &PlanName,
) -> Vec<Secret> {
    let count = chunks.len();
    let mut common: BTreeMap<String, String> = common
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    common.insert(CHUNKS.to_owned(), count.to_string());
    let digest = common.get(DIGEST).map_or("", String::as_str);
    // The name depends on the run as well: two runs may store equal plans, and cleanup deletes the older ones.
    let name_digest = hex::encode(Sha256::digest(format!("{digest} {}", name.run)));
    let secret = |(index, data)| {
        let mut annotations = annotations(name, index);
        annotations.extend(common.clone());
        immutable_secret(
            &name.stack,
            format!("{}-{}-{index}", base_name(name), &name_digest[..10]),
            labels(&name.stack.name, &name.workspace),
            annotations,
            data,
        )
    };
    chunks.into_iter().enumerate().map(secret).collect()
}

/// Returns the digest of a plan, which the run writes into its status.
#[must_use]
pub fn digest_of(secrets: &[Secret]) -> String {
    chunk::digest(secrets.iter().filter_map(|secret| secret.data.as_ref()))
}

/// Verifies that the Secrets have the digest in the status of the run. Digests in their annotations prove nothing, since any
/// writer of Secrets can set them.
///
/// # Errors
/// Chunks are missing, or the digest differs.
pub fn verify(secrets: &[Secret], name: &PlanName, recorded: &str) -> Result<(), StoreError> {
    let chunks = chunks_of(secrets, name)?;
    if chunk::digest(chunks.iter().filter_map(|secret| secret.data.as_ref())) == recorded {
        return Ok(());
    }
    Err(StoreError::NotRecorded {
        id: name.id.clone(),
        run: name.run.clone(),
    })
}

/// Decodes a plan from its Secrets. Ignores other Secrets.
///
/// # Errors
/// Chunks are missing, altered, malformed, or sealed with an unknown key.
pub fn decode(secrets: &[Secret], name: &PlanName, keys: &[PlanKey]) -> Result<StoredPlan, StoreError> {
    let broken = |source| StoreError::Broken {
        id: name.id.clone(),
        source,
    };
    let chunks = chunks_of(secrets, name)?;
    let first = &chunks[0].metadata;
    let data: Vec<_> = chunks.iter().filter_map(|secret| secret.data.as_ref()).collect();
    let (plan, context) = if annotation_of(first, SEALED_WITH).is_empty() {
        let plan = chunk::join(data.iter().copied(), "tfplan");
        let context = chunk::join(data.iter().copied(), "context");
        if digest(&[&plan, &context]) != annotation_of(first, DIGEST) {
            return Err(broken(ChunkError::Altered));
        }
        (plan, context)
    } else {
        let (key_id, salt) = (annotation_of(first, SEALED_WITH), annotation_of(first, SALT));
        Seal::for_stored(subject(name), key_id, salt, keys)
            .and_then(|seal| seal.open(&data, annotation_of(first, DIGEST)))
            .map_err(|error| seal_error(error, name))?
    };
    let plan = chunk::decompress(&plan, LIMIT).map_err(broken)?;
    let context = chunk::decompress(&context, LIMIT).map_err(broken)?;
    let context = serde_json::from_slice(&context).map_err(|_| StoreError::Malformed)?;
    Ok(StoredPlan { plan, context })
}

/// Returns all chunks of a plan in order; at least one.
fn chunks_of<'s>(secrets: &'s [Secret], name: &PlanName) -> Result<Vec<&'s Secret>, StoreError> {
    let id = || name.id.clone();
    let own = secrets
        .iter()
        .filter(|secret| is_of_plan(&secret.metadata, &name.id, &name.run));
    let chunks = complete_chunks(own, annotation::PLAN_CHUNK, CHUNKS);
    let chunks = chunks.map_err(|source| StoreError::Broken { id: id(), source })?;
    if chunks.is_empty() {
        return Err(StoreError::NotFound { id: id() });
    }
    Ok(chunks)
}

/// Binds a sealed plan to the stack, the workspace, the plan id and the run.
fn subject(name: &PlanName) -> Subject {
    let stack = &name.stack;
    let identity = [
        &stack.namespace,
        &stack.name,
        &stack.uid,
        &name.workspace,
        &name.id,
        &name.run,
    ];
    Subject {
        format: SEALED_FORMAT,
        identity: identity.map(Clone::clone).to_vec(),
    }
}

fn seal_error(error: SealError, name: &PlanName) -> StoreError {
    let id = name.id.clone();
    match error {
        SealError::KeyMissing { key } => StoreError::KeyMissing { id, key },
        SealError::NotOpened { key } => StoreError::NotOpened { id, key },
        SealError::Altered => StoreError::Broken {
            id,
            source: ChunkError::Altered,
        },
        SealError::Malformed => StoreError::Malformed,
        SealError::Sealing => StoreError::Packing,
    }
}

#[cfg(test)]
mod tests;
