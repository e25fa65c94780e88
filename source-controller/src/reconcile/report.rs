//! Computes the status from the outcome of a reconciliation. Pure: `reconciliation::finish` writes the status and
//! `events` computes the events.

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_api::annotation::requested_at;
use sluice_api::condition::{ConditionStatus, SourceCondition as Kind, find};
use sluice_api::source::{Artifact, GitRepository, GitRepositoryStatus};
use sluice_runtime::failure::{Class, Failure};

use super::conditions::ConditionSet;
use super::content::ContentConfig;
use super::error::ReconcileError;
use super::observe::Observed;
use super::verify::SignatureState;

/// Message for changed includes at an unchanged revision.
const INCLUDES_CHANGED: &str = "included artifacts differ from last observed includes";

/// Prefix of the message while an object waits for a slot.
pub(super) const WAITING: &str = "waiting for a slot at";

/// A newly stored artifact.
#[derive(Debug)]
pub(super) struct Stored {
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
pub(super) enum Outcome {
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
    fn new_revision(&self, observed: &Observed) -> Option<&str> {
        let existing = observed.artifact.as_ref();
        self.revision
            .as_deref()
            .filter(|new| existing.is_none_or(|existing| !existing.has_revision(new)))
    }

    /// Returns whether a new artifact is required.
    pub(super) fn requires_build(&self, observed: &Observed) -> bool {
        self.includes || self.new_revision(observed).is_some()
    }
}

/// Returns the progress message to write at the start of a reconciliation, if any: only for a new generation, a new
/// request or a missing artifact, and once for each.
#[must_use]
pub(super) fn announcement(object: &GitRepository, observed: &Observed) -> Option<String> {
    let status = object.status.clone().unwrap_or_default();
    let is_announced = || {
        find(&status.conditions, Kind::Reconciling).is_some_and(|existing| {
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

/// Returns whether the object has an unhandled reconcile request in its annotations.
#[must_use]
pub(super) fn is_requested(object: &GitRepository) -> bool {
    let requested = requested_at(object.annotations());
    let status = object.status.as_ref();
    let handled = status.and_then(|status| status.last_handled_reconcile_at.as_deref());
    requested.is_some() && requested != handled
}

/// Returns the message of `Reconciling` for the current progress.
#[must_use]
pub(super) fn progress(object: &GitRepository, observed: &Observed, change: &UpstreamChange) -> String {
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
#[must_use]
pub(super) fn progress_status(
    object: &GitRepository,
    observed: &Observed,
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

/// Returns the status at the end of a reconciliation.
#[must_use]
pub(super) fn final_status(
    object: &GitRepository,
    observed: &Observed,
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
    conditions.set_ready();
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
#[must_use]
pub(super) fn deletion_status(object: &GitRepository, now: Timestamp) -> GitRepositoryStatus {
    let status = object.status.clone().unwrap_or_default();
    let mut conditions = ConditionSet::new(&status.conditions);
    conditions.delete(Kind::ArtifactInStorage);
    GitRepositoryStatus {
        artifact: None,
        conditions: conditions.into_conditions(object.metadata.generation, now),
        ..status
    }
}

fn with_artifact(object: &GitRepository, observed: &Observed) -> GitRepositoryStatus {
    GitRepositoryStatus {
        artifact: observed.artifact.clone(),
        ..object.status.clone().unwrap_or_default()
    }
}

fn current_conditions(object: &GitRepository, observed: &Observed) -> ConditionSet {
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

fn set_success(conditions: &mut ConditionSet, revision: &str) {
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
    let text = format!("stored artifact for revision '{revision}'");
    conditions.set_true(Kind::ArtifactInStorage, "Succeeded", &text);
}

/// Sets `SourceVerified` for this generation. The caller removes it if no verification is requested.
fn set_verified(
    conditions: &mut ConditionSet,
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
        conditions.set_true(Kind::SourceVerified, "Succeeded", &text);
    }
}

/// Removes a failed verification: this reconciliation has not reached it yet, or has a new result.
fn clear_failed_verification(conditions: &mut ConditionSet) {
    let refused = conditions
        .get(Kind::SourceVerified)
        .is_some_and(|existing| existing.status == ConditionStatus::False);
    if refused {
        conditions.delete(Kind::SourceVerified);
    }
}

/// Sets the conditions of a failure. Removes the conditions of phases that succeeded; those of later phases stay.
fn set_failure(
    conditions: &mut ConditionSet,
    object: &GitRepository,
    observed: &Observed,
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
    // A failure without its own condition is reported in `Reconciling`, and thereby in `Ready`.
    let text = error
        .condition()
        .map_or(message, |_| progress(object, observed, change));
    conditions.set_true(Kind::Reconciling, "ProgressingWithRetry", &text);
}

/// Sets `ArtifactOutdated` if the remote has a newer revision than the stored artifact.
fn set_outdated(conditions: &mut ConditionSet, observed: &Observed, change: &UpstreamChange) {
    let new = change.new_revision(observed);
    match new.filter(|_| observed.artifact.is_some()) {
        Some(new) => {
            let text = format!("new upstream revision '{new}'");
            conditions.set_true(Kind::ArtifactOutdated, "NewRevision", &text);
        }
        None => conditions.delete(Kind::ArtifactOutdated),
    }
}

/// Returns whether no reconciliation of the current generation has ended.
#[must_use]
pub(super) fn is_new_generation(object: &GitRepository) -> bool {
    object.metadata.generation != observed_generation(object)
}

fn observed_generation(object: &GitRepository) -> Option<i64> {
    object
        .status
        .as_ref()
        .and_then(|status| status.observed_generation)
}

fn generation_text(object: &GitRepository) -> String {
    let observed = observed_generation(object).unwrap_or(-1);
    let generation = object.metadata.generation.unwrap_or_default();
    format!("processing object: new generation {observed} -> {generation}")
}
