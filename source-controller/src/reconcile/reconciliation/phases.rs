//! The phases with side effects, each run on the right thread pool.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use sluice_runtime::blocking::JobError;
use sluice_runtime::event::Event;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::shutdown::Token;
use tokio::time::Instant;

use super::super::error::ReconcileError;
use super::super::include::{self, IncludeError, Included};
use super::super::observe::{self, Observed};
use super::super::resolve::{self, ResolveError, Source};
use super::super::slots::Lane;
use super::super::submodules::SubmoduleFetcher;
use super::super::verify::{SignatureState, Verification};
use super::super::{compose, events, report};
use super::build::{ArtifactBuild, Published};
use super::{EarlyExit, Reconciliation};
use crate::git::{Checkout, FetchError, Head};
use crate::storage::ObjectDirectory;
use crate::tree::{Module, Tree};

/// Time limit for packing one artifact.
const PACK_LIMIT: Duration = Duration::from_secs(15 * 60);
/// Time limit for reading storage.
const STORAGE_LIMIT: Duration = Duration::from_secs(5 * 60);

impl Reconciliation<'_> {
    pub(super) async fn observe(&self) -> Result<(ObjectDirectory, Observed), ReconcileError> {
        let directory = ObjectDirectory::git_repository(&self.namespace, &self.object.name_any())?;
        let (storage, now) = (Arc::clone(&self.context.storage), self.context.clock.now());
        let ttl = self.context.retention.ttl;
        let (slot, status) = (directory.clone(), self.object.status.clone().unwrap_or_default());
        let observe = move || observe::observe(&*storage, &slot, &status, ttl, now);
        let observed = self.run_blocking(observe).await??;
        for event in events::storage_events(&observed) {
            self.record_event(event);
        }
        Ok((directory, observed))
    }

    /// Runs work on storage or a mirror on a blocking thread, within the time limit.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JobError> {
        let pool = &self.context.blocking_pool;
        pool.run(STORAGE_LIMIT, &self.context.stop, move |_| work()).await
    }

    /// Handles a failure of the remote. A provider's token that was refused is not used again.
    pub(super) fn remote_failure(&self, source: &Source, error: FetchError) -> EarlyExit {
        if error.is_access_denied() {
            self.context.tokens.invalidate(&source.remote.credentials);
        }
        EarlyExit::failed(error)
    }

    pub(super) async fn fetch(&self, source: &Source, head: &Head) -> Result<Checkout, EarlyExit> {
        let checkout = self.context.origin.fetch(source, head, &self.context.stop).await;
        checkout.map_err(|error| self.remote_failure(source, error))
    }

    pub(super) async fn resolve(&self) -> Result<Source, ResolveError> {
        let spec = self.context.durations.clamp_timeout(&self.object.spec);
        let source = resolve::resolve(&spec, &ObjectKey::of(&self.object), self.context).await?;
        // Without a recorded trigger, assume that the event arrived just now.
        let is_new = report::is_requested(&self.object) || report::is_new_generation(&self.object);
        let triggered_at = self.triggered_at.or_else(|| is_new.then(Instant::now));
        Ok(Source {
            triggered_at,
            ..source
        })
    }

    /// Verifies the requested signatures on a blocking thread. An unverified revision is not announced and does not
    /// mark the artifact outdated.
    pub(super) async fn verify(
        &self,
        verification: Option<Verification>,
        checkout: &Checkout,
        head: &Head,
    ) -> Result<SignatureState, EarlyExit> {
        let Some(verification) = verification else {
            return Ok(SignatureState::NotRequested);
        };
        let (checkout, head, now) = (checkout.clone(), head.clone(), self.context.clock.now());
        let verified = self
            .run_blocking(move || verification.verify(&checkout, &head, now))
            .await;
        let verified = verified.map_err(EarlyExit::failed)?.map_err(EarlyExit::failed)?;
        self.record_event(Event::trace("Succeeded", verified.message.clone()));
        Ok(SignatureState::Verified(verified))
    }

    /// Builds the tree to pack. `deadline` bounds the requests to remotes.
    pub(super) async fn compose(
        &self,
        source: &Source,
        checkout: Checkout,
        deadline: Instant,
    ) -> Result<Tree, ReconcileError> {
        let context = self.context;
        let parts = source.parts.clone();
        let base = if parts.submodules {
            let fetcher = SubmoduleFetcher {
                origin: &*context.origin,
                slots: &context.slots,
                namespace: &self.namespace,
                stop: &context.stop,
                deadline,
            };
            fetcher.module(source, checkout).await?
        } else {
            Module::from(checkout)
        };
        Ok(self.run_blocking(move || compose::select(base, &parts)).await??)
    }

    pub(super) fn included(&self) -> Result<Vec<Included>, IncludeError> {
        let (repositories, wait) = (&*self.context.repositories, self.context.dependency_wait);
        include::resolve(&self.object.spec, &self.namespace, repositories, wait)
    }

    /// Merges, packs and publishes on a blocking thread.
    pub(super) async fn store(
        &self,
        directory: &ObjectDirectory,
        observed: &Observed,
        tree: Tree,
        included: Vec<Included>,
        head: &Head,
    ) -> Result<Published, ReconcileError> {
        let context = self.context;
        let previous = observed
            .artifact
            .as_ref()
            .and_then(|existing| directory.recorded(&existing.path));
        let build = ArtifactBuild {
            storage: Arc::clone(&context.storage),
            origin: Arc::clone(&context.origin),
            tree,
            included,
            include_entries: context.limits.entries,
            ignore: self.object.spec.ignore.clone(),
            algorithm: context.algorithm,
            path: directory.artifact(&head.commit.to_string())?,
            revision: head.revision(),
            previous,
            keep: context.retention.records,
            now: context.clock.now(),
        };
        let slot = context.slots.acquire_additional(&self.namespace, Lane::Packing);
        let slot = tokio::select! {
            slot = tokio::time::timeout(PACK_LIMIT, slot) => slot,
            () = context.stop.cancelled() => return Err(JobError::Stopped.into()),
        };
        let _slot = slot.map_err(|_| JobError::TimedOut(PACK_LIMIT))?;
        let span = tracing::Span::current();
        let pack = move |stop: &Token| span.in_scope(|| build.run(stop));
        let published = context.packing.run(PACK_LIMIT, &context.stop, pack).await??;
        let before = observed.artifact.as_ref().map(|existing| &existing.digest);
        if before != Some(&published.artifact.digest) {
            for event in published.warnings.events() {
                self.record_event(event);
            }
        }
        Ok(published)
    }
}
