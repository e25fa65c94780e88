//! One pass: observe, resolve, find the includes, look up the head, and only if that is news fetch, verify, merge, pack,
//! publish; then report. This file alone knows the order; each phase is a file of its own and hands a value to the next.
//! `pass/phases.rs` runs those with an effect, `pass/ending.rs` reports.
//!
//! A status is written at most twice: when there is something to announce, and at the end. A pass that finds nothing new
//! writes nothing.

mod ending;
mod making;
mod phases;
mod waiting;

use kube::Api;
use sluice_api::source::{Artifact, FINALIZER, GitRepository};
use sluice_runtime::event::Event;
use sluice_runtime::finalizer;
use sluice_runtime::status::WriteError;
use sluice_runtime::watch::Next;
use tokio::time::Instant;

use super::content::{Change, ContentConfig};
use super::error::PassError;
use super::include::{self, Included};
use super::observe::Observed;
use super::places::Place;
use super::report::{self, Ending, News, Stored};
use super::resolve::Source;
use super::verify::{Standing, Verification, VerifyError};
use super::{Context, UnreportedError};
use crate::git::{FetchError, Head};
use crate::storage::ObjectDirectory;
use making::Published;
pub(super) use waiting::Wait;

/// What keeps a pass from going through all phases.
enum Early {
    /// An ending that can be reported.
    Ended(Box<Ending>),
    /// One that cannot.
    Unreported(UnreportedError),
}

impl Early {
    fn failed(error: impl Into<PassError>) -> Self {
        Self::Ended(Box::new(Ending::Failed(error.into())))
    }
}

impl From<WriteError> for Early {
    fn from(error: WriteError) -> Self {
        Self::Unreported(error.into())
    }
}

