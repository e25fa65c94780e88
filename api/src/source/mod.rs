//! The group `source.toolkit.fluxcd.io`: what a Git repository is asked to be (spec), what it is seen to be (status),
//! and the artifact that every consumer reads. The schema is Flux's; additions of Sluice are marked as such.

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

/// The finalizer that the source controller puts on its objects.
pub const FINALIZER: &str = "finalizers.fluxcd.io";

/// Names an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalReference {
    /// Name of the object.
    pub name: String,
}
