//! One pass: observe, resolve, look up the head, and only if that is news fetch, pack, publish; then report. This file
//! alone knows the order; each phase is a file of its own and hands a value to the next.
//!
//! A status is written at most twice: when there is something to announce, and at the end. A pass that finds nothing new
//! writes nothing.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, ResourceExt as _};
use sluice_api::annotation::for_events;
use sluice_api::source::{Artifact, FINALIZER, GitRepository, GitRepositoryStatus};
use sluice_runtime::event::Event;
use sluice_runtime::failure::{Class, Failure as _};
use sluice_runtime::finalizer;
use sluice_runtime::shutdown::Token;
use sluice_runtime::status::{self, Applied, WriteError};
use sluice_runtime::watch::Next;

use super::content::ContentConfig;
use super::error::PassError;
use super::observe::{self, Observed};
use super::publish::{self, Packed};
use super::report::{self, Ending};
use super::resolve::{self, ResolveError, Source};
use super::{Context, UnreportedError, cleanup, conditions, pack};
use crate::git::{Checkout, Head};
use crate::storage::ObjectDirectory;

/// Longest time that packing one artifact may take.
const PACK_LIMIT: Duration = Duration::from_secs(15 * 60);
/// Longest time that a look at storage may take.
const STORAGE_LIMIT: Duration = Duration::from_secs(5 * 60);

/// When a pass is tried again that found no place at its host.
const BUSY: Duration = Duration::from_secs(1);

/// An artifact in storage, and what its event tells beside it.
struct Published {
    artifact: Artifact,
    files: u64,
}

/// What keeps a pass from going through all phases.
enum Early {
    /// An ending that can be reported.
    Ended(Ending),
    /// One that cannot.
    Unreported(UnreportedError),
}

impl Early {
    fn failed(error: impl Into<PassError>, revision: Option<&str>) -> Self {
        Self::Ended(Ending::Failed {
            error: error.into(),
            revision: revision.map(str::to_owned),
        })
    }
}

impl From<WriteError> for Early {
    fn from(error: WriteError) -> Self {
        Self::Unreported(error.into())
    }
}

/// One pass.
pub(super) struct Pass<'a> {
    context: &'a Context,
    api: Api<GitRepository>,
    /// The object as the pass found it; the pass is about this one.
    object: GitRepository,
    /// The object after this pass's last write; the next write builds on it.
    latest: GitRepository,
    namespace: String,
}

impl<'a> Pass<'a> {
    /// Over this object.
    pub(super) fn new(
        context: &'a Context,
        api: Api<GitRepository>,
        object: GitRepository,
        namespace: String,
    ) -> Self {
        Self {
            context,
            api,
            latest: object.clone(),
            object,
            namespace,
        }
    }

    /// From the beginning to the report.
    pub(super) async fn run(mut self) -> Result<Next, UnreportedError> {
        if self.object.metadata.deletion_timestamp.is_some() {
            return self.delete().await;
        }
        if !finalizer::is_held(&self.object, FINALIZER) {
            // The change is an event of its own, and starts the first real pass.
            finalizer::ensure(&self.api, &self.object, FINALIZER).await?;
            return Ok(Next::OnChange);
        }
        if self.object.spec.suspend {
            tracing::info!("reconciliation is suspended for this object");
            return self.finish(&self.unobserved(), Ending::Suspended).await;
        }
        let (observed, attempted) = match self.observe().await {
            Ok((directory, observed)) => {
                let attempted = self.attempt(&directory, &observed).await;
                (observed, attempted)
            }
            Err(error) => (self.unobserved(), Err(Early::failed(error, None))),
        };
        let ending = match attempted {
            Ok(ending) | Err(Early::Ended(ending)) => ending,
            Err(Early::Unreported(error)) => return Err(error),
        };
        self.finish(&observed, ending).await
    }

    /// What the status says, where storage was not looked at.
    fn unobserved(&self) -> Observed {
        let artifact = self
            .object
            .status
            .as_ref()
            .and_then(|status| status.artifact.clone());
        Observed {
            artifact,
            ..Observed::default()
        }
    }

