//! Passes over Git repositories: what they need ([`Context`]), how they are called ([`GitRepositories`]), and in `pass` the
//! order of their phases.

mod cleanup;
mod compose;
mod conditions;
mod content;
mod dependants;
mod error;
mod fetch;
mod include;
mod observe;
mod pack;
mod pass;
mod patience;
mod places;
mod polls;
mod proxy;
mod publish;
mod remarks;
mod report;
mod resolve;
mod submodules;
mod told;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client, ResourceExt as _};
use sluice_api::source::GitRepository;
use sluice_runtime::blocking::Pool;
use sluice_runtime::clock::Clock;
use sluice_runtime::event::Recorder;
use sluice_runtime::schedule::Schedule;
use sluice_runtime::shutdown::Token;
use sluice_runtime::status::WriteError;
use sluice_runtime::watch::{Next, Reconciler};

use crate::archive::Algorithm;
use crate::git::{Limits, Transport};
use crate::identity::Tokens;
use crate::storage::{Retention, Storage};
use pass::Pass;

pub use compose::{Parts, SparseError};
pub use dependants::watch;
pub use error::PassError;
pub use fetch::{Network, Origin};
pub use include::{CopyError, IncludeError, Repositories};
pub use pack::PackError;
pub use places::Places;
pub use resolve::{ResolveError, Source};
pub use submodules::SubmoduleError;
pub use verify::VerifyError;

/// Everything with an effect that a pass uses.
pub struct Context {
    /// The Kubernetes API.
    pub client: Client,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Remotes.
    pub origin: Arc<dyn Origin>,
    /// The objects that this controller sees.
    pub repositories: Arc<dyn Repositories>,
    /// When an object is looked at again whose include is missing.
    pub dependency_wait: Duration,
    /// Artifacts.
    pub storage: Arc<dyn Storage>,
    /// Events.
    pub recorder: Recorder,
    /// Jittered intervals.
    pub schedule: Schedule,
    /// Connections to remotes.
    pub transport: Transport,
    /// Credentials that providers lend.
    pub tokens: Arc<Tokens>,
    /// What a remote may send.
    pub limits: Limits,
    /// How long superseded artifacts are kept.
    pub retention: Retention,
    /// The algorithm of new digests.
    pub algorithm: Algorithm,
    /// Threads for looks at storage.
    pub looks: Pool,
    /// Threads for packing, which is what needs the machine.
    pub packing: Pool,
    /// Places at remotes.
    pub places: Places,
    /// The program's stop token.
    pub stop: Token,
}

/// The pass could not be carried out or reported; the object shows nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum UnreportedError {
    /// The object cannot be read.
    #[error("cannot read the object")]
    Read(#[source] Box<kube::Error>),
    /// Its status or finalizer cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Reconciles objects of the kind `GitRepository`.
#[derive(Clone)]
pub struct GitRepositories(Arc<Context>);

impl GitRepositories {
    /// With this context.
    #[must_use]
    pub const fn new(context: Arc<Context>) -> Self {
        Self(context)
    }
}

impl Reconciler<GitRepository> for GitRepositories {
    type Error = UnreportedError;

    async fn reconcile(&self, cached: Arc<GitRepository>) -> Result<Next, UnreportedError> {
        let context = &*self.0;
        let namespace = cached.namespace().unwrap_or_default();
        let api = Api::namespaced(context.client.clone(), &namespace);
        // The cache may lag behind this controller's own last write: a decision on it could undo that write.
        let read = api
            .get_opt(&cached.name_any())
            .await
            .map_err(|error| UnreportedError::Read(Box::new(error)))?;
        let Some(object) = read else {
            return Ok(Next::OnChange);
        };
        // Many phases make a large future: it stands on the heap, once.
        Box::pin(Pass::new(context, api, object, namespace).run()).await
    }
}

#[cfg(test)]
mod tests;
