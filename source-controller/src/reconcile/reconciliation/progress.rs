//! The status while a reconciliation runs: the conditions under construction, the upstream changes found so far, and the
//! messages about them. They are written only if the reconciliation takes long. `write` is the only writer of a status,
//! also of the final one.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::condition::{
    ConditionStatus, ConditionType as _, ConditionUpdate, SourceCondition as Kind, find, merge_conditions,
};
use sluice_api::source::{GitRepository, GitRepositoryStatus};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::status::{self, Applied, WriteError};
use sluice_runtime::sync::lock;
use tokio::time::{Instant, sleep_until};

use super::super::observe::{Observed, is_new_generation, is_requested, observed_generation};
use super::super::slots::WAITING;
use super::Reconciliation;

/// Message for changed includes at an unchanged revision.
const INCLUDES_CHANGED: &str = "included artifacts differ from last observed includes";

/// The upstream changes found so far.
#[derive(Clone, Debug, Default)]
pub(super) struct UpstreamChange {
    /// The revision at the remote.
    pub revision: Option<String>,
    /// Whether the included artifacts changed.
    pub includes: bool,
}

impl UpstreamChange {
    /// Returns the revision, if it differs from that of the stored artifact.
    fn new_revision(&self, observed: &Observed<'_>) -> Option<&str> {
        let existing = observed.artifact.as_ref();
        self.revision
            .as_deref()
            .filter(|new| existing.is_none_or(|existing| !existing.has_revision(new)))
    }

    /// Returns whether a new artifact is required.
    pub(super) fn requires_build(&self, observed: &Observed<'_>) -> bool {
        self.includes || self.new_revision(observed).is_some()
    }
}

/// The progress of a reconciliation, as others see it.
#[derive(Debug)]
pub(super) struct Progress {
    /// The object after our last write; the next write builds on it.
    latest: Arc<GitRepository>,
    /// The message to write when it is due.
    pending: Option<String>,
    /// Whether a message was written.
    is_written: bool,
}

impl Progress {
    /// Starts with this object.
    pub(super) const fn new(object: Arc<GitRepository>) -> Self {
        Self {
            latest: object,
            pending: None,
            is_written: false,
        }
    }
}

impl Reconciliation<'_> {
    /// Sets the message that [`Reconciliation::with_progress`] writes when it is due. Only one message is written.
    pub(super) fn expect_progress(&self, text: String) {
        let mut progress = lock(&self.progress);
        if !progress.is_written {
            progress.pending = Some(text);
        }
    }

    /// Does so with the upstream changes found so far.
    pub(super) fn expect_change(&self, observed: &Observed<'_>) {
        self.expect_progress(progress(&self.object, observed, &self.change));
    }

    /// Runs a step of the reconciliation, and writes the progress as soon as it is due. Most reconciliations end before
    /// that, and write their status once.
    ///
    /// # Errors
    /// The progress cannot be written.
    pub(super) async fn with_progress<T>(
        &self,
        observed: &Observed<'_>,
        step: impl Future<Output = T>,
    ) -> Result<T, WriteError> {
        if lock(&self.progress).pending.is_none() {
            return Ok(step.await);
        }
        // In a box: the writing future is large, and nearly no step of an unchanged source has a message.
        Box::pin(self.announce_during(observed, step)).await
    }

    /// Runs a step, and writes the pending message as soon as it is due.
    async fn announce_during<T>(
        &self,
        observed: &Observed<'_>,
        step: impl Future<Output = T>,
    ) -> Result<T, WriteError> {
        if Instant::now() >= self.progress_due {
            self.announce_pending(observed).await?;
            return Ok(step.await);
        }
        let mut step = Box::pin(step);
        tokio::select! {
            biased;
            done = &mut step => return Ok(done),
            () = sleep_until(self.progress_due) => {}
        }
        let (done, written) = tokio::join!(step, self.announce_pending(observed));
        written.map(|()| done)
    }

    async fn announce_pending(&self, observed: &Observed<'_>) -> Result<(), WriteError> {
        let pending = lock(&self.progress).pending.take();
        match pending {
            Some(text) => self.announce(observed, &text).await,
            None => Ok(()),
        }
    }

    /// Writes the progress of the reconciliation now.
    pub(super) async fn announce(&self, observed: &Observed<'_>, text: &str) -> Result<(), WriteError> {
        let (change, now) = (&self.change, self.context.clock.now());
        let written = self
            .write(|object| progress_status(object, observed, text, change, now))
            .await?;
        let mut progress = lock(&self.progress);
        progress.is_written = true;
        if let Some(latest) = written.object() {
            progress.latest = latest;
        }
        Ok(())
    }

    /// Returns whether the status is the one from the start of this reconciliation, which has written none.
    pub(super) fn is_unwritten(&self) -> bool {
        Arc::ptr_eq(&lock(&self.progress).latest, &self.object)
    }

    /// Writes a status computed from this reconciliation's object and the current status.
    pub(super) async fn write(
        &self,
        compute: impl Fn(&GitRepository) -> GitRepositoryStatus,
    ) -> Result<Applied<Arc<GitRepository>>, WriteError> {
        let latest = Arc::clone(&lock(&self.progress).latest);
        let with_status_of = |current: &GitRepository| GitRepository {
            status: current.status.clone(),
            ..GitRepository::clone(&self.object)
        };
        // Nearly always nothing has changed: compare before the object is copied and serialized.
        let status = if Arc::ptr_eq(&latest, &self.object) {
            compute(&self.object)
        } else {
            compute(&with_status_of(&latest))
        };
        if latest.status.as_ref() == Some(&status) {
            return Ok(Applied::Unchanged(latest));
        }
        let compute = |current: &GitRepository| compute(&with_status_of(current));
        // In a box: the future is large, and most reconciliations write nothing.
        let written = Box::pin(status::apply(&self.api, &*latest, &owned(), compute)).await;
        self.record_write(&written);
        written.map(|written| written.map(Arc::new))
    }

    /// Records the result of a write: the next reconciliation must not use an older version of the object.
    pub(super) fn record_write(&self, written: &Result<Applied<GitRepository>, WriteError>) {
        self.context
            .tracker
            .record_write(&ObjectKey::of(&*self.object), written);
    }
}

