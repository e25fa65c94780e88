//! One pass: observe, resolve, look up the head, and only if that is news fetch, verify, pack, publish; then report. This file
//! alone knows the order; each phase is a file of its own and hands a value to the next. `pass/phases.rs` runs those with an effect,
//! `pass/ending.rs` reports.
//!
//! A status is written at most twice: when there is something to announce, and at the end. A pass that finds nothing new
//! writes nothing.

mod ending;
mod making;
mod phases;

use kube::Api;
use sluice_api::source::{Artifact, FINALIZER, GitRepository};
use sluice_runtime::finalizer;
use sluice_runtime::status::WriteError;
use sluice_runtime::watch::Next;
use tokio::time::Instant;

use super::content::ContentConfig;
use super::error::PassError;
use super::observe::Observed;
use super::report::{self, Ending};
use super::resolve::{self, Source};
use super::submodules::SubmoduleError;
use super::verify::{Standing, Verification, VerifyError};
use super::{Context, UnreportedError};
use crate::git::Head;
use crate::storage::ObjectDirectory;
use making::Published;

/// What keeps a pass from going through all phases.
enum Early {
    /// An ending that can be reported.
    Ended(Box<Ending>),
    /// One that cannot.
    Unreported(UnreportedError),
}

impl Early {
    fn failed(error: impl Into<PassError>, revision: Option<&str>) -> Self {
        Self::Ended(Box::new(Ending::Failed {
            error: error.into(),
            revision: revision.map(str::to_owned),
        }))
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
                let attempted = Box::pin(self.attempt(&directory, &observed)).await;
                (observed, attempted)
            }
            Err(error) => (self.unobserved(), Err(Early::failed(error, None))),
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
        let announced = report::announcement(&self.object, observed);
        if let Some(text) = &announced {
            self.announce(observed, text, None).await?;
        }
        // Before the source is resolved: whoever lends credentials for a host may hang as long as the host itself.
        let _place = self
            .context
            .places
            .take(&resolve::host(&self.object.spec))
            .ok_or(Early::Ended(Box::new(Ending::Busy)))?;
        let source = self.resolve().await.map_err(|error| Early::failed(error, None))?;
        let asked = Verification::asked(&self.object.spec, &self.namespace, &self.context.client).await;
        let head = self
            .context
            .origin
            .head(&source, &self.context.stop)
            .await
            .map_err(|error| self.unread(&source, error, None))?;
        let content = ContentConfig::wanted(&self.object.spec);
        if self.is_up_to_date(observed, &head.revision(), &content) {
            return self
                .stand(Wanted {
                    source,
                    head,
                    content,
                    asked,
                })
                .await;
        }
        self.build(
            directory,
            observed,
            Wanted {
                source,
                head,
                content,
                asked,
            },
            announced.is_some(),
        )
        .await
    }

    /// Keeps the stored artifact, if its revision is verified as the spec asks now.
    async fn stand(&self, wanted: Wanted) -> Result<Ending, Early> {
        let Wanted {
            source,
            head,
            content,
            asked,
        } = wanted;
        let revision = head.revision();
        let asked = asked.map_err(|error| Early::failed(error, None))?;
        let status = self.object.status.as_ref();
        let due = asked.filter(|asked| status.is_none_or(|status| asked.is_due(status, &content)));
        let standing = match due {
            Some(asked) => {
                let fetched = self
                    .context
                    .origin
                    .fetch(&source, &head, &self.context.stop)
                    .await;
                let checkout = fetched.map_err(|error| self.unread(&source, error, Some(&revision)))?;
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
            content,
            asked,
        } = wanted;
        let revision = head.revision();
        let deadline = Instant::now() + source.remote.timeout;
        let fetched = self
            .context
            .origin
            .fetch(&source, &head, &self.context.stop)
            .await;
        let checkout = fetched.map_err(|error| self.unread(&source, error, Some(&revision)))?;
        let asked = asked.map_err(|error| Early::failed(error, None))?;
        let standing = self.verify(asked, &checkout, &head).await?;
        let tree = match self.compose(&source, checkout, deadline).await {
            Ok(tree) => tree,
            Err(PassError::Submodule(SubmoduleError::Busy { .. })) => return Ok(Ending::Busy),
            Err(error) => return Err(Early::failed(error, Some(&revision))),
        };
        let is_news = observed
            .artifact
            .as_ref()
            .is_none_or(|held| !report::is_of(held, &revision));
        if is_news && !announced {
            let text = report::progress(&self.object, observed, Some(&revision));
            self.announce(observed, &text, Some(&revision)).await?;
        }
        let subject = tree.commit().subject().to_owned();
        let stored = self.store(directory, observed, tree, &head).await;
        let Published { artifact, files, .. } =
            stored.map_err(|error| Early::failed(error, Some(&revision)))?;
        Ok(Ending::Stored {
            artifact,
            files,
            subject,
            content,
            standing,
        })
    }

    /// The no-op test: the stored artifact is of this revision and was made with these settings.
    fn is_up_to_date(&self, observed: &Observed, revision: &str, content: &ContentConfig) -> bool {
        let same_revision = |held: &Artifact| report::is_of(held, revision);
        let made_with = self.object.status.as_ref().map(ContentConfig::observed);
        observed.artifact.as_ref().is_some_and(same_revision) && made_with.as_ref() == Some(content)
    }
}
