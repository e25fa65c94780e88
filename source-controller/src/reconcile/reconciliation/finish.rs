//! The end of a reconciliation: computes the status from the outcome and writes it, records events and schedules the
//! next one; also handles deletion.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_api::annotation::requested_at;
use sluice_api::condition::{ConditionStatus, SourceCondition as Kind, ready_condition};
use sluice_api::source::{Artifact, FINALIZER, GitRepository, GitRepositoryStatus};
use sluice_runtime::event::{Event, Severity};
use sluice_runtime::failure::{Class, Failure as _};
use sluice_runtime::finalizer;
use sluice_runtime::status::WriteError;
use sluice_runtime::watch::Requeue;

use super::super::content::ContentConfig;
use super::super::error::ReconcileError;
use super::super::events::COLLECTED;
use super::super::observe::{Observed, is_new_generation};
use super::super::verify::SignatureState;
use super::super::{UnreportedError, events};
use super::Reconciliation;
use super::progress::{
    ConditionSet, UpstreamChange, clear_failed_verification, current_conditions, progress, set_outdated,
    with_artifact,
};
use super::unchanged::{SUCCEEDED, is_final, stored_text};
use crate::storage::ObjectDirectory;

/// A newly stored artifact.
#[derive(Debug)]
pub(in super::super) struct Stored {
    /// The artifact.
    pub artifact: Artifact,
    /// Number of files in the archive.
    pub files: u64,
    /// Subject of the commit.
    pub subject: String,
    /// The settings of the artifact.
    pub content: ContentConfig,
    /// The state of its signatures.
    pub signatures: SignatureState,
}

/// The outcome of a reconciliation.
#[derive(Debug)]
pub(in super::super) enum Outcome {
    /// A new artifact was stored.
    Stored(Box<Stored>),
    /// The stored artifact is up to date.
    UpToDate {
        /// The settings of the artifact.
        content: ContentConfig,
        /// The state of its signatures.
        signatures: SignatureState,
    },
    /// A phase failed.
    Failed(ReconcileError),
    /// The object is suspended.
    Suspended,
}

