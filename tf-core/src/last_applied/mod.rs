//! The last applied record: the run bundle of an apply and the files of the artifact that the stack read, so that the stack can be
//! destroyed without its source, ConfigMaps and Secrets. It is stored in immutable Secrets `tfapplied-<workspace>-<name>-<digest10>-<i>`
//! that the Terraform object owns, sealed if plans are. The files are in Secrets that stacks share ([`shared`]); earlier versions
//! stored them in the record.

pub mod files;
pub mod shared;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use sluice_api::terraform::run_sequence;

use crate::bundle::{self, Bundle, PlanKey, Stack};
use crate::chunk::{self, ChunkError};
use crate::plan::store::{RUN, annotation_of, complete_chunks, immutable_secret, object_name, short_label};
use crate::seal::{SALT, SEALED_WITH, Seal, SealError, Subject};

/// Label: the stack.
pub const LABEL: &str = "infra.sluice.dev/applied";
const INDEX: &str = "infra.sluice.dev/chunk";
const COUNT: &str = "infra.sluice.dev/chunks";
const DIGEST: &str = "infra.sluice.dev/digest";
/// Annotation: the label value of the shared files.
const FILES: &str = "infra.sluice.dev/applied-files";
/// Format of a sealed record.
const SEALED_FORMAT: &str = "sluice.applied/1";
#[cfg(test)]
const FILES_LIMIT: u64 = 8 * 1024 * 1024;
/// Size limit of the decompressed inputs: a bundle and a dependency lock file.
const INPUTS_LIMIT: u64 = bundle::LIMIT as u64 + 4 * 1024 * 1024;
/// Limit of the Secrets of one record.
const CHUNK_LIMIT: usize = 36;

/// The record of one apply.
#[derive(Clone, PartialEq, Eq)]
pub struct LastApplied {
    /// Everything except the files.
    pub inputs: Inputs,
    /// The files that the stack reads, as a `tar.gz`; absent if they were too large or are shared.
    pub files: Option<Vec<u8>>,
}

/// The inputs of one apply, except for the files.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// The bundle.
    pub bundle: Bundle,
    /// `.terraform.lock.hcl`, if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_lock: Option<String>,
    /// The files were too large.
    #[serde(default)]
    pub files_omitted: bool,
    /// Digest of the shared files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_files: Option<String>,
    /// Label value of the shared Secrets if they are sealed; absent: it is a prefix of the digest.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "sealedMark")]
    pub sealed_label: Option<String>,
}

impl Inputs {
    /// Returns the label value of the shared Secrets, if the files are shared.
    #[must_use]
    pub fn files_label(&self) -> Option<&str> {
        let digest = self.shared_files.as_deref()?;
        let sealed = self.sealed_label.as_deref();
        Some(sealed.unwrap_or_else(|| shared::label_of(digest)))
    }
}

/// A record cannot be stored or read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LastAppliedError {
    /// The record needs too many Secrets.
    #[error("the last applied record needs {chunks} Secrets, more than {CHUNK_LIMIT}")]
    TooLarge {
        /// Number of Secrets.
        chunks: usize,
    },
    /// The run has no record.
    #[error("run {run} has no last applied record")]
    NotFound {
        /// The run.
        run: String,
    },
    /// Chunks are missing or altered.
    #[error("the last applied record of run {run} is damaged: {source}")]
    Broken {
        /// The run.
        run: String,
        /// The error.
        source: ChunkError,
    },
    /// The digest is not the one in the status of the run.
    #[error(
        "the Secrets of the last applied record of run {run} do not have the recorded digest: they were replaced, or an \
         older version wrote them"
    )]
    NotRecorded {
        /// The run.
        run: String,
    },
    /// The record is sealed and cannot be opened.
    #[error("the last applied record of run {run} {source}")]
    Sealed {
        /// The run.
        run: String,
        /// The error.
        source: SealError,
    },
    /// The record is malformed.
    #[error("the last applied record of run {run} is invalid")]
    Malformed {
        /// The run.
        run: String,
    },
    /// The record cannot be compressed or sealed.
    #[error("the last applied record cannot be compressed or sealed")]
    Packing,
    /// The record has no files, since they were too large.
    #[error("the files that run {run} applied exceed --destroy-files-limit and were not stored")]
    FilesOmitted {
        /// The run.
        run: String,
    },
}