    async fn observe(&self) -> Result<(ObjectDirectory, Observed), PassError> {
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

    /// The phases between observation and report.
    async fn attempt(&mut self, directory: &ObjectDirectory, observed: &Observed) -> Result<Ending, Early> {
        let announced = report::announcement(&self.object, observed);
        if let Some(text) = &announced {
            self.announce(observed, text, None).await?;
        }
        let source = self.resolve().await.map_err(|error| Early::failed(error, None))?;
        let host = source.remote.address.host();
        let _place = self
            .context
            .places
            .take(&host)
            .ok_or(Early::Ended(Ending::Busy))?;
        let head = self
            .context
            .origin
            .head(&source)
            .await
            .map_err(|error| Early::failed(error, None))?;
        let content = ContentConfig::wanted(&self.object.spec);
        if self.is_up_to_date(observed, &head.revision(), &content) {
            return Ok(Ending::UpToDate);
        }
        self.build(directory, observed, &source, &head, content, announced.is_some())
            .await
    }

    /// Makes a new artifact.
    async fn build(
        &mut self,
        directory: &ObjectDirectory,
        observed: &Observed,
        source: &Source,
        head: &Head,
        content: ContentConfig,
        announced: bool,
    ) -> Result<Ending, Early> {
        let revision = head.revision();
        let fetched = self.context.origin.fetch(source, head, &self.context.stop).await;
        let checkout = fetched.map_err(|error| Early::failed(error, Some(&revision)))?;
        let is_news = observed
            .artifact
            .as_ref()
            .is_none_or(|held| held.revision != revision);
        if is_news && !announced {
            let text = report::progress(&self.object, observed, Some(&revision));
            self.announce(observed, &text, Some(&revision)).await?;
        }
        let subject = checkout.commit().subject().to_owned();
        let stored = self.store(directory, observed, checkout, head).await;
        let Published { artifact, files } = stored.map_err(|error| Early::failed(error, Some(&revision)))?;
        Ok(Ending::Stored {
            artifact,
            files,
            subject,
            content,
        })
    }

    async fn resolve(&self) -> Result<Source, ResolveError> {
        let Context {
            client,
            transport,
            limits,
            ..
        } = self.context;
        resolve::resolve(&self.object.spec, &self.namespace, client, transport, *limits).await
    }

    /// The no-op test: the stored artifact is of this revision and was made with these settings.
    fn is_up_to_date(&self, observed: &Observed, revision: &str, content: &ContentConfig) -> bool {
        let same_revision = |held: &Artifact| held.parsed_revision().to_string() == revision;
        let made_with = self.object.status.as_ref().map(ContentConfig::observed);
        observed.artifact.as_ref().is_some_and(same_revision) && made_with.as_ref() == Some(content)
    }

    /// Packs and publishes, on a thread that may block.
    async fn store(
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

    async fn announce(
        &mut self,
        observed: &Observed,
        text: &str,
        revision: Option<&str>,
    ) -> Result<(), WriteError> {
        let now = self.context.clock.now();
        let written = self
            .write(|object| report::in_progress(object, observed, text, revision, now))
            .await?;
        if let Some(latest) = written.object() {
            self.latest = latest;
        }
        Ok(())
    }

    /// Reports, and says when to look again.
    async fn finish(&self, observed: &Observed, ending: Ending) -> Result<Next, UnreportedError> {
        if matches!(ending, Ending::Failed { .. }) && self.context.stop.is_cancelled() {
            // What was interrupted by the program's end is no failure of the object.
            return Ok(Next::OnChange);
        }
        if matches!(ending, Ending::Busy) {
            return Ok(Next::After(BUSY));
        }
        let now = self.context.clock.now();
        let Some(after) = self
            .write(|object| report::settled(object, observed, &ending, now))
            .await?
            .object()
        else {
            return Ok(Next::OnChange);
        };
        for event in report::events(&self.object, &ending, &after.status.unwrap_or_default()) {
            self.tell(event);
        }
        let interval = || {
            self.context
                .schedule
                .after(self.object.spec.interval.to_duration())
        };
        Ok(match &ending {
            Ending::Stored { .. } | Ending::UpToDate => Next::at(interval()),
            Ending::Suspended | Ending::Busy => Next::OnChange,
            Ending::Failed { error, .. } => {
                let (class, reason, error) = (error.class(), error.reason(), error as &dyn std::error::Error);
                match class {
                    Class::Transient => {
                        tracing::warn!(error, reason, "reconciliation failed");
                        Next::Backoff
                    }
                    Class::Waiting(after) => {
                        tracing::info!(error, reason, duration = ?after, "reconciliation waiting");
                        Next::After(after)
                    }
                    Class::Terminal => {
                        tracing::error!(error, reason, "reconciliation stalled");
                        Next::OnChange
                    }
                }
            }
        })
    }

    /// Writes a status that is computed from the object as this pass saw it and the status that stands there now.
    async fn write(
        &self,
        compute: impl Fn(&GitRepository) -> GitRepositoryStatus,
    ) -> Result<Applied<GitRepository>, WriteError> {
        status::apply(&self.api, &self.latest, &conditions::owned(), |fresh| {
            compute(&GitRepository {
                status: fresh.status.clone(),
                ..self.object.clone()
            })
        })
        .await
    }

    async fn delete(&self) -> Result<Next, UnreportedError> {
        if !finalizer::is_held(&self.object, FINALIZER) {
            return Ok(Next::OnChange);
        }
        if let Ok(directory) = ObjectDirectory::git_repository(&self.namespace, &self.object.name_any()) {
            let Context {
                storage, looks, stop, ..
            } = self.context;
            let storage = Arc::clone(storage);
            let removed = looks
                .run(STORAGE_LIMIT, stop, move |_| {
                    cleanup::cleanup(&*storage, &directory)
                })
                .await;
            match removed {
                Ok(Ok(event)) => event.into_iter().for_each(|event| self.tell(event)),
                Ok(Err(error)) => return Ok(self.stuck(&error)),
                Err(error) => return Ok(self.stuck(&error)),
            }
        }
        finalizer::release(&self.api, &self.object, FINALIZER).await?;
        Ok(Next::OnChange)
    }

    /// The object keeps its finalizer, and is tried again.
    fn stuck(&self, error: &dyn std::error::Error) -> Next {
        if self.context.stop.is_cancelled() {
            // The next start goes on with it.
            return Next::OnChange;
        }
        let text = format!("garbage collection for deleted resource failed: {error}");
        tracing::error!(error = text, "artifacts of a deleted object stay for now");
        self.tell(Event::warning("GarbageCollectionFailed", text));
        Next::Backoff
    }

    /// Records an event, with the object's own annotations for events.
    fn tell(&self, event: Event) {
        let own = for_events(self.object.annotations());
        let event = own.fold(event, |event, (key, value)| event.with(key, value));
        self.context.recorder.record(&self.object, event);
    }
}
