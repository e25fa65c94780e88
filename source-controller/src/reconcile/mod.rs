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
mod memory;
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
mod times;
mod told;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use sluice_api::source::GitRepository;
use sluice_runtime::blocking::Pool;
use sluice_runtime::clock::Clock;
use sluice_runtime::event::Recorder;
use sluice_runtime::schedule::{ObjectKey, Schedule};
use sluice_runtime::shutdown::Token;
use sluice_runtime::status::WriteError;
use sluice_runtime::watch::{Next, Reconciler};
use tokio::time::Instant;

use crate::archive::Algorithm;
use crate::git::{Limits, Transport};
use crate::identity::Tokens;
use crate::storage::{Retention, Storage};
use pass::{Pass, Wait};
use places::{Entry, Request};

pub use compose::{Parts, SparseError};
pub use dependants::watch;
pub use error::PassError;
pub use fetch::{Network, Origin};
pub use include::{CopyError, IncludeError, Repositories};
pub use memory::Memory;
pub use pack::PackError;
pub use places::{Bounds, Places};
pub use resolve::{ResolveError, Source};
pub use submodules::SubmoduleError;
pub use times::Times;
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
    /// Bounds on the times that objects ask for.
    pub times: Times,
    /// How long superseded artifacts are kept.
    pub retention: Retention,
    /// The algorithm of new digests.
    pub algorithm: Algorithm,
    /// Threads for looks at storage.
    pub looks: Pool,
    /// Threads for packing, which is what needs the machine.
    pub packing: Pool,
    /// Places at remotes, and where artifacts are packed.
    pub places: Places,
    /// What is remembered of objects.
    pub memory: Memory,
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

    const QUEUES: bool = true;

    fn called(&self, key: &ObjectKey) {
        self.0.memory.called(key, Instant::now());
    }

    fn gone(&self, key: &ObjectKey) {
        self.0.places.forget(key);
        self.0.memory.forget(key);
    }

    async fn reconcile(&self, cached: Arc<GitRepository>) -> Result<Next, UnreportedError> {
        let context = &*self.0;
        let key = ObjectKey::of(&*cached);
        let api = Api::namespaced(context.client.clone(), &key.namespace);
        let mut object = cached;
        let place = loop {
            // A place comes before any request: an object that waits costs none.
            let request = Request::of(&object);
            let place = match context.places.enter(&key, &request) {
                Entry::Place(place) => place,
                Entry::Wait { since, is_reported } => {
                    let wait = Wait { since, is_reported };
                    return wait.go_on(context, api, &object, &request).await;
                }
            };
            // The cache may lag behind this controller's own last write: a decision on it could undo that write.
            if context.memory.is_shown_by(&key, &object) {
                break place;
            }
            let read = api.get_opt(&key.name).await;
            let read = read.map_err(|error| UnreportedError::Read(Box::new(error)))?;
            let Some(read) = read else {
                return Ok(Next::OnChange);
            };
            context.memory.read(&key, &read);
            object = Arc::new(read);
            if Request::of(&object).lane == request.lane {
                break place;
            }
        };
        let call = context.memory.last_call(&key);
        // Many phases make a large future: it stands on the heap, once.
        let pass = Pass::new(context, api, (*object).clone(), key.namespace.clone());
        let ended = Box::pin(pass.at(place, call).run()).await;
        if matches!(ended, Ok(Next::After(_) | Next::OnChange)) {
            context.memory.answered(&key, call);
        }
        ended
    }
}

#[cfg(test)]
mod tests;