/// Encodes a record into Secrets, sealed if there is a key.
///
/// # Errors
/// The record is too large.
pub fn encode(
    applied: &LastApplied,
    run: &str,
    key: Option<&PlanKey>,
) -> Result<Vec<Secret>, LastAppliedError> {
    let bundle = &applied.inputs.bundle;
    let inputs = serde_json::to_vec(&applied.inputs).map_err(|_| LastAppliedError::Packing)?;
    let inputs = chunk::compress(&inputs).map_err(|_| LastAppliedError::Packing)?;
    let files = applied.files.as_deref().unwrap_or_default();
    let (chunks, mut annotations) = match key {
        None => (
            chunk::pack(&[("inputs", &inputs), ("files", files)]),
            BTreeMap::from([(DIGEST, digest(run, &inputs, files))]),
        ),
        Some(key) => {
            let sealed = Seal::with_random_salt(subject(&bundle.stack, run), key)
                .and_then(|seal| seal.seal(&inputs, files))
                .map_err(|_| LastAppliedError::Packing)?;
            let mut annotations = BTreeMap::from(sealed.annotations);
            annotations.insert(DIGEST, sealed.digest);
            (sealed.chunks, annotations)
        }
    };
    if chunks.len() > CHUNK_LIMIT {
        return Err(LastAppliedError::TooLarge { chunks: chunks.len() });
    }
    annotations.insert(RUN, run.to_owned());
    annotations.insert(COUNT, chunks.len().to_string());
    if let Some(label) = applied.inputs.files_label() {
        annotations.insert(FILES, label.to_owned());
    }
    let chunks = chunks.into_iter().enumerate();
    Ok(chunks
        .map(|(index, data)| secret(bundle, index, data, &annotations))
        .collect())
}

/// Returns the Secret of one chunk.
fn secret(
    bundle: &Bundle,
    index: usize,
    data: BTreeMap<String, ByteString>,
    common: &BTreeMap<&str, String>,
) -> Secret {
    let stack = &bundle.stack;
    let mut annotations: BTreeMap<_, _> = common
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    annotations.insert(INDEX.to_owned(), index.to_string());
    let prefix = object_name("tfapplied", &bundle.workspace, &stack.name);
    immutable_secret(
        stack,
        format!("{prefix}-{}-{index}", &common[DIGEST][..10]),
        BTreeMap::from([(LABEL.to_owned(), short_label(&stack.name))]),
        annotations,
        data,
    )
}

/// Returns the digest of a record, which the run writes into its status.
#[must_use]
pub fn digest_of(secrets: &[Secret]) -> String {
    chunk::digest(secrets.iter().filter_map(|secret| secret.data.as_ref()))
}

/// Verifies that the Secrets of a run have the digest that the run recorded in its status.
///
/// # Errors
/// Chunks are missing, or the digest differs.
pub fn verify(secrets: &[Secret], run: &str, recorded: &str) -> Result<(), LastAppliedError> {
    let chunks = chunks_of(secrets, run)?;
    if chunk::digest(chunks.iter().filter_map(|secret| secret.data.as_ref())) == recorded {
        return Ok(());
    }
    Err(LastAppliedError::NotRecorded { run: run.to_owned() })
}