/// What a pass is to make an artifact of, and on which condition.
struct Wanted {
    source: Source,
    head: Head,
    included: Vec<Included>,
    content: ContentConfig,
    /// What is to be verified, or why the keys for it are not there.
    asked: Result<Option<Verification>, VerifyError>,
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
    /// What was found out so far.
    news: News,
    /// The place at the host.
    place: Option<Place>,
    /// The event that called for the pass, if it was one.
    call: Option<Instant>,
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
            news: News::default(),
            place: None,
            call: None,
        }
    }

    /// At this place, called by the event of this time.
    pub(super) fn at(mut self, place: Place, call: Option<Instant>) -> Self {
        (self.place, self.call) = (Some(place), call);
        self
    }

    /// From the beginning to the report.
    pub(super) async fn run(mut self) -> Result<Next, UnreportedError> {
        if self.object.metadata.deletion_timestamp.is_some() {
            return self.delete().await;
        }
        if !finalizer::is_held(&self.object, FINALIZER) {
            // The change is an event of its own, and starts the first real pass.
            let ensured = finalizer::ensure(&self.api, &self.object, FINALIZER).await;
            self.wrote(&ensured);
            ensured?;
            return Ok(Next::OnChange);
        }
        if self.object.spec.suspend {
            tracing::info!("reconciliation is suspended for this object");
            return self.finish(&self.unobserved(), Ending::Suspended).await;
        }
        let (observed, attempted) = match self.observe().await {
            Ok((directory, observed)) => {
                let attempted = Box::pin(self.attempt(&directory, &observed)).await;
                (observed, attempted)
            }
            Err(error) => (self.unobserved(), Err(Early::failed(error))),
        };
        let ending = match attempted {
            Ok(ending) => ending,
            Err(Early::Ended(ending)) => *ending,
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

    /// The phases between observation and report.
    async fn attempt(&mut self, directory: &ObjectDirectory, observed: &Observed) -> Result<Ending, Early> {
        let announcement = report::announcement(&self.object, observed);
        let mut announced = announcement.is_some();
        if let Some(text) = announcement {
            for remark in self.context.times.remarks(&self.object.spec) {
                self.tell(Event::warning("ValueOutOfBounds", remark));
            }
            self.announce(observed, &text).await?;
        }
        let source = tokio::select! {
            source = self.resolve() => source.map_err(Early::failed)?,
            () = self.context.stop.cancelled() => return Err(Early::failed(FetchError::Stopped)),
        };
        let included = self.included().map_err(Early::failed)?;
        self.news.includes = include::differ(&included, self.included_before());
        if self.news.includes && !announced {
            self.announce_news(observed).await?;
            announced = true;
        }
        let asked = Verification::asked(&self.object.spec, &self.namespace, &self.context.client).await;
        let head = self.context.origin.head(&source, &self.context.stop).await;
        let head = head.map_err(|error| self.unread(&source, error))?;
        let wanted = Wanted {
            content: ContentConfig::wanted(&self.object.spec, &included),
            source,
            head,
            included,
            asked,
        };
        let revision = wanted.head.revision();
        if let Some(because) = self.to_do(observed, &revision, &wanted.content) {
            tracing::info!(revision, because, "an artifact is made");
            return self.build(directory, observed, wanted, announced).await;
        }
        tracing::debug!(revision, "the stored artifact is what would be made");
        self.stand(wanted).await
    }

    /// Keeps the stored artifact, if its revision is verified as the spec asks now.
    async fn stand(&self, wanted: Wanted) -> Result<Ending, Early> {
        let Wanted {
            source,
            head,
            content,
            asked,
            ..
        } = wanted;
        let asked = asked.map_err(Early::failed)?;
        let status = self.object.status.as_ref();
        let due = asked.filter(|asked| status.is_none_or(|status| asked.is_due(status, &content)));
        let standing = match due {
            Some(asked) => {
                let origin = &self.context.origin;
                let checkout = origin.fetch(&source, &head, &self.context.stop).await;
                let checkout = checkout.map_err(|error| self.unread(&source, error))?;
                self.verify(Some(asked), &checkout, &head).await?
            }
            None if self.object.spec.verify.is_some() => Standing::Held,
            None => Standing::Unasked,
        };
        Ok(Ending::UpToDate { content, standing })
    }

    /// Makes a new artifact.
    async fn build(
        &mut self,
        directory: &ObjectDirectory,
        observed: &Observed,
        wanted: Wanted,
        announced: bool,
    ) -> Result<Ending, Early> {
        let Wanted {
            source,
            head,
            included,
            content,
            asked,
        } = wanted;
        self.news.revision = Some(head.revision());
        let deadline = Instant::now() + source.remote.timeout;
        let origin = &self.context.origin;
        let checkout = origin.fetch(&source, &head, &self.context.stop).await;
        let checkout = checkout.map_err(|error| self.unread(&source, error))?;
        // Until it is verified it is no news to anybody.
        let revision = self.news.revision.take();
        let standing = self
            .verify(asked.map_err(Early::failed)?, &checkout, &head)
            .await?;
        self.news.revision = revision;
        let tree = self.compose(&source, checkout, deadline).await;
        let tree = tree.map_err(Early::failed)?;
        if let Some(place) = &mut self.place {
            // Nothing is asked of the host any more.
            place.leave();
        }
        if self.news.is_drift(observed) && !announced {
            self.announce_news(observed).await?;
        }
        let subject = tree.commit().subject().to_owned();
        let stored = self.store(directory, observed, tree, included, &head).await;
        let Published { artifact, files, .. } = stored.map_err(Early::failed)?;
        Ok(Ending::Stored(Box::new(Stored {
            artifact,
            files,
            subject,
            content,
            standing,
        })))
    }

    async fn announce_news(&mut self, observed: &Observed) -> Result<(), Early> {
        let text = report::progress(&self.object, observed, &self.news);
        Ok(self.announce(observed, &text).await?)
    }

    /// Why a new artifact is to be made, if one is: the stored one must be of this revision and made with these settings.
    fn to_do(&self, observed: &Observed, revision: &str, content: &ContentConfig) -> Option<&'static str> {
        let (Some(held), Some(status)) = (&observed.artifact, &self.object.status) else {
            return Some("none is stored");
        };
        if !report::is_of(held, revision) {
            return Some("the revision is new");
        }
        content.change_since(status).map(Change::as_str)
    }

    /// The artifacts that the stored one includes.
    fn included_before(&self) -> &[Artifact] {
        let status = self.object.status.as_ref();
        status.map_or(&[], |status| &status.included_artifacts)
    }
}
