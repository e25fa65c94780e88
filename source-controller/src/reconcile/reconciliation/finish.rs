//! The end of a reconciliation: writes the status, records events and schedules the next one; also handles deletion.

use std::sync::Arc;

use kube::ResourceExt as _;
use sluice_api::annotation::event_annotations;
use sluice_api::source::{FINALIZER, GitRepository, GitRepositoryStatus};
use sluice_runtime::event::Event;
use sluice_runtime::failure::{Class, Failure as _};
use sluice_runtime::finalizer;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::status::{self, Applied, WriteError};
use sluice_runtime::watch::Requeue;

use super::super::events::COLLECTED;
use super::super::observe::Observed;
use super::super::report::{self, Outcome};
use super::super::{UnreportedError, conditions, events};
use super::Reconciliation;
use crate::storage::ObjectDirectory;

impl Reconciliation<'_> {
    pub(super) async fn announce(&mut self, observed: &Observed, text: &str) -> Result<(), WriteError> {
        let (change, now) = (&self.change, self.context.clock.now());
        let written = self
            .write(|object| report::progress_status(object, observed, text, change, now))
            .await?;
        if let Some(latest) = written.object() {
            self.latest = latest;
        }
        Ok(())
    }

    /// Reports the outcome and schedules the next reconciliation.
    pub(super) async fn finish(
        &self,
        observed: &Observed,
        outcome: Outcome,
    ) -> Result<Requeue, UnreportedError> {
        if matches!(outcome, Outcome::Failed(_)) && self.context.stop.is_cancelled() {
            // A reconciliation interrupted by shutdown is not a failure of the object.
            return Ok(Requeue::OnChange);
        }
        let now = self.context.clock.now();
        let Some(after) = self
            .write(|object| report::final_status(object, observed, &self.change, &outcome, now))
            .await?
            .object()
        else {
            return Ok(Requeue::OnChange);
        };
        for event in events::outcome_events(&self.object, &outcome, &after.status.unwrap_or_default()) {
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

    /// Writes a status computed from this reconciliation's object and the current status.
    pub(super) async fn write(
        &self,
        compute: impl Fn(&GitRepository) -> GitRepositoryStatus,
    ) -> Result<Applied<GitRepository>, WriteError> {
        let written = status::apply(&self.api, &self.latest, &conditions::owned(), |current| {
            compute(&GitRepository {
                status: current.status.clone(),
                ..self.object.clone()
            })
        })
        .await;
        self.record_write(&written);
        written
    }

    /// Records the result of a write: the next reconciliation must not use an older version of the object.
    pub(super) fn record_write(&self, written: &Result<Applied<GitRepository>, WriteError>) {
        self.context
            .tracker
            .record_write(&ObjectKey::of(&self.object), written);
    }

    /// Removes the artifacts and then the finalizer. Needs neither the remote nor a Secret, so that deletion cannot block on
    /// them.
    pub(super) async fn delete(&self) -> Result<Requeue, UnreportedError> {
        if !finalizer::is_present(&self.object, FINALIZER) {
            return Ok(Requeue::OnChange);
        }
        // Another finalizer may keep the object for long: its status must not name a removed file.
        let Some(latest) = self
            .write(|object| report::deletion_status(object, self.context.clock.now()))
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
        let released = finalizer::remove(&self.api, &latest, FINALIZER).await;
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

    /// Records an event, with the object's own event annotations.
    pub(super) fn record_event(&self, event: Event) {
        let own = event_annotations(self.object.annotations());
        let event = own.fold(event, |event, (key, value)| event.with(key, value));
        self.context.recorder.record(&self.object, event);
    }
}