impl Reconciliation<'_> {
    /// Reports the outcome and schedules the next reconciliation.
    pub(super) async fn finish(
        &self,
        observed: &Observed<'_>,
        outcome: Outcome,
    ) -> Result<Requeue, UnreportedError> {
        if matches!(outcome, Outcome::Failed(_)) && self.context.stop.is_cancelled() {
            // A reconciliation interrupted by shutdown is not a failure of the object.
            return Ok(Requeue::OnChange);
        }
        let Some(after) = self.report(observed, &outcome).await? else {
            return Ok(Requeue::OnChange);
        };
        self.export_trace(&outcome);
        let artifact = after.status.as_ref().and_then(|status| status.artifact.as_ref());
        let is_traced = self.context.recorder.is_read(Severity::Trace);
        for event in events::outcome_events(&self.object, &outcome, artifact, is_traced) {
            self.record_event(event);
        }
        let interval = || {
            self.context
                .schedule
                .after(self.context.durations.interval(&self.object.spec))
        };
        Ok(match &outcome {
            Outcome::Stored(_) | Outcome::UpToDate { .. } => Requeue::after_or_on_change(interval()),
            Outcome::Suspended => Requeue::OnChange,
            Outcome::Failed(error) => {
                let (class, reason, error) = (error.class(), error.reason(), error as &dyn std::error::Error);
                match class {
                    Class::Transient => {
                        tracing::warn!(error, reason, "reconciliation failed");
                        Requeue::Backoff
                    }
                    Class::Waiting(after) => {
                        tracing::info!(error, reason, duration = ?after, "reconciliation waiting");
                        Requeue::After(after)
                    }
                    Class::Terminal => {
                        tracing::error!(error, reason, "reconciliation stalled");
                        Requeue::OnChange
                    }
                }
            }
        })
    }

    /// Writes the status, if it changes. Returns the object with it, unless the object was deleted.
    async fn report(
        &self,
        observed: &Observed<'_>,
        outcome: &Outcome,
    ) -> Result<Option<Arc<GitRepository>>, WriteError> {
        if self.is_unwritten() && is_final(&self.object, observed, outcome) {
            return Ok(Some(Arc::clone(&self.object)));
        }
        let now = self.context.clock.now();
        let write = self.write(|object| final_status(object, observed, &self.change, outcome, now));
        Ok(Box::pin(write).await?.object())
    }

    /// Removes the artifacts and then the finalizer. Needs neither the remote nor a Secret, so that deletion cannot block on
    /// them.
    pub(super) async fn delete(&self) -> Result<Requeue, UnreportedError> {
        if !finalizer::is_present(&*self.object, FINALIZER) {
            return Ok(Requeue::OnChange);
        }
        // Another finalizer may keep the object for long: its status must not name a removed file.
        let Some(latest) = self
            .write(|object| deletion_status(object, self.context.clock.now()))
            .await?
            .object()
        else {
            return Ok(Requeue::OnChange);
        };
        if let Ok(directory) = ObjectDirectory::git_repository(&self.namespace, &self.object.name_any()) {
            let storage = Arc::clone(&self.context.storage);
            match self.run_blocking(move || storage.remove(&directory)).await {
                Ok(Ok(true)) => self.record_event(Event::cluster_only(
                    COLLECTED,
                    "garbage collected artifacts for deleted resource",
                )),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => return Ok(self.cleanup_failed(&error)),
                Err(error) => return Ok(self.cleanup_failed(&error)),
            }
        }
        let released = finalizer::remove(&self.api, &*latest, FINALIZER).await;
        self.record_write(&released);
        released?;
        Ok(Requeue::OnChange)
    }

    /// Keeps the finalizer and retries.
    fn cleanup_failed(&self, error: &dyn std::error::Error) -> Requeue {
        if self.context.stop.is_cancelled() {
            // The next process retries.
            return Requeue::OnChange;
        }
        let text = format!("garbage collection for deleted resource failed: {error}");
        tracing::error!(error = text, "cannot remove the artifacts of a deleted object");
        self.record_event(Event::warning("GarbageCollectionFailed", text));
        Requeue::Backoff
    }
}

/// Returns the status at the end of a reconciliation. [`is_final`] must agree with it.
pub(super) fn final_status(
    object: &GitRepository,
    observed: &Observed<'_>,
    change: &UpstreamChange,
    outcome: &Outcome,
    now: Timestamp,
) -> GitRepositoryStatus {
    let mut status = with_artifact(object, observed);
    let mut conditions = current_conditions(object, observed);
    let handled = match outcome {
        Outcome::Stored(stored) => {
            status.artifact = Some(stored.artifact.clone());
            stored
                .content
                .clone()
                .record(&mut status, stored.signatures.keys());
            set_success(&mut conditions, &stored.artifact.revision);
            set_verified(&mut conditions, &mut status, &stored.signatures);
            true
        }
        Outcome::UpToDate { content, signatures } => {
            // Record the checksum only if the CRD stores it or the status is written anyway; older CRDs prune the
            // field.
            if *signatures != SignatureState::StillValid
                && (status.content_config_checksum.is_some() || is_new_generation(object))
            {
                content.record_checksum(&mut status, signatures.keys());
            }
            set_verified(&mut conditions, &mut status, signatures);
            let revision = observed
                .artifact
                .as_ref()
                .map_or("", |artifact| &artifact.revision);
            set_success(&mut conditions, revision);
            true
        }
        Outcome::Failed(error) => {
            set_failure(&mut conditions, object, observed, change, error);
            error.class() == Class::Terminal
        }
        Outcome::Suspended => {
            conditions.delete(Kind::Stalled);
            let existing = conditions.get(Kind::Reconciling);
            if let Some(text) = existing.map(|existing| existing.message.clone()) {
                conditions.set_true(Kind::Reconciling, "ProgressingWithRetry", &text);
            }
            true
        }
    };
    if object.spec.verify.is_none() && !matches!(outcome, Outcome::Suspended) {
        conditions.delete(Kind::SourceVerified);
        status.source_verification_mode = None;
    }
    set_ready(&mut conditions);
    status.conditions = conditions.into_conditions(object.metadata.generation, now);
    if handled && !status.conditions.is_empty() {
        status.observed_generation = object.metadata.generation;
    }
    if let Some(token) = requested_at(object.annotations()) {
        status.last_handled_reconcile_at = Some(token.to_owned());
    }
    status
}

