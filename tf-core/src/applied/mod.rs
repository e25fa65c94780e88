//! What was applied last: the run bundle and the files that the stack reads, kept so that the stack can be destroyed when
//! its source, ConfigMaps or Secrets are gone. The files lie in Secrets that stacks share ([`shared`]); beside the bundle where a version
//! before sealed both with the stack's own key. Immutable Secrets `tfapplied-<workspace>-<name>-<digest10>-<i>` that the
//! Terraform owns, count and digest recorded in each and checked when they are read; sealed where plans are. Pure but for the
//! salt of a seal; `run::kept` writes and reads.

pub mod files;
pub mod shared;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sluice_api::terraform::run_sequence;

use crate::bundle::{self, Bundle, PlanKey, Stack};
use crate::chunk::{self, ChunkError};
use crate::plan::store::{RUN, object_name, piece, short_label};
use crate::seal::{SALT, SEALED_WITH, Seal, SealError, Subject};

/// Label: which stack's.
pub const LABEL: &str = "infra.sluice.dev/applied";
const INDEX: &str = "infra.sluice.dev/chunk";
const COUNT: &str = "infra.sluice.dev/chunks";
const DIGEST: &str = "infra.sluice.dev/digest";
/// Which shared files belong to it.
const FILES: &str = "infra.sluice.dev/applied-files";
/// Names the form of what is sealed.
const SEALED_FORM: &str = "sluice.applied/1";
#[cfg(test)]
const FILES_LIMIT: u64 = 8 * 1024 * 1024;
/// Largest inputs, once decompressed: a bundle and a lock file.
const INPUTS_LIMIT: u64 = bundle::LIMIT as u64 + 4 * 1024 * 1024;
/// Most Secrets of one apply.
const CHUNK_LIMIT: usize = 36;

/// What one apply was made of.
#[derive(Clone, PartialEq, Eq)]
pub struct Applied {
    /// All but the files.
    pub inputs: Inputs,
    /// The files that the stack reads, as a `tar.gz`; absent when they were too large, or are shared.
    pub files: Option<Vec<u8>>,
}

/// What one apply was made of beside the files.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// Its bundle.
    pub bundle: Bundle,
    /// `.terraform.lock.hcl`, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_lock: Option<String>,
    /// The files were too large to be kept.
    #[serde(default)]
    pub files_omitted: bool,
    /// Digest of the files that lie in Secrets which stacks share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_files: Option<String>,
    /// The mark of these Secrets where they are sealed; absent: it is that of the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_mark: Option<String>,
}

impl Inputs {
    /// The mark of the Secrets that hold the files, if stacks share them.
    #[must_use]
    pub fn files_mark(&self) -> Option<&str> {
        let digest = self.shared_files.as_deref()?;
        Some(
            self.sealed_mark
                .as_deref()
                .unwrap_or_else(|| shared::mark(digest)),
        )
    }
}

/// Why it cannot be kept or read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AppliedError {
    /// It needs too many Secrets.
    #[error("what is applied needs {chunks} Secrets to be kept, more than {CHUNK_LIMIT}")]
    TooLarge {
        /// Secrets that it would need.
        chunks: usize,
    },
    /// There is nothing of that run.
    #[error("nothing is kept of what run {run} applied")]
    NotFound {
        /// The run.
        run: String,
    },
    /// The chunks are not whole.
    #[error("what is kept of run {run} is not whole: {source}")]
    Broken {
        /// The run.
        run: String,
        /// What is wrong.
        source: ChunkError,
    },
    /// The Secrets hold something else than the run recorded, or it recorded nothing.
    #[error(
        "the Secrets with what run {run} applied do not hold what it recorded: they were replaced, or an older version \
         wrote them"
    )]
    NotRecorded {
        /// The run.
        run: String,
    },
    /// It is sealed, and cannot be opened.
    #[error("what is kept of run {run} {source}")]
    Sealed {
        /// The run.
        run: String,
        /// Why.
        source: SealError,
    },
    /// What they hold is not what is written.
    #[error("what is kept of run {run} is not understood")]
    Malformed {
        /// The run.
        run: String,
    },
    /// It cannot be compressed.
    #[error("what is applied cannot be packed")]
    Packing,
    /// The files were left out.
    #[error("the files of what run {run} applied were too large to be kept (--destroy-files-limit)")]
    FilesOmitted {
        /// The run.
        run: String,
    },
}

