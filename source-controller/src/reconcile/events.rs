//! Computes the events of a reconciliation. Pure: `reconciliation::finish` records them.

use sluice_api::annotation::{EVENT_DIGEST, EVENT_FILES, EVENT_REVISION, event_key};
use sluice_api::condition::{SourceCondition as Kind, find};
use sluice_api::source::{Artifact, GROUP, GitRepository, GitRepositoryStatus};
use sluice_runtime::event::Event;
use sluice_runtime::failure::{Class, Failure as _};

use super::error::ReconcileError;
use super::observe::Observed;
use super::reconciliation::Outcome;
use super::resolve::ResolveError;
use super::verify::SignatureState;
use crate::git::FetchError;
use crate::identity::{IdentityError, TokenError};

/// Maximum number of characters of a commit's subject in events.
const SUBJECT_LIMIT: usize = 50;
/// Text that every throttling message contains.
const ASKS_TO_WAIT: &str = " asks to wait ";
/// Reason of events about removed artifacts.
pub(super) const COLLECTED: &str = "GarbageCollectionSucceeded";

/// Returns the events about the state of storage.
#[must_use]
pub(super) fn storage_events(observed: &Observed<'_>) -> Vec<Event> {
    let damage = observed.damage.as_ref().map(|damage| {
        let text = format!("failed to verify integrity of artifact: {damage}");
        Event::warning("ArtifactVerificationFailed", text)
    });
    let collected = (observed.collected > 0).then(|| {
        let text = format!("garbage collected {} artifacts", observed.collected);
        Event::cluster_only(COLLECTED, text)
    });
    damage.into_iter().chain(collected).collect()
}

/// Returns the events about the outcome: verified signatures and the artifact. That nothing has changed is only told if `is_traced`.
pub(super) fn outcome_events(
    before: &GitRepository,
    outcome: &Outcome,
    after: Option<&Artifact>,
    is_traced: bool,
) -> impl Iterator<Item = Event> {
    let artifact = artifact_event(before, outcome, after, is_traced);
    verified_event(before, outcome).into_iter().chain(artifact)
}

/// Returns an event if the verification differs from the one in the status.
fn verified_event(before: &GitRepository, outcome: &Outcome) -> Option<Event> {
    let signatures = match outcome {
        Outcome::Stored(stored) => &stored.signatures,
        Outcome::UpToDate { signatures, .. } => signatures,
        Outcome::Failed(_) | Outcome::Suspended => return None,
    };
    let SignatureState::Verified(verified) = signatures else {
        return None;
    };
    let status = before.status.as_ref();
    let existing = status
        .and_then(|status| find(&status.conditions, Kind::SourceVerified))
        .filter(|existing| existing.status == "True");
    let is_new = existing.is_none_or(|existing| existing.message != verified.message);
    is_new.then(|| Event::cluster_only("Succeeded", &verified.message))
}

/// Returns the event about the artifact. An artifact is new if its digest is; a recovery is only reported without a new
/// artifact.
fn artifact_event(
    before: &GitRepository,
    outcome: &Outcome,
    artifact: Option<&Artifact>,
    is_traced: bool,
) -> Option<Event> {
    let status = before.status.as_ref();
    let stored = match outcome {
        Outcome::Suspended => return None,
        Outcome::Failed(error) => return Some(failure_event(status, error)),
        Outcome::Stored(stored) => Some(stored),
        Outcome::UpToDate { .. } => None,
    };
    let revision = artifact.map_or("", |existing| &existing.revision);
    let text = || {
        let commit = stored.map_or_else(|| revision.to_owned(), |stored| shortened(&stored.subject));
        format!("stored artifact for commit '{commit}'")
    };
    let previous = status.and_then(|status| status.artifact.as_ref());
    if previous.map(|existing| &existing.digest) != artifact.map(|existing| &existing.digest) {
        let event = with_artifact_metadata(Event::normal("NewArtifact", text()), artifact);
        return Some(match stored {
            Some(stored) => event.with(EVENT_FILES, stored.files.to_string()),
            None => event,
        });
    }
    let failures = [
        Kind::FetchFailed,
        Kind::IncludeUnavailable,
        Kind::StorageOperationFailed,
    ];
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    let had_failed = conditions.any(|existing| failures.iter().any(|kind| kind.as_str() == existing.type_));
    if had_failed {
        return Some(with_artifact_metadata(
            Event::normal("Succeeded", text()),
            artifact,
        ));
    }
    is_traced.then(|| {
        let (reason, text) = if stored.is_some() {
            ("ArtifactUpToDate", "artifact up-to-date with remote revision:")
        } else {
            (
                "GitOperationSucceeded",
                "no changes since last reconciliation: observed revision",
            )
        };
        Event::trace(reason, format!("{text} '{revision}'"))
    })
}

/// Returns the event about a failure. A wait, or throttling that was reported before, is routine.
fn failure_event(status: Option<&GitRepositoryStatus>, error: &ReconcileError) -> Event {
    let is_quiet = match error {
        ReconcileError::Fetch(FetchError::Throttled { .. })
        | ReconcileError::Resolve(ResolveError::Identity(IdentityError::Token(TokenError::Throttled {
            ..
        }))) => status.is_some_and(was_throttled),
        error => matches!(error.class(), Class::Waiting(_)),
    };
    let event = if is_quiet { Event::trace } else { Event::warning };
    event(error.reason(), error.message())
}

/// Returns whether the status already reports throttling. The messages differ in their times.
fn was_throttled(status: &GitRepositoryStatus) -> bool {
    let mut failed = status
        .conditions
        .iter()
        .filter(|existing| existing.type_ == Kind::FetchFailed.as_str());
    failed.any(|existing| existing.message.contains(ASKS_TO_WAIT))
}

fn with_artifact_metadata(event: Event, artifact: Option<&Artifact>) -> Event {
    match artifact {
        Some(artifact) => event
            .with(event_key(GROUP, EVENT_REVISION), &artifact.revision)
            .with(event_key(GROUP, EVENT_DIGEST), &artifact.digest),
        None => event,
    }
}

fn shortened(subject: &str) -> String {
    match subject.char_indices().nth(SUBJECT_LIMIT) {
        Some((end, _)) => format!("{}...", &subject[..end]),
        None => subject.to_owned(),
    }
}