/// Returns the progress message to write at the start of a reconciliation, if any: only for a new generation, a new
/// request or a missing artifact, and once for each.
pub(super) fn announcement(object: &GitRepository, observed: &Observed<'_>) -> Option<String> {
    let status = object.status.as_ref();
    let is_announced = || {
        let existing = status.and_then(|status| find(&status.conditions, Kind::Reconciling));
        existing.is_some_and(|existing| {
            existing.observed_generation == object.metadata.generation
                && !existing.message.starts_with(WAITING)
        })
    };
    if observed.is_missing {
        return Some(progress(object, observed, &UpstreamChange::default()));
    }
    if is_new_generation(object) && !is_announced() {
        return Some(generation_text(object));
    }
    (is_requested(object) && !is_new_generation(object))
        .then(|| progress(object, observed, &UpstreamChange::default()))
}

/// Returns the message of `Reconciling` for the current progress.
pub(super) fn progress(object: &GitRepository, observed: &Observed<'_>, change: &UpstreamChange) -> String {
    if let Some(revision) = change.new_revision(observed) {
        return format!("building artifact: new upstream revision '{revision}'");
    }
    if change.includes {
        return format!("building artifact: {INCLUDES_CHANGED}");
    }
    match &observed.artifact {
        None if observed.is_missing => "building artifact: disappeared from storage".to_owned(),
        None => "building artifact".to_owned(),
        Some(_) if is_new_generation(object) => generation_text(object),
        Some(_) => "reconciliation in progress".to_owned(),
    }
}

/// Returns the status during a reconciliation. `Ready` becomes `Unknown` if a new artifact is required; otherwise it
/// stays unchanged.
fn progress_status(
    object: &GitRepository,
    observed: &Observed<'_>,
    text: &str,
    change: &UpstreamChange,
    now: Timestamp,
) -> GitRepositoryStatus {
    let mut status = with_artifact(object, observed);
    let mut conditions = current_conditions(object, observed);
    conditions.delete(Kind::Stalled);
    conditions.set_true(Kind::Reconciling, "Progressing", text);
    let requires_build = change.requires_build(observed);
    if requires_build {
        conditions.delete(Kind::IncludeUnavailable);
        set_outdated(&mut conditions, observed, change);
        if change.revision.is_some() {
            conditions.delete(Kind::FetchFailed);
            conditions.delete(Kind::StorageOperationFailed);
        } else if !status.included_artifacts.is_empty() {
            conditions.set_true(Kind::ArtifactOutdated, "IncludeChange", INCLUDES_CHANGED);
        }
        clear_failed_verification(&mut conditions);
    }
    let undecided = conditions
        .get(Kind::Ready)
        .is_none_or(|ready| ready.status == ConditionStatus::Unknown);
    if undecided || requires_build || observed.is_missing {
        conditions.set(Kind::Ready, ConditionStatus::Unknown, "Progressing", text);
    }
    status.conditions = conditions.into_conditions(object.metadata.generation, now);
    status
}

/// Returns the current status with the artifact that storage holds.
pub(super) fn with_artifact(object: &GitRepository, observed: &Observed<'_>) -> GitRepositoryStatus {
    GitRepositoryStatus {
        artifact: observed.artifact.as_deref().cloned(),
        ..object.status.clone().unwrap_or_default()
    }
}

