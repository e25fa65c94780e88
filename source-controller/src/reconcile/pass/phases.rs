//! The phases with an effect, each on the thread it belongs on.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use sluice_api::source::Artifact;
use sluice_runtime::shutdown::Token;

use super::super::error::PassError;
use super::super::observe::{self, Observed};
use super::super::publish::{self, Packed};
use super::super::resolve::{self, ResolveError, Source};
use super::super::{Context, pack, report};
use super::Pass;
use crate::git::{Checkout, Head};
use crate::storage::ObjectDirectory;

/// Longest time that packing one artifact may take.
const PACK_LIMIT: Duration = Duration::from_secs(15 * 60);
/// Longest time that a look at storage may take.
pub(super) const STORAGE_LIMIT: Duration = Duration::from_secs(5 * 60);

/// An artifact in storage, and what its event tells beside it.
pub(super) struct Published {
    pub(super) artifact: Artifact,
    pub(super) files: u64,
}

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
                observe::observe(&*storage, &place, &status, retention, now)
            })
            .await??;
        for event in report::storage_events(&observed) {
            self.tell(event);
        }
        Ok((directory, observed))
    }

    pub(super) async fn resolve(&self) -> Result<Source, ResolveError> {
        let Context {
            client,
            transport,
            limits,
            ..
        } = self.context;
        resolve::resolve(&self.object.spec, &self.namespace, client, transport, *limits).await
    }

    /// Packs and publishes, on a thread that may block.
    pub(super) async fn store(
        &self,
        directory: &ObjectDirectory,
        observed: &Observed,
        checkout: Checkout,
        head: &Head,
    ) -> Result<Published, PassError> {
        let Context {
            storage,
            algorithm,
            clock,
            packing,
            stop,
            ..
        } = self.context;
        let (storage, algorithm, now) = (Arc::clone(storage), *algorithm, clock.now());
        let (path, revision) = (directory.artifact(&head.commit.to_string())?, head.revision());
        let previous = observed
            .artifact
            .as_ref()
            .and_then(|held| directory.recorded(&held.path));
        let ignore = self.object.spec.ignore.clone();
        let work = move |stop: &Token| -> Result<Published, PassError> {
            let draft = storage.create(&path)?;
            let (draft, totals) = pack::pack(&checkout, ignore.as_deref(), algorithm, draft, stop)?;
            let files = totals.files;
            tracing::info!(revision, files, bytes = totals.size, digest = %totals.digest, "artifact packed");
            let packed = Packed {
                draft,
                totals,
                path,
                revision,
            };
            let artifact = publish::publish(&*storage, packed, previous.as_ref(), now)?;
            Ok(Published { artifact, files })
        };
        let span = tracing::Span::current();
        packing
            .run(PACK_LIMIT, stop, move |stop| span.in_scope(|| work(stop)))
            .await?
    }
}