/// The Secrets that keep it; sealed when there is a key.
///
/// # Errors
/// When it is too large.
pub fn encode(applied: &Applied, run: &str, key: Option<&PlanKey>) -> Result<Vec<Secret>, AppliedError> {
    let bundle = &applied.inputs.bundle;
    let inputs = serde_json::to_vec(&applied.inputs).map_err(|_| AppliedError::Packing)?;
    let inputs = chunk::compress(&inputs).map_err(|_| AppliedError::Packing)?;
    let files = applied.files.as_deref().unwrap_or_default();
    let (pieces, mut marks) = match key {
        None => (
            chunk::pack(&[("inputs", &inputs), ("files", files)]),
            BTreeMap::from([(DIGEST, digest(run, &inputs, files))]),
        ),
        Some(key) => {
            let sealed = Seal::fresh(subject(&bundle.stack, run), key)
                .and_then(|seal| seal.close(&inputs, files))
                .map_err(|_| AppliedError::Packing)?;
            let mut marks = BTreeMap::from(sealed.marks);
            marks.insert(DIGEST, sealed.digest);
            (sealed.pieces, marks)
        }
    };
    if pieces.len() > CHUNK_LIMIT {
        return Err(AppliedError::TooLarge { chunks: pieces.len() });
    }
    marks.insert(RUN, run.to_owned());
    marks.insert(COUNT, pieces.len().to_string());
    if let Some(mark) = applied.inputs.files_mark() {
        marks.insert(FILES, mark.to_owned());
    }
    let secrets = pieces.into_iter().enumerate();
    Ok(secrets
        .map(|(index, data)| secret(bundle, index, data, &marks))
        .collect())
}

/// One of them.
fn secret(
    bundle: &Bundle,
    index: usize,
    data: BTreeMap<String, ByteString>,
    marks: &BTreeMap<&str, String>,
) -> Secret {
    let stack = &bundle.stack;
    let mut annotations: BTreeMap<_, _> = marks
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    annotations.insert(INDEX.to_owned(), index.to_string());
    let front = object_name("tfapplied", &bundle.workspace, &stack.name);
    piece(
        stack,
        format!("{front}-{}-{index}", &marks[DIGEST][..10]),
        BTreeMap::from([(LABEL.to_owned(), short_label(&stack.name))]),
        annotations,
        data,
    )
}

/// What a run records of the Secrets that keep what it applies.
#[must_use]
pub fn digest_of(secrets: &[Secret]) -> String {
    chunk::digest(secrets.iter().filter_map(|secret| secret.data.as_ref()))
}

/// Proves that the Secrets hold what the run recorded.
///
/// # Errors
/// When chunks are missing, or hold something else.
pub fn prove(secrets: &[Secret], run: &str, recorded: &str) -> Result<(), AppliedError> {
    let chunks = whole(secrets, run)?;
    if chunk::digest(chunks.iter().filter_map(|secret| secret.data.as_ref())) == recorded {
        return Ok(());
    }
    Err(AppliedError::NotRecorded { run: run.to_owned() })
}

