//! Selects the parts of a checkout that go into the artifact.

use sluice_api::source::GitRepositorySpec;
use sluice_runtime::failure::{Class, Failure};

use crate::tree::{Module, Sparse, Tree, TreeError};

/// The parts of a repository that a spec selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// `spec.sparseCheckout`.
    pub sparse: Vec<String>,
    /// `spec.recurseSubmodules`; ignored if sparse paths are set, as in Flux.
    pub submodules: bool,
}

impl Parts {
    /// Reads the selection from a spec.
    #[must_use]
    pub(super) fn from_spec(spec: &GitRepositorySpec) -> Self {
        Self {
            sparse: spec.sparse_checkout.clone(),
            submodules: spec.recurse_submodules && spec.sparse_checkout.is_empty(),
        }
    }
}

/// An error while selecting the sparse paths of a commit.
#[derive(Debug, thiserror::Error)]
pub enum SparseError {
    /// A path does not exist in the commit.
    #[error(
        "failed to sparse checkout directories : sparse checkout dir '{path}' does not exist in repository: no such file or directory"
    )]
    Missing {
        /// The path as written in the spec.
        path: String,
    },
    /// The tree cannot be read.
    #[error("failed to sparse checkout directories : {0}")]
    Tree(#[from] TreeError),
}

impl Failure for SparseError {
    fn class(&self) -> Class {
        match self {
            // Another commit may contain the path.
            Self::Missing { .. } => Class::Transient,
            Self::Tree(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        "GitOperationFailed"
    }
}

/// Returns the part of a commit that the sparse paths select. Every path must exist. Blocks.
pub(super) fn select(base: Module, parts: &Parts) -> Result<Tree, SparseError> {
    let tree = Tree::new(base, Sparse::new(&parts.sparse));
    for path in &parts.sparse {
        if !tree.has(path.as_bytes())? {
            return Err(SparseError::Missing { path: path.clone() });
        }
    }
    Ok(tree)
}