/// Returns the current conditions, without `ArtifactInStorage` if there is no artifact.
pub(super) fn current_conditions<'a>(object: &'a GitRepository, observed: &Observed<'_>) -> ConditionSet<'a> {
    let existing = object
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let mut conditions = ConditionSet::new(existing);
    if observed.artifact.is_none() {
        conditions.delete(Kind::ArtifactInStorage);
    }
    conditions
}

/// Removes a failed verification: this reconciliation has not reached it yet, or has a new result.
pub(super) fn clear_failed_verification(conditions: &mut ConditionSet<'_>) {
    let refused = conditions
        .get(Kind::SourceVerified)
        .is_some_and(|existing| existing.status == ConditionStatus::False);
    if refused {
        conditions.delete(Kind::SourceVerified);
    }
}

/// Sets `ArtifactOutdated` if the remote has a newer revision than the stored artifact.
pub(super) fn set_outdated(
    conditions: &mut ConditionSet<'_>,
    observed: &Observed<'_>,
    change: &UpstreamChange,
) {
    let new = change.new_revision(observed);
    match new.filter(|_| observed.artifact.is_some()) {
        Some(new) => {
            let text = format!("new upstream revision '{new}'");
            conditions.set_true(Kind::ArtifactOutdated, "NewRevision", &text);
        }
        None => conditions.delete(Kind::ArtifactOutdated),
    }
}

fn generation_text(object: &GitRepository) -> String {
    let observed = observed_generation(object).unwrap_or(-1);
    let generation = object.metadata.generation.unwrap_or_default();
    format!("processing object: new generation {observed} -> {generation}")
}

/// Returns the names of all condition types that this controller owns.
fn owned() -> Vec<&'static str> {
    Kind::OWNED.iter().map(|kind| kind.as_str()).collect()
}

/// A set of conditions under construction. Untouched conditions keep their status and observed generation.
#[derive(Clone, Debug)]
pub(super) struct ConditionSet<'a> {
    existing: &'a [Condition],
    updates: Vec<ConditionUpdate<Kind>>,
}

impl<'a> ConditionSet<'a> {
    /// Creates a set from the conditions in the status.
    pub(super) fn new(existing: &'a [Condition]) -> Self {
        let carried = Kind::OWNED
            .iter()
            .filter_map(|kind| ConditionUpdate::retained(*kind, existing));
        Self {
            existing,
            updates: carried.collect(),
        }
    }

    /// Returns the current condition of a type.
    pub(super) fn get(&self, kind: Kind) -> Option<&ConditionUpdate<Kind>> {
        self.updates.iter().find(|update| update.kind == kind)
    }

    /// Sets a condition.
    pub(super) fn set(&mut self, kind: Kind, status: ConditionStatus, reason: &str, message: &str) {
        self.delete(kind);
        self.updates
            .push(ConditionUpdate::new(kind, status, reason, message));
    }

    /// Sets a condition to `True`.
    pub(super) fn set_true(&mut self, kind: Kind, reason: &str, message: &str) {
        self.set(kind, ConditionStatus::True, reason, message);
    }

    /// Removes a condition.
    pub(super) fn delete(&mut self, kind: Kind) {
        self.updates.retain(|update| update.kind != kind);
    }

    /// Returns the current conditions.
    pub(super) fn updates(&self) -> &[ConditionUpdate<Kind>] {
        &self.updates
    }

    /// Returns the conditions for the status. Sets `generation` on changed verdicts and `now` on status transitions.
    pub(super) fn into_conditions(self, generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
        merge_conditions(self.existing, &self.updates, generation, now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::EarlyExit;
    use super::super::finish::Outcome;
    use super::*;
    use crate::storage::ObjectDirectory;

    /// Returns the size of the future of [`Reconciliation::run`].
    fn size_of_run<'a, F: Future>(_: impl FnOnce(Reconciliation<'a>) -> F) -> usize {
        size_of::<F>()
    }

    /// Returns the size of the future of the phases.
    fn size_of_attempt<'a, F>(
        _: impl FnOnce(&'a mut Reconciliation<'a>, &'a ObjectDirectory, &'a Observed<'a>) -> F,
    ) -> usize
    where
        F: Future<Output = Result<Outcome, EarlyExit>>,
    {
        size_of::<F>()
    }

    /// Protects the time and the memory of a reconciliation that finds nothing new, as nearly all do: each allocates and copies
    /// these futures. So what only a change needs is in boxes: the fetch, the build and the messages.
    ///
    /// Nothing depends on the exact bounds. A future beyond its bound holds something that only a change needs: put that into a
    /// box.
    #[test]
    fn the_futures_of_an_unchanged_source_are_small() {
        let size = size_of_run(Reconciliation::run);
        assert!(size <= 4 * 1024, "{size}");
        let size = size_of_attempt(Reconciliation::attempt);
        assert!(size <= 6 * 1024, "{size}");
    }
}
