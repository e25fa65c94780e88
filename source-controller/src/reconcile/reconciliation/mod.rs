//! One reconciliation: observe storage, resolve the source, look up includes and head; if anything changed, fetch,
//! verify, merge, pack and publish; then report. This module defines the order. Each phase has its own file and passes
//! a value to the next; `progress` announces changes, `build` packs and publishes, `finish` reports.
//!
//! The status is written at most twice: once to announce progress, if the reconciliation takes long, and once at the end.
//! A reconciliation that finds no change writes nothing.

mod build;
mod finish;
mod inputs;
mod progress;
mod trace;
mod unchanged;
mod wait;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use build::Published;
pub(super) use finish::Outcome;
use finish::Stored;
use kube::{Api, ResourceExt as _};
use progress::{Progress, UpstreamChange};
use sluice_api::annotation::event_annotations;
use sluice_api::source::{FINALIZER, GitRepository};
use sluice_runtime::blocking::JobError;
use sluice_runtime::event::Event;
use sluice_runtime::finalizer;
use sluice_runtime::status::WriteError;
use sluice_runtime::watch::Requeue;
use tokio::time::Instant;
use trace::PhaseTimes;
pub(super) use wait::QueueWait;

use super::content::{Change, ContentConfig};
use super::error::ReconcileError;
use super::include::{self, Included};
use super::observe::Observed;
use super::resolve::Source;
use super::slots::Slot;
use super::submodules::SubmoduleFetcher;
use super::verify::{SignatureState, Verification, VerifyError};
use super::{Context, UnreportedError};
use crate::git::{Checkout, FetchError, Head};
use crate::storage::ObjectDirectory;
use crate::tree::{Module, Tree};

/// Time limit for reading storage.
const STORAGE_LIMIT: Duration = Duration::from_mins(5);

/// An early exit from the phases.
enum EarlyExit {
    /// An outcome that can be reported.
    Outcome(Box<Outcome>),
    /// An error that cannot be reported.
    Unreported(UnreportedError),
}

impl EarlyExit {
    fn failed(error: impl Into<ReconcileError>) -> Self {
        Self::Outcome(Box::new(Outcome::Failed(error.into())))
    }
}

impl From<WriteError> for EarlyExit {
    fn from(error: WriteError) -> Self {
        Self::Unreported(error.into())
    }
}

/// The inputs of an artifact build.
struct BuildInputs {
    source: Source,
    head: Head,
    included: Vec<Included>,
    content: ContentConfig,
    /// The requested verification, or the error from loading its keys.
    verification: Result<Option<Verification>, VerifyError>,
}

/// One reconciliation.
pub(super) struct Reconciliation<'a> {
    context: &'a Context,
    api: Api<GitRepository>,
    /// The object at the start; all decisions are based on it.
    object: Arc<GitRepository>,
    progress: Mutex<Progress>,
    /// When the progress is written, if the reconciliation has not ended.
    progress_due: Instant,
    namespace: String,
    /// The upstream changes found so far.
    change: UpstreamChange,
    /// The slot at the host.
    slot: Option<Slot>,
    /// When an event triggered the reconciliation, if one did.
    triggered_at: Option<Instant>,
    /// The times of the phases, if traces are exported.
    times: Option<PhaseTimes>,
}

impl<'a> Reconciliation<'a> {
    /// Creates a reconciliation of this object.
    pub(super) fn new(
        context: &'a Context,
        api: Api<GitRepository>,
        object: Arc<GitRepository>,
        namespace: String,
    ) -> Self {
        Self {
            context,
            api,
            progress: Mutex::new(Progress::new(Arc::clone(&object))),
            progress_due: Instant::now() + context.progress_delay,
            object,
            namespace,
            change: UpstreamChange::default(),
            slot: None,
            triggered_at: None,
            times: PhaseTimes::start(context),
        }
    }

    /// Sets the slot and the trigger time.
    pub(super) fn with_slot(mut self, slot: Slot, triggered_at: Option<Instant>) -> Self {
        (self.slot, self.triggered_at) = (Some(slot), triggered_at);
        self
    }