/// Puts together what is kept of a run of this stack, whichever other Secrets are among them.
///
/// # Errors
/// When chunks are missing, altered, sealed with a key that is not there, or not understood.
pub fn decode(
    secrets: &[Secret],
    stack: &Stack,
    run: &str,
    keys: &[PlanKey],
) -> Result<Applied, AppliedError> {
    let broken = |source| AppliedError::Broken {
        run: run.to_owned(),
        source,
    };
    let malformed = || AppliedError::Malformed { run: run.to_owned() };
    let chunks = whole(secrets, run)?;
    let first = chunks[0];
    let data: Vec<_> = chunks.iter().filter_map(|secret| secret.data.as_ref()).collect();
    let with = held(&first.metadata, SEALED_WITH);
    let (inputs, files) = if with.is_empty() {
        let joined = |key| chunk::joined(data.iter().copied(), key);
        let (inputs, files) = (joined("inputs"), joined("files"));
        if digest(run, &inputs, &files) != held(&first.metadata, DIGEST) {
            return Err(broken(ChunkError::Altered));
        }
        (inputs, files)
    } else {
        Seal::of_stored(subject(stack, run), with, held(&first.metadata, SALT), keys)
            .and_then(|seal| seal.open(&data, held(&first.metadata, DIGEST)))
            .map_err(|source| AppliedError::Sealed {
                run: run.to_owned(),
                source,
            })?
    };
    let inputs = chunk::decompress(&inputs, INPUTS_LIMIT).map_err(broken)?;
    let inputs: Inputs = serde_json::from_slice(&inputs).map_err(|_| malformed())?;
    inputs.bundle.key_bytes().map_err(|_| malformed())?;
    let is_here = !inputs.files_omitted && inputs.shared_files.is_none();
    let files = is_here.then_some(files);
    Ok(Applied { inputs, files })
}

/// The chunks of a run in their order, none missing; at least one.
fn whole<'s>(secrets: &'s [Secret], run: &str) -> Result<Vec<&'s Secret>, AppliedError> {
    let mut chunks: Vec<(usize, &Secret)> = secrets
        .iter()
        .filter(|secret| run_of(*secret) == run)
        .filter_map(|secret| Some((held(&secret.metadata, INDEX).parse().ok()?, secret)))
        .collect();
    chunks.sort_by_key(|(index, _)| *index);
    let Some((_, first)) = chunks.first() else {
        return Err(AppliedError::NotFound { run: run.to_owned() });
    };
    let wanted = held(&first.metadata, COUNT).parse().unwrap_or(0);
    let in_order = chunks
        .iter()
        .enumerate()
        .all(|(place, (index, _))| place == *index);
    if chunks.len() != wanted || !in_order {
        let found = chunks.len();
        return Err(AppliedError::Broken {
            run: run.to_owned(),
            source: ChunkError::Incomplete { found, wanted },
        });
    }
    Ok(chunks.into_iter().map(|(_, secret)| secret).collect())
}

/// What is sealed is bound to the stack and the run.
fn subject(stack: &Stack, run: &str) -> Subject {
    let words = [&stack.namespace, &stack.name, &stack.uid].map(Clone::clone);
    Subject {
        form: SEALED_FORM,
        words: words.into_iter().chain([run.to_owned()]).collect(),
    }
}

/// The runs of which something is kept for this very object, newest first.
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

/// The run that a Secret was written by.
#[must_use]
pub fn run_of<S: ResourceExt>(secret: &S) -> &str {
    held(secret.meta(), RUN)
}

/// The mark of the shared files that belong to a Secret, if some do.
#[must_use]
pub fn files_of<S: ResourceExt>(secret: &S) -> Option<&str> {
    Some(held(secret.meta(), FILES)).filter(|mark| !mark.is_empty())
}

/// The label selector of what is kept of a stack.
#[must_use]
pub fn selector(stack: &Stack) -> String {
    selector_of(&stack.name)
}

/// As [`selector`], by the stack's name.
#[must_use]
pub fn selector_of(name: &str) -> String {
    format!("{LABEL}={}", short_label(name))
}

fn held<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    let annotations = metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(key))
        .map_or("", String::as_str)
}

/// Over everything, the run included: what two runs apply never shares a Secret.
fn digest(run: &str, inputs: &[u8], files: &[u8]) -> String {
    let mut hash = Sha256::new();
    for part in [run.as_bytes(), inputs, files] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}
