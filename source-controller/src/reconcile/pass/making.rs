//! An artifact in the making: includes laid over the tree, packed, published, and on a full disk once more after room was made. Blocks.

use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::source::Artifact;
use sluice_runtime::shutdown::Token;
use tokio::runtime::Handle;

use super::super::error::PassError;
use super::super::fetch::Origin;
use super::super::include::{self, Bounds, Included};
use super::super::pack::{self, PackError};
use super::super::publish::{self, Packed};
use super::super::remarks::Remarks;
use crate::archive::Algorithm;
use crate::storage::{ArtifactPath, Storage, is_full};
use crate::tree::Tree;

/// An artifact in storage, and what its event tells beside it.
pub(super) struct Published {
    pub(super) artifact: Artifact,
    pub(super) files: u64,
    pub(super) remarks: Remarks,
}

/// What an artifact is made of, and where it goes.
pub(super) struct Making {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) origin: Arc<dyn Origin>,
    pub(super) tree: Tree,
    /// What is laid over the tree.
    pub(super) included: Vec<Included>,
    pub(super) bounds: Bounds,
    /// `spec.ignore`.
    pub(super) ignore: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) path: ArtifactPath,
    pub(super) revision: String,
    /// The artifact that the status names, if there is one.
    pub(super) previous: Option<ArtifactPath>,
    /// How many artifacts of the object stay on a full disk.
    pub(super) keep: usize,
    pub(super) now: Timestamp,
}

impl Making {
    /// Merges, packs and publishes. On a full disk mirrors go first, which cost a fetch and nothing else, and then superseded
    /// artifacts before their time; after each it is tried once more.
    pub(super) fn run(mut self, stop: &Token) -> Result<Published, PassError> {
        include::merge(&mut self.tree, &self.included, &*self.storage, self.bounds, stop)?;
        let mut done = self.attempt(stop);
        if done.as_ref().is_err_and(for_want_of_space)
            && Handle::try_current().is_ok_and(|runtime| runtime.block_on(self.origin.make_room()))
        {
            done = self.attempt(stop);
        }
        match done {
            Err(error) if for_want_of_space(&error) => {
                let directory = self.path.directory();
                let removed = self
                    .storage
                    .make_room(directory, self.previous.as_ref(), self.keep)?;
                if removed == 0 {
                    return Err(error);
                }
                tracing::warn!(
                    removed,
                    "the disk is full: superseded artifacts went before their time"
                );
                self.attempt(stop)
            }
            done => done,
        }
    }

    fn attempt(&self, stop: &Token) -> Result<Published, PassError> {
        let draft = self.storage.create(&self.path)?;
        let (draft, totals, remarks) =
            pack::pack(&self.tree, self.ignore.as_deref(), self.algorithm, draft, stop)?;
        let (files, revision) = (totals.files, self.revision.clone());
        tracing::info!(revision, files, bytes = totals.size, digest = %totals.digest, "artifact packed");
        let packed = Packed {
            draft,
            totals,
            path: self.path.clone(),
            revision,
        };
        let artifact = publish::publish(&*self.storage, packed, self.previous.as_ref(), self.now)?;
        Ok(Published {
            artifact,
            files,
            remarks,
        })
    }
}

fn for_want_of_space(error: &PassError) -> bool {
    match error {
        PassError::Pack(PackError::Write(error)) => is_full(error),
        PassError::Storage(error) => error.is_full(),
        _ => false,
    }
}
