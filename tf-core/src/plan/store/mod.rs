//! Stored plans: what an exact apply needs, in immutable Secrets `tfplan-<workspace>-<name>-<digest10>-<i>` that the Terraform
//! owns. Count and digest are recorded in each and checked when they are read; where the controller has a key for it, the
//! content is sealed. The codec is pure but for the salt of a seal; `super::super::run` writes.

mod marks;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sluice_api::annotation;

use crate::bundle::{Bundle, PlanKey, Stack};
use crate::chunk::{self, ChunkError};
use crate::seal::{SALT, SEALED_WITH, Seal, SealError, Subject, digest};

use marks::held;
pub use marks::{CHUNKS, DIGEST, RUN};
pub use marks::{
    annotations, base_name, is_labelled, is_of, labels, object_name, owner, piece, selector, selector_of_all,
    selector_of_any, short_label,
};

/// Names the form of a sealed plan.
const SEALED_FORM: &str = "sluice.plan/1";
/// Largest plan file that is stored.
pub const PLAN_LIMIT: usize = 40 * 1024 * 1024;
/// Largest plan file, and largest context, once decompressed.
const LIMIT: u64 = 64 * 1024 * 1024;
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
    /// What they have to be then; empty in a plan that was stored without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<OmittedFile>,
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
    /// Values that the plan marks as sensitive, for the texts of its apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// There are more of them than are remembered: no text of the apply is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secrets_omitted: bool,
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

/// What is known of a file that planning made and that is too large to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OmittedFile {
    /// Path below the artifact's root; empty for all the files beyond those that are named.
    pub path: String,
    /// SHA-256 of the content, in hex.
    pub sha256: String,
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
    /// It is larger than [`PLAN_LIMIT`].
    #[error(
        "the plan has {size} bytes, more than the {PLAN_LIMIT} that are stored: split the stack into smaller ones, \
         or plan it in parts with targets"
    )]
    TooLarge {
        /// Its size.
        size: usize,
    },
    /// It needs too many Secrets.
    #[error(
        "the plan and the files it made need {chunks} Secrets, more than {CHUNK_LIMIT}: split the stack into smaller ones"
    )]
    TooMany {
        /// Secrets that it would need.
        chunks: usize,
    },
    /// It is sealed with a key that this run was not given.
    #[error(
        "the stored plan {id} is sealed with the key {key:?}, which the Secret of --plan-encryption-secret does not \
         hold: put the key back, or let the stack be planned again"
    )]
    KeyMissing {
        /// The plan id.
        id: String,
        /// Id of the key.
        key: String,
    },
    /// The key does not open it, or it is not what was sealed.
    #[error(
        "the stored plan {id} cannot be opened with the key {key:?}: it is another key than the one of that name it was \
         sealed with, or the Secrets were altered"
    )]
    NotOpened {
        /// The plan id.
        id: String,
        /// Id of the key.
        key: String,
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
    /// They hold another plan than the run that made it recorded, or it recorded none.
    #[error(
        "the Secrets of plan {id} do not hold what the run {run} recorded of it: they were replaced, or an older version \
         made the plan; nothing was applied, a new plan is needed"
    )]
    NotRecorded {
        /// The plan id.
        id: String,
        /// The run that made it.
        run: String,
    },
    /// What they hold is not what is written.
    #[error("the stored plan is not understood")]
    Malformed,
    /// It cannot be compressed.
    #[error("the plan cannot be packed")]
    Packing,
}

/// The Secrets of a plan; sealed when there is a key.
///
/// # Errors
/// When it is too large.
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
    let (pieces, marks) = match key {
        None => {
            let hash = hex::encode(Sha256::digest(&stored.plan));
            let marks = [
                ("encoding", "gzip".to_owned()),
                (annotation::PLAN_HASH, hash),
                (DIGEST, digest(&[&plan, &context])),
            ];
            (
                chunk::pack(&[("tfplan", &plan), ("context", &context)]),
                marks.to_vec(),
            )
        }
        Some(key) => {
            let sealed = Seal::fresh(subject(name), key).and_then(|seal| seal.close(&plan, &context));
            let sealed = sealed.map_err(|error| sealing(error, name))?;
            let mut marks = vec![
                ("encoding", "gzip+aes-256-gcm".to_owned()),
                (DIGEST, sealed.digest),
            ];
            marks.extend(sealed.marks);
            (sealed.pieces, marks)
        }
    };
    if pieces.len() > CHUNK_LIMIT {
        return Err(StoreError::TooMany { chunks: pieces.len() });
    }
    Ok(secrets(pieces, &marks, name))
}