/// Returns the status of a deleted object: without an artifact, otherwise unchanged.
fn deletion_status(object: &GitRepository, now: Timestamp) -> GitRepositoryStatus {
    let status = object.status.clone().unwrap_or_default();
    let mut conditions = ConditionSet::new(&status.conditions);
    conditions.delete(Kind::ArtifactInStorage);
    GitRepositoryStatus {
        artifact: None,
        conditions: conditions.into_conditions(object.metadata.generation, now),
        ..status
    }
}

fn set_success(conditions: &mut ConditionSet<'_>, revision: &str) {
    for kind in [
        Kind::FetchFailed,
        Kind::IncludeUnavailable,
        Kind::StorageOperationFailed,
        Kind::ArtifactOutdated,
        Kind::Stalled,
        Kind::Reconciling,
    ] {
        conditions.delete(kind);
    }
    conditions.set_true(Kind::ArtifactInStorage, SUCCEEDED, &stored_text(revision));
}

/// Sets `SourceVerified` for this generation. The caller removes it if no verification is requested.
fn set_verified(
    conditions: &mut ConditionSet<'_>,
    status: &mut GitRepositoryStatus,
    signatures: &SignatureState,
) {
    let text = match signatures {
        SignatureState::NotRequested => return,
        SignatureState::StillValid => conditions
            .get(Kind::SourceVerified)
            .map(|existing| existing.message.clone()),
        SignatureState::Verified(verified) => {
            status.source_verification_mode = Some(verified.mode.to_owned());
            Some(verified.message.clone())
        }
    };
    if let Some(text) = text {
        conditions.set_true(Kind::SourceVerified, SUCCEEDED, &text);
    }
}

/// Sets the conditions of a failure. Removes the conditions of phases that succeeded; those of later phases stay.
fn set_failure(
    conditions: &mut ConditionSet<'_>,
    object: &GitRepository,
    observed: &Observed<'_>,
    change: &UpstreamChange,
    error: &ReconcileError,
) {
    conditions.delete(Kind::StorageOperationFailed);
    let is_fetched = change.revision.is_some() || matches!(error, ReconcileError::Verify(_));
    if is_fetched || matches!(error, ReconcileError::Fetch(_)) {
        conditions.delete(Kind::IncludeUnavailable);
    }
    if is_fetched {
        conditions.delete(Kind::FetchFailed);
    }
    set_outdated(conditions, observed, change);
    let (reason, message) = (error.reason(), error.message());
    clear_failed_verification(conditions);
    match error.condition() {
        Some(Kind::SourceVerified) => {
            conditions.set(Kind::SourceVerified, ConditionStatus::False, reason, &message);
        }
        Some(kind) => conditions.set_true(kind, reason, &message),
        None => {}
    }
    if error.class() == Class::Terminal {
        conditions.delete(Kind::Reconciling);
        conditions.set_true(Kind::Stalled, reason, &message);
        return;
    }
    conditions.delete(Kind::Stalled);
    // A failure without its own condition is reported in `Reconciling`, from which `Ready` follows.
    let text = error
        .condition()
        .map_or(message, |_| progress(object, observed, change));
    conditions.set_true(Kind::Reconciling, "ProgressingWithRetry", &text);
}

/// Sets `Ready` from the other conditions; keeps it if there are none.
fn set_ready(conditions: &mut ConditionSet<'_>) {
    if let Some(ready) = ready_condition(conditions.updates()) {
        conditions.set(Kind::Ready, ready.status, &ready.reason, &ready.message);
    }
}
