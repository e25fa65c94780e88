//! What a reconciliation reads before it requests anything from the remote: storage, the source, and the included artifacts.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use sluice_api::condition::{SourceCondition, find};
use sluice_api::source::{Artifact, GitRepository};
use sluice_runtime::schedule::ObjectKey;
use tokio::time::Instant;

use super::super::error::ReconcileError;
use super::super::events;
use super::super::include::{self, IncludeError, Included};
use super::super::observe::{self, Observed};
use super::super::resolve::{self, MIN_LOOKUP_AGE, ResolveError, Source};
use super::{EarlyExit, Reconciliation};
use crate::git::FetchError;
use crate::storage::ObjectDirectory;

impl Reconciliation<'_> {
    /// Observes the artifacts of the object.
    pub(super) async fn observe<'o>(
        &self,
        object: &'o Arc<GitRepository>,
    ) -> Result<(ObjectDirectory, Observed<'o>), ReconcileError> {
        let directory = ObjectDirectory::git_repository(&self.namespace, &object.name_any())?;
        let storage = &self.context.storage;
        if let Some(observed) = observe::unchanged(&**storage, &directory, object.status.as_ref()) {
            return Ok((directory, observed));
        }
        let (ttl, now) = (self.context.retention.ttl, self.context.clock.now());
        let (storage, slot, object) = (Arc::clone(storage), directory.clone(), Arc::clone(object));
        let observe = move || observe::observe(&*storage, &slot, object.status.as_ref(), ttl, now);
        let observed = Box::pin(self.run_blocking(observe)).await??;
        for event in events::storage_events(&observed) {
            self.record_event(event);
        }
        Ok((directory, observed))
    }

    /// Resolves the source, unless the process stops.
    pub(super) async fn resolve(&self) -> Result<Source, EarlyExit> {
        tokio::select! {
            source = self.source() => source.map_err(EarlyExit::failed),
            () = self.context.stop.cancelled() => Err(EarlyExit::failed(FetchError::Stopped)),
        }
    }

    async fn source(&self) -> Result<Source, ResolveError> {
        let spec = self.context.durations.clamp_timeout(&self.object.spec);
        let source = resolve::resolve(&spec, &ObjectKey::of(&*self.object), self.context).await?;
        // Without a recorded trigger, assume that the event arrived just now.
        let is_awaited = observe::is_awaited(&self.object);
        let triggered_at = self.triggered_at.or_else(|| is_awaited.then(Instant::now));
        let interval = self.context.durations.interval(&self.object.spec);
        Ok(Source {
            triggered_at,
            max_age: self.max_lookup_age(interval),
            interval,
            ..source
        })
    }

    /// Returns how old the lookup of another object may be. An object that is not ready may need a correction at the
    /// remote, so it looks up itself.
    fn max_lookup_age(&self, interval: Duration) -> Duration {
        let status = self.object.status.as_ref();
        let ready = status.and_then(|status| find(&status.conditions, SourceCondition::Ready));
        if ready.is_some_and(|ready| ready.status == "True") {
            (interval / 2).max(MIN_LOOKUP_AGE)
        } else {
            MIN_LOOKUP_AGE
        }
    }

    /// Returns the artifacts to include.
    pub(super) fn included(&self) -> Result<Vec<Included>, IncludeError> {
        let (repositories, wait) = (&*self.context.repositories, self.context.dependency_wait);
        include::resolve(&self.object.spec, &self.namespace, repositories, wait)
    }

    /// Returns the artifacts that the stored artifact includes.
    pub(super) fn previous_includes(&self) -> &[Artifact] {
        let status = self.object.status.as_ref();
        status.map_or(&[], |status| &status.included_artifacts)
    }
}