/// One Secret for each piece.
fn secrets(
    pieces: Vec<BTreeMap<String, ByteString>>,
    marks: &[(&'static str, String)],
    name: &PlanName,
) -> Vec<Secret> {
    let count = pieces.len();
    let mut shared: BTreeMap<String, String> = marks
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    shared.insert(CHUNKS.to_owned(), count.to_string());
    let digest = shared.get(DIGEST).map_or("", String::as_str);
    // Of the run as well: two runs may store the very same, and the older one's goes.
    let mark = hex::encode(Sha256::digest(format!("{digest} {}", name.run)));
    let secret = |(index, data)| {
        let mut annotations = annotations(name, index);
        annotations.extend(shared.clone());
        piece(
            &name.stack,
            format!("{}-{}-{index}", base_name(name), &mark[..10]),
            labels(&name.stack.name, &name.workspace),
            annotations,
            data,
        )
    };
    pieces.into_iter().enumerate().map(secret).collect()
}

/// What a run records of the Secrets of its plan.
#[must_use]
pub fn digest_of(secrets: &[Secret]) -> String {
    chunk::digest(secrets.iter().filter_map(|secret| secret.data.as_ref()))
}

/// Proves that the Secrets hold the plan that is on record. What they say of themselves counts for nothing: who may write
/// Secrets can write any of it.
///
/// # Errors
/// When chunks are missing, or hold another plan.
pub fn prove(secrets: &[Secret], name: &PlanName, recorded: &str) -> Result<(), StoreError> {
    let chunks = whole(secrets, name)?;
    if chunk::digest(chunks.iter().filter_map(|secret| secret.data.as_ref())) == recorded {
        return Ok(());
    }
    Err(StoreError::NotRecorded {
        id: name.id.clone(),
        run: name.run.clone(),
    })
}

/// Puts a plan together out of the stack's plan Secrets, whichever others are among them.
///
/// # Errors
/// When chunks are missing, altered, sealed with a key that is not there, or not understood.
pub fn decode(secrets: &[Secret], name: &PlanName, keys: &[PlanKey]) -> Result<StoredPlan, StoreError> {
    let broken = |source| StoreError::Broken {
        id: name.id.clone(),
        source,
    };
    let chunks = whole(secrets, name)?;
    let first = &chunks[0].metadata;
    let data: Vec<_> = chunks.iter().filter_map(|secret| secret.data.as_ref()).collect();
    let (plan, context) = if held(first, SEALED_WITH).is_empty() {
        let plan = chunk::joined(data.iter().copied(), "tfplan");
        let context = chunk::joined(data.iter().copied(), "context");
        if digest(&[&plan, &context]) != held(first, DIGEST) {
            return Err(broken(ChunkError::Altered));
        }
        (plan, context)
    } else {
        let (with, salt) = (held(first, SEALED_WITH), held(first, SALT));
        Seal::of_stored(subject(name), with, salt, keys)
            .and_then(|seal| seal.open(&data, held(first, DIGEST)))
            .map_err(|error| sealing(error, name))?
    };
    let plan = chunk::decompress(&plan, LIMIT).map_err(broken)?;
    let context = chunk::decompress(&context, LIMIT).map_err(broken)?;
    let context = serde_json::from_slice(&context).map_err(|_| StoreError::Malformed)?;
    Ok(StoredPlan { plan, context })
}

/// The chunks of the plan in their order, none missing; at least one.
fn whole<'s>(secrets: &'s [Secret], name: &PlanName) -> Result<Vec<&'s Secret>, StoreError> {
    let mut chunks: Vec<(usize, &Secret)> = secrets
        .iter()
        .filter(|secret| is_of(&secret.metadata, &name.id, &name.run))
        .filter_map(|secret| {
            Some((
                held(&secret.metadata, annotation::PLAN_CHUNK).parse().ok()?,
                secret,
            ))
        })
        .collect();
    chunks.sort_by_key(|(index, _)| *index);
    let Some((_, first)) = chunks.first() else {
        return Err(StoreError::NotFound { id: name.id.clone() });
    };
    let wanted = held(&first.metadata, CHUNKS).parse().unwrap_or(0);
    let in_order = chunks
        .iter()
        .enumerate()
        .all(|(place, (index, _))| place == *index);
    if chunks.len() != wanted || !in_order {
        let found = chunks.len();
        return Err(StoreError::Broken {
            id: name.id.clone(),
            source: ChunkError::Incomplete { found, wanted },
        });
    }
    Ok(chunks.into_iter().map(|(_, secret)| secret).collect())
}

/// What a sealed plan is bound to.
fn subject(name: &PlanName) -> Subject {
    let stack = &name.stack;
    let words = [
        &stack.namespace,
        &stack.name,
        &stack.uid,
        &name.workspace,
        &name.id,
        &name.run,
    ];
    Subject {
        form: SEALED_FORM,
        words: words.map(Clone::clone).to_vec(),
    }
}

fn sealing(error: SealError, name: &PlanName) -> StoreError {
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
