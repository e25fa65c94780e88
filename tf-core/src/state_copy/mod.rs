//! State copies: copies of a state that a run stores before it applies, in immutable Secrets
//! `tfcopy-<workspace>-<name>-<digest10>-<i>`, sealed if plans are. They have no owner: they stay when the Terraform object is
//! deleted and its state stays. A copy is named by its content, so an unchanged state has one copy.

mod retention;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
pub use retention::{StoredCopy, outdated, stored_copies};
use sluice_api::terraform::workspace_label;

use crate::bundle::{PlanKey, Stack};
use crate::chunk::{self, ChunkError};
use crate::plan::store::{RUN, annotation_of, complete_chunks, immutable_secret, object_name, short_label};
use crate::seal::{SALT, SEALED_WITH, Seal, SealError, Subject};
use crate::state_summary::StateSummary;

/// Label: the stack.
pub const LABEL: &str = "infra.sluice.dev/state-copy";
/// Label: the workspace.
pub const WORKSPACE: &str = "infra.sluice.dev/state-copy-workspace";
/// Label: the id of the copy, the first digits of its digest.
pub const ID: &str = "infra.sluice.dev/state-copy-id";
/// Label: the serial of the state.
pub const SERIAL: &str = "infra.sluice.dev/state-serial";
/// Annotation: the lineage of the state.
pub const LINEAGE: &str = "infra.sluice.dev/state-lineage";
/// Annotation: the number of its managed resources.
pub const RESOURCES: &str = "infra.sluice.dev/state-resources";
/// Annotation: the revision that the run applies.
pub const REVISION: &str = "infra.sluice.dev/revision";
/// Annotation: when the copy was made, or was needed again.
pub const TIME: &str = "infra.sluice.dev/copied-at";
const INDEX: &str = "infra.sluice.dev/chunk";
const COUNT: &str = "infra.sluice.dev/chunks";
const DIGEST: &str = "infra.sluice.dev/digest";
/// Data key of a copy that is not sealed: gzip.
const DATA_KEY: &str = "state";
/// Format of a sealed copy.
const SEALED_FORMAT: &str = "sluice.state-copy/1";
/// Size limit of a state that is copied, in bytes. It is read into memory.
pub const STATE_LIMIT: u64 = 256 * 1024 * 1024;
/// Limit of the Secrets of one copy: their names sort by their index.
const CHUNK_LIMIT: usize = 100;

/// The state that is copied, and why.
#[derive(Clone, Copy, Debug)]
pub struct CopyOrigin<'a> {
    /// The stack.
    pub stack: &'a Stack,
    /// The workspace of the CLI.
    pub workspace: &'a str,
    /// The run that applies next.
    pub run: &'a str,
    /// The revision that it applies.
    pub revision: &'a str,
    /// When the copy is made, as RFC 3339.
    pub time: &'a str,
}

/// A copy cannot be made or read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StateCopyError {
    /// The copy exceeds the limit.
    #[error("the state has {size} bytes, compressed, more than --state-copy-limit={limit}")]
    TooLarge {
        /// Its compressed size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The state is too large to be read.
    #[error("the state has {size} bytes, more than the limit of {STATE_LIMIT}")]
    StateTooLarge {
        /// Its size.
        size: u64,
    },
    /// The CLI encrypts the state, and a copy would not be encrypted.
    #[error(
        "OpenTofu encrypts the state, and a copy would not be encrypted: configure --plan-encryption-secret, which seals copies"
    )]
    Unencrypted,
    /// Chunks are missing, or the bytes are not a compressed state.
    #[error("the copy {id} is damaged: {source}")]
    Broken {
        /// The id of the copy.
        id: String,
        /// The error.
        source: ChunkError,
    },
    /// The copy is sealed and cannot be opened.
    #[error("the copy {id} {source}")]
    Sealed {
        /// The id of the copy.
        id: String,
        /// The error.
        source: SealError,
    },
    /// The copy cannot be compressed or sealed.
    #[error("the state cannot be compressed or sealed")]
    Packing,
}

impl StateCopyError {
    /// Returns whether an apply begins without the copy.
    #[must_use]
    pub const fn permits_apply(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. } | Self::StateTooLarge { .. } | Self::Unencrypted
        )
    }
}

/// Encodes a copy into Secrets, sealed if there is a key. The same state has the same Secrets, except for what
/// describes the run.
///
/// # Errors
/// The compressed state is larger than `limit`.
pub fn encode(
    state: &[u8],
    summary: &StateSummary,
    origin: CopyOrigin<'_>,
    key: Option<&PlanKey>,
    limit: u64,
) -> Result<Vec<Secret>, StateCopyError> {
    let packed = chunk::compress(state).map_err(|_| StateCopyError::Packing)?;
    let size = packed.len() as u64;
    let limit = limit.min(((CHUNK_LIMIT - 1) * chunk::CHUNK_SIZE) as u64);
    if size > limit {
        return Err(StateCopyError::TooLarge { size, limit });
    }
    let mut common = BTreeMap::from([
        (LINEAGE.to_owned(), summary.lineage.clone()),
        (RESOURCES.to_owned(), summary.resources.to_string()),
        (RUN.to_owned(), origin.run.to_owned()),
        (REVISION.to_owned(), origin.revision.to_owned()),
        (TIME.to_owned(), origin.time.to_owned()),
    ]);
    let (chunks, digest) = match key {
        None => (
            chunk::pack(&[(DATA_KEY, &packed)]),
            chunk::digest_of_parts([packed.as_slice()]),
        ),
        Some(key) => {
            let sealed = Seal::for_content(subject(origin.stack, origin.workspace), key, &packed)
                .and_then(|seal| seal.seal(&packed, &[]))
                .map_err(|_| StateCopyError::Packing)?;
            let seal = sealed.annotations.map(|(name, value)| (name.to_owned(), value));
            common.extend(seal);
            (sealed.chunks, sealed.digest)
        }
    };
    common.insert(COUNT.to_owned(), chunks.len().to_string());
    common.insert(DIGEST.to_owned(), digest.clone());
    let chunks = chunks.into_iter().enumerate();
    Ok(chunks
        .map(|(index, data)| secret(index, data, &common, summary.serial, origin))
        .collect())
}