    /// Runs all phases and reports the outcome. Large futures that most reconciliations do not need are in boxes.
    pub(super) async fn run(mut self) -> Result<Requeue, UnreportedError> {
        if self.object.metadata.deletion_timestamp.is_some() {
            return Box::pin(self.delete()).await;
        }
        if !finalizer::is_present(&*self.object, FINALIZER) {
            // The watch reports the added finalizer and triggers the next reconciliation.
            let ensured = Box::pin(finalizer::ensure(&self.api, &*self.object, FINALIZER)).await;
            self.record_write(&ensured);
            ensured?;
            return Ok(Requeue::OnChange);
        }
        if self.object.spec.suspend {
            tracing::info!("reconciliation is suspended for this object");
            return self
                .finish(&Observed::recorded(&self.object), Outcome::Suspended)
                .await;
        }
        let object = Arc::clone(&self.object);
        let (observed, result) = match self.observe(&object).await {
            Ok((directory, observed)) => {
                let result = Box::pin(self.attempt(&directory, &observed)).await;
                (observed, result)
            }
            Err(error) => (Observed::recorded(&object), Err(EarlyExit::failed(error))),
        };
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(EarlyExit::Outcome(outcome)) => *outcome,
            Err(EarlyExit::Unreported(error)) => return Err(error),
        };
        self.begin_phase("report");
        if let Some(slot) = &mut self.slot {
            // The report does not use the host: the next object can begin.
            slot.release();
        }
        self.finish(&observed, outcome).await
    }

    /// Runs the phases between observation and report.
    async fn attempt(
        &mut self,
        directory: &ObjectDirectory,
        observed: &Observed<'_>,
    ) -> Result<Outcome, EarlyExit> {
        if let Some(text) = progress::announcement(&self.object, observed) {
            for warning in self.context.durations.warnings(&self.object.spec) {
                self.record_event(Event::warning("ValueOutOfBounds", warning));
            }
            self.expect_progress(text);
        }
        self.begin_phase("resolve");
        // In boxes: a future that is passed on by value takes its space twice.
        let source = Box::pin(self.resolve());
        let source = self.with_progress(observed, source).await??;
        let included = self.included().map_err(EarlyExit::failed)?;
        self.change.includes = include::differ(&included, self.previous_includes());
        if self.change.includes {
            self.expect_change(observed);
        }
        let context = self.context;
        let verification = Verification::load(&self.object.spec, &self.namespace, &context.secrets);
        let verification = self.with_progress(observed, Box::pin(verification)).await?;
        self.begin_phase("lookup");
        let head = context.origin.head(&source, &context.stop);
        let head = self.with_progress(observed, head).await?;
        let head = head.map_err(|error| self.remote_failure(&source, error))?;
        let inputs = BuildInputs {
            content: ContentConfig::new(&self.object.spec, &included),
            source,
            head,
            included,
            verification,
        };
        let revision = inputs.head.revision();
        self.trace_revision(&revision);
        if let Some(because) = self.build_reason(observed, &revision, &inputs.content) {
            tracing::info!(revision, because, "building a new artifact");
            // In a box: `attempt` would have its size in every reconciliation.
            return Box::pin(self.build(directory, observed, inputs)).await;
        }
        tracing::debug!(revision, "the stored artifact is up to date");
        self.reuse_stored(observed, inputs).await
    }

    /// Keeps the stored artifact, after verifying its revision again if required.
    async fn reuse_stored(&self, observed: &Observed<'_>, inputs: BuildInputs) -> Result<Outcome, EarlyExit> {
        let (source, head, content) = (&inputs.source, &inputs.head, inputs.content);
        let verification = inputs.verification.map_err(EarlyExit::failed)?;
        let status = self.object.status.as_ref();
        let due = verification
            .filter(|verification| status.is_none_or(|status| verification.is_required(status, &content)));
        let signatures = match due {
            Some(verification) => Box::pin(self.verify_again(observed, source, head, verification)).await?,
            None if self.object.spec.verify.is_some() => SignatureState::StillValid,
            None => SignatureState::NotRequested,
        };
        Ok(Outcome::UpToDate { content, signatures })
    }

    /// Verifies the revision of the stored artifact.
    async fn verify_again(
        &self,
        observed: &Observed<'_>,
        source: &Source,
        head: &Head,
        verification: Verification,
    ) -> Result<SignatureState, EarlyExit> {
        let checkout = self.with_progress(observed, self.fetch(source, head)).await??;
        let verified = self.verify(Some(verification), &checkout, head);
        self.with_progress(observed, verified).await?
    }

    /// Builds a new artifact.
    async fn build(
        &mut self,
        directory: &ObjectDirectory,
        observed: &Observed<'_>,
        inputs: BuildInputs,
    ) -> Result<Outcome, EarlyExit> {
        let (source, head) = (&inputs.source, &inputs.head);
        self.begin_phase("fetch");
        let deadline = Instant::now() + source.remote.timeout;
        let fetched = self.with_progress(observed, self.fetch(source, head)).await?;
        if fetched.is_err() {
            self.change.revision = Some(head.revision());
        }
        let checkout = fetched?;
        self.begin_phase("verify");
        let verification = inputs.verification.map_err(EarlyExit::failed)?;
        let verified = self.verify(verification, &checkout, head);
        let signatures = self.with_progress(observed, verified).await??;
        // Do not announce a revision before it is verified.
        self.change.revision = Some(head.revision());
        self.begin_phase("compose");
        let tree = Box::pin(self.compose(source, checkout, deadline));
        let tree = self.with_progress(observed, tree).await?;
        let tree = tree.map_err(EarlyExit::failed)?;
        if let Some(slot) = &mut self.slot {
            // The remaining phases do not use the host.
            slot.release();
        }
        if self.change.requires_build(observed) {
            self.expect_change(observed);
        }
        self.begin_phase("pack");
        let subject = tree.commit().subject().to_owned();
        let stored = Box::pin(self.store(directory, observed, tree, inputs.included, head));
        let stored = self.with_progress(observed, stored).await?;
        let published = stored.map_err(EarlyExit::failed)?;
        let Published { artifact, files, .. } = published;
        self.begin_phase_at("publish", published.packed_at);
        Ok(Outcome::Stored(Box::new(Stored {
            artifact,
            files,
            subject,
            content: inputs.content,
            signatures,
        })))
    }

    /// Returns why a new artifact is required: the revision or a setting differs from those of the stored one.
    fn build_reason(
        &self,
        observed: &Observed<'_>,
        revision: &str,
        content: &ContentConfig,
    ) -> Option<&'static str> {
        let (Some(existing), Some(status)) = (&observed.artifact, &self.object.status) else {
            return Some("no artifact is stored");
        };
        if !existing.has_revision(revision) {
            return Some("the revision is new");
        }
        content.change_since(status).map(Change::as_str)
    }

    /// Runs work on storage or a mirror on a blocking thread, within the time limit.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JobError> {
        let pool = &self.context.blocking_pool;
        pool.run(STORAGE_LIMIT, &self.context.stop, move |_| work()).await
    }

    /// Handles a failure of the remote. A provider's token that was refused is not used again.
    fn remote_failure(&self, source: &Source, error: FetchError) -> EarlyExit {
        if error.is_access_denied() {
            self.context.tokens.invalidate(&source.remote.credentials);
        }
        EarlyExit::failed(error)
    }

    async fn fetch(&self, source: &Source, head: &Head) -> Result<Checkout, EarlyExit> {
        let checkout = self.context.origin.fetch(source, head, &self.context.stop).await;
        checkout.map_err(|error| self.remote_failure(source, error))
    }

    /// Verifies the requested signatures on a blocking thread. An unverified revision is not announced and does not
    /// mark the artifact outdated.
    async fn verify(
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
    async fn compose(
        &self,
        source: &Source,
        checkout: Checkout,
        deadline: Instant,
    ) -> Result<Tree, ReconcileError> {
        let context = self.context;
        let base = if source.parts.submodules {
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
        let paths = source.parts.sparse.clone();
        if paths.is_empty() {
            // Nothing is read.
            return Ok(Tree::select(base, &paths)?);
        }
        Ok(self.run_blocking(move || Tree::select(base, &paths)).await??)
    }

    /// Records an event, with the object's own event annotations.
    fn record_event(&self, event: Event) {
        let own = event_annotations(self.object.annotations());
        let event = own.fold(event, |event, (key, value)| event.with(key, value));
        self.context.recorder.record(&*self.object, event);
    }
}
