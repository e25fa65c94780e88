//! The phases with an effect, each on the thread it belongs on.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use sluice_runtime::blocking::JobError;
use sluice_runtime::event::Event;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::shutdown::Token;
use tokio::time::Instant;

use super::super::error::PassError;
use super::super::include::{self, Bounds, IncludeError, Included};
use super::super::observe::{self, Observed};
use super::super::places::Lane;
use super::super::resolve::{self, ResolveError, Source};
use super::super::submodules::Recursion;
use super::super::verify::{Standing, Verification};
use super::super::{Context, compose, report, told};
use super::making::{Making, Published};
use super::{Early, Pass};
use crate::git::{Checkout, FetchError, Head};
use crate::storage::ObjectDirectory;
use crate::tree::{Module, Tree};

/// Longest time that packing one artifact may take.
const PACK_LIMIT: Duration = Duration::from_secs(15 * 60);
/// Longest time that a look at storage may take.
pub(super) const STORAGE_LIMIT: Duration = Duration::from_secs(5 * 60);

impl Pass<'_> {
    pub(super) async fn observe(&self) -> Result<(ObjectDirectory, Observed), PassError> {
        let directory = ObjectDirectory::git_repository(&self.namespace, &self.object.name_any())?;
        let Context {
            storage,
            retention,
            clock,
            looks,
            stop,
            ..
        } = self.context;
        let (storage, retention, now) = (Arc::clone(storage), *retention, clock.now());
        let (place, status) = (directory.clone(), self.object.status.clone().unwrap_or_default());
        let observed = looks
            .run(STORAGE_LIMIT, stop, move |_| {
                observe::observe(&*storage, &place, &status, retention.ttl, now)
            })
            .await??;
        for event in told::storage_events(&observed) {
            self.tell(event);
        }
        Ok((directory, observed))
    }

    /// A failure of the remote. A lent token that it refuses is not shown to it again.
    pub(super) fn unread(&self, source: &Source, error: FetchError) -> Early {
        if error.is_refusal() {
            self.context.tokens.refused(&source.remote.credentials);
        }
        Early::failed(error)
    }

    pub(super) async fn resolve(&self) -> Result<Source, ResolveError> {
        let Context {
            client,
            transport,
            tokens,
            limits,
            times,
            ..
        } = self.context;
        let key = ObjectKey::of(&self.object);
        let spec = times.applied(&self.object.spec);
        let source = resolve::resolve(&spec, &key, client, transport, tokens, *limits).await?;
        // An event that nobody saw come is taken for one of this moment.
        let is_new = report::is_asked_for(&self.object) || report::is_new_generation(&self.object);
        let call = self.call.or_else(|| is_new.then(Instant::now));
        Ok(Source { call, ..source })
    }

    /// Verifies the signatures that the spec asks for, on a thread that may block. Where one is missing, the revision is
    /// no news: nothing is outdated by what is not trusted.
    pub(super) async fn verify(
        &self,
        asked: Option<Verification>,
        checkout: &Checkout,
        head: &Head,
    ) -> Result<Standing, Early> {
        let Some(asked) = asked else {
            return Ok(Standing::Unasked);
        };
        let Context {
            clock, looks, stop, ..
        } = self.context;
        let (checkout, head, now) = (checkout.clone(), head.clone(), clock.now());
        let verified = looks
            .run(STORAGE_LIMIT, stop, move |_| asked.verify(&checkout, &head, now))
            .await
            .map_err(Early::failed)?
            .map_err(Early::failed)?;
        self.tell(Event::trace("Succeeded", verified.text.clone()));
        Ok(Standing::Verified(verified))
    }

    /// Puts together what is packed, until `deadline` as far as remotes have a part in it.
    pub(super) async fn compose(
        &self,
        source: &Source,
        checkout: Checkout,
        deadline: Instant,
    ) -> Result<Tree, PassError> {
        let Context {
            looks,
            stop,
            places,
            origin,
            ..
        } = self.context;
        let parts = source.parts.clone();
        let base = if parts.submodules {
            let recursion = Recursion {
                origin: &**origin,
                places,
                namespace: &self.namespace,
                stop,
                deadline,
            };
            recursion.module(source, checkout).await?
        } else {
            Module::from(checkout)
        };
        let select = move |_: &Token| compose::select(base, &parts);
        Ok(looks.run(STORAGE_LIMIT, stop, select).await??)
    }

    pub(super) fn included(&self) -> Result<Vec<Included>, IncludeError> {
        let Context {
            repositories,
            dependency_wait,
            ..
        } = self.context;
        include::resolve(
            &self.object.spec,
            &self.namespace,
            &**repositories,
            *dependency_wait,
        )
    }

    /// Merges, packs and publishes, on a thread that may block.
    pub(super) async fn store(
        &self,
        directory: &ObjectDirectory,
        observed: &Observed,
        tree: Tree,
        included: Vec<Included>,
        head: &Head,
    ) -> Result<Published, PassError> {
        let Context {
            storage,
            algorithm,
            clock,
            origin,
            packing,
            places,
            retention,
            limits,
            stop,
            ..
        } = self.context;
        let previous = observed
            .artifact
            .as_ref()
            .and_then(|held| directory.recorded(&held.path));
        let making = Making {
            storage: Arc::clone(storage),
            origin: Arc::clone(origin),
            tree,
            included,
            bounds: Bounds {
                entries: limits.entries,
            },
            ignore: self.object.spec.ignore.clone(),
            algorithm: *algorithm,
            path: directory.artifact(&head.commit.to_string())?,
            revision: head.revision(),
            previous,
            keep: retention.records,
            now: clock.now(),
        };
        let slot = tokio::select! {
            slot = tokio::time::timeout(PACK_LIMIT, places.beside(&self.namespace, Lane::Packing)) => slot,
            () = stop.cancelled() => return Err(JobError::Stopped.into()),
        };
        let _slot = slot.map_err(|_| JobError::TimedOut(PACK_LIMIT))?;
        let span = tracing::Span::current();
        let published = packing
            .run(PACK_LIMIT, stop, move |stop| span.in_scope(|| making.run(stop)))
            .await??;
        let before = observed.artifact.as_ref().map(|held| &held.digest);
        if before != Some(&published.artifact.digest) {
            for event in published.remarks.events() {
                self.tell(event);
            }
        }
        Ok(published)
    }
}