/// Returns the Secret of one chunk.
fn secret(
    index: usize,
    data: BTreeMap<String, ByteString>,
    common: &BTreeMap<String, String>,
    serial: u64,
    origin: CopyOrigin<'_>,
) -> Secret {
    let id = &common[DIGEST][..10];
    let labels = BTreeMap::from([
        (LABEL.to_owned(), short_label(&origin.stack.name)),
        (WORKSPACE.to_owned(), workspace_label(origin.workspace)),
        (ID.to_owned(), id.to_owned()),
        (SERIAL.to_owned(), serial.to_string()),
    ]);
    let mut annotations = common.clone();
    annotations.insert(INDEX.to_owned(), index.to_string());
    let prefix = object_name("tfcopy", origin.workspace, &origin.stack.name);
    let name = format!("{prefix}-{id}-{index:02}");
    let mut secret = immutable_secret(origin.stack, name, labels, annotations, data);
    secret.metadata.owner_references = None;
    secret
}

/// Returns the annotations that describe what a copy is made for. A run that needs the copy of an earlier one replaces them.
#[must_use]
pub fn origin_annotations(metadata: &ObjectMeta) -> BTreeMap<&'static str, String> {
    let names = [RUN, REVISION, TIME].into_iter();
    names
        .map(|name| (name, annotation_of(metadata, name).to_owned()))
        .collect()
}

/// The state in a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedCopy {
    /// The output of `state pull`.
    pub state: Vec<u8>,
    /// Whether the copy was sealed, so that a run of the stack made it.
    pub is_sealed: bool,
}

/// Decodes a copy from its Secrets.
///
/// # Errors
/// Chunks are missing or malformed, or sealed with an unknown key.
pub fn decode(
    secrets: &[Secret],
    stack: &Stack,
    workspace: &str,
    keys: &[PlanKey],
) -> Result<OpenedCopy, StateCopyError> {
    let id = || {
        secrets
            .first()
            .map_or("", |secret| id_of(&secret.metadata))
            .to_owned()
    };
    let broken = |source| StateCopyError::Broken { id: id(), source };
    let chunks = complete_chunks(secrets.iter(), INDEX, COUNT).map_err(broken)?;
    let Some(first) = chunks.first() else {
        return Err(broken(ChunkError::Incomplete {
            found: 0,
            expected: 1,
        }));
    };
    let data: Vec<_> = chunks.iter().filter_map(|secret| secret.data.as_ref()).collect();
    let digest = annotation_of(&first.metadata, DIGEST);
    let key_id = annotation_of(&first.metadata, SEALED_WITH);
    let is_sealed = !key_id.is_empty();
    let packed = if is_sealed {
        let salt = annotation_of(&first.metadata, SALT);
        Seal::for_stored(subject(stack, workspace), key_id, salt, keys)
            .and_then(|seal| seal.open(&data, digest))
            .map_err(|source| StateCopyError::Sealed { id: id(), source })?
            .0
    } else {
        let packed = chunk::join(data.iter().copied(), DATA_KEY);
        if chunk::digest_of_parts([packed.as_slice()]) != digest {
            return Err(broken(ChunkError::Altered));
        }
        packed
    };
    let state = chunk::decompress(&packed, STATE_LIMIT).map_err(broken)?;
    Ok(OpenedCopy { state, is_sealed })
}

/// Returns the id of the copy that a Secret is part of.
#[must_use]
pub fn id_of(metadata: &ObjectMeta) -> &str {
    label_of(metadata, ID)
}

fn label_of<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    let labels = metadata.labels.as_ref();
    labels.and_then(|all| all.get(key)).map_or("", String::as_str)
}

/// Binds a sealed copy to the stack and the workspace. The stack counts without its uid, so that an object of the same name can
/// open it.
fn subject(stack: &Stack, workspace: &str) -> Subject {
    Subject {
        format: SEALED_FORMAT,
        identity: [stack.namespace.as_str(), stack.name.as_str(), workspace]
            .map(str::to_owned)
            .to_vec(),
    }
}

/// Returns the label selector of the copies of a stack in all workspaces.
#[must_use]
pub fn selector_of_all_workspaces(stack: &str) -> String {
    format!("{LABEL}={}", short_label(stack))
}

/// Returns the label selector of the copies of a stack.
#[must_use]
pub fn selector(stack: &str, workspace: &str) -> String {
    format!(
        "{LABEL}={},{WORKSPACE}={}",
        short_label(stack),
        workspace_label(workspace)
    )
}