/// Decodes the record of a run of this stack. Ignores other Secrets.
///
/// # Errors
/// Chunks are missing, altered, malformed, or sealed with an unknown key.
pub fn decode(
    secrets: &[Secret],
    stack: &Stack,
    run: &str,
    keys: &[PlanKey],
) -> Result<LastApplied, LastAppliedError> {
    let broken = |source| LastAppliedError::Broken {
        run: run.to_owned(),
        source,
    };
    let malformed = || LastAppliedError::Malformed { run: run.to_owned() };
    let chunks = chunks_of(secrets, run)?;
    let first = chunks[0];
    let data: Vec<_> = chunks.iter().filter_map(|secret| secret.data.as_ref()).collect();
    let key_id = annotation_of(&first.metadata, SEALED_WITH);
    let (inputs, files) = if key_id.is_empty() {
        let join = |key| chunk::join(data.iter().copied(), key);
        let (inputs, files) = (join("inputs"), join("files"));
        if digest(run, &inputs, &files) != annotation_of(&first.metadata, DIGEST) {
            return Err(broken(ChunkError::Altered));
        }
        (inputs, files)
    } else {
        Seal::for_stored(
            subject(stack, run),
            key_id,
            annotation_of(&first.metadata, SALT),
            keys,
        )
        .and_then(|seal| seal.open(&data, annotation_of(&first.metadata, DIGEST)))
        .map_err(|source| LastAppliedError::Sealed {
            run: run.to_owned(),
            source,
        })?
    };
    let inputs = chunk::decompress(&inputs, INPUTS_LIMIT).map_err(broken)?;
    let inputs: Inputs = serde_json::from_slice(&inputs).map_err(|_| malformed())?;
    inputs.bundle.key_bytes().map_err(|_| malformed())?;
    let has_files = !inputs.files_omitted && inputs.shared_files.is_none();
    let files = has_files.then_some(files);
    Ok(LastApplied { inputs, files })
}

/// Returns all chunks of a run in order; at least one.
fn chunks_of<'s>(secrets: &'s [Secret], run: &str) -> Result<Vec<&'s Secret>, LastAppliedError> {
    let own = secrets.iter().filter(|secret| run_of(*secret) == run);
    let run = || run.to_owned();
    let chunks = complete_chunks(own, INDEX, COUNT);
    let chunks = chunks.map_err(|source| LastAppliedError::Broken { run: run(), source })?;
    if chunks.is_empty() {
        return Err(LastAppliedError::NotFound { run: run() });
    }
    Ok(chunks)
}

/// Binds a sealed record to the stack and the run.
fn subject(stack: &Stack, run: &str) -> Subject {
    let identity = [&stack.namespace, &stack.name, &stack.uid].map(Clone::clone);
    Subject {
        format: SEALED_FORMAT,
        identity: identity.into_iter().chain([run.to_owned()]).collect(),
    }
}

/// Returns the runs with a record that the object with this uid owns, newest first.
#[must_use]
pub fn runs<S: ResourceExt>(secrets: &[S], uid: &str) -> Vec<String> {
    let own = |secret: &&S| secret.owner_references().iter().any(|owner| owner.uid == uid);
    let names: BTreeSet<_> = secrets
        .iter()
        .filter(own)
        .map(run_of)
        .filter(|run| !run.is_empty())
        .collect();
    let mut names: Vec<_> = names.into_iter().map(str::to_owned).collect();
    names.sort_by_key(|run| std::cmp::Reverse(run_sequence(run)));
    names
}

/// Returns the run that wrote a Secret.
#[must_use]
pub fn run_of<S: ResourceExt>(secret: &S) -> &str {
    annotation_of(secret.meta(), RUN)
}

/// Returns the label value of the shared files of a record, if it has any.
#[must_use]
pub fn files_label_of<S: ResourceExt>(secret: &S) -> Option<&str> {
    Some(annotation_of(secret.meta(), FILES)).filter(|label| !label.is_empty())
}

/// Returns the label selector of the records of the stack with this name.
#[must_use]
pub fn selector(name: &str) -> String {
    format!("{LABEL}={}", short_label(name))
}

/// Returns the digest of a record. It includes the run, so two runs never share a Secret.
fn digest(run: &str, inputs: &[u8], files: &[u8]) -> String {
    chunk::digest_of_parts([run.as_bytes(), inputs, files])
}
