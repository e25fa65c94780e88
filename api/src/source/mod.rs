//! The API group `source.toolkit.fluxcd.io`: spec and status of a Git repository, and the artifact that consumers read. The
//! schema is Flux's; Sluice's additions are marked.

mod artifact;
mod git_repository;

pub use artifact::Artifact;
pub use git_repository::{
    GitInclude, GitReference, GitRepository, GitRepositorySpec, GitRepositoryStatus, GitVerification,
    Provider, VerificationMode,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group of all source kinds.
pub const GROUP: &str = "source.toolkit.fluxcd.io";

/// The finalizer that the source controller adds to its objects.
pub const FINALIZER: &str = "finalizers.fluxcd.io";

/// A reference to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalReference {
    /// Name of the object.
    pub name: String,
}
