//! From a checkout to the tree that is packed: the sparse paths that the object names are looked for, and its submodules
//! are fetched.

use sluice_api::source::GitRepositorySpec;
use sluice_runtime::failure::{Class, Failure};

use crate::tree::{Module, Sparse, Tree, TreeError};

/// Which parts of a repository, and what beside it, an object wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// `spec.sparseCheckout`.
    pub sparse: Vec<String>,
    /// `spec.recurseSubmodules`; sparse paths outrank it, as in Flux.
    pub submodules: bool,
}

impl Parts {
    /// What the spec asks for.
    #[must_use]
    pub(super) fn wanted(spec: &GitRepositorySpec) -> Self {
        Self {
            sparse: spec.sparse_checkout.clone(),
            submodules: spec.recurse_submodules && spec.sparse_checkout.is_empty(),
        }
    }
}

/// Why a commit does not hold what the object wants of it.
#[derive(Debug, thiserror::Error)]
pub enum SparseError {
    /// A path that is not there.
    #[error(
        "failed to sparse checkout directories : sparse checkout dir '{path}' does not exist in repository: no such file or directory"
    )]
    Missing {
        /// The path as it stands in the spec.
        path: String,
    },
    /// The tree cannot be read.
    #[error("failed to sparse checkout directories : {0}")]
    Tree(#[from] TreeError),
}

impl Failure for SparseError {
    fn class(&self) -> Class {
        match self {
            // Another commit may have it.
            Self::Missing { .. } => Class::Transient,
            Self::Tree(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        "GitOperationFailed"
    }
}

/// The part of a commit that the sparse paths select. Each of them has to be there. Blocks.
pub(super) fn select(base: Module, parts: &Parts) -> Result<Tree, SparseError> {
    let tree = Tree::new(base, Sparse::new(&parts.sparse));
    for path in &parts.sparse {
        if !tree.has(path.as_bytes())? {
            return Err(SparseError::Missing { path: path.clone() });
        }
    }
    Ok(tree)
}
