//! What a pass came to, as events. Pure: one writer elsewhere sends what is computed here.

use sluice_api::annotation::{EVENT_DIGEST, EVENT_FILES, EVENT_REVISION, event_key};
use sluice_api::condition::{SourceCondition as Kind, Vocabulary as _};
use sluice_api::source::{Artifact, GROUP, GitRepository, GitRepositoryStatus};
use sluice_runtime::event::Event;
use sluice_runtime::failure::{Class, Failure as _};

use super::error::PassError;
use super::observe::Observed;
use super::report::Ending;
use super::resolve::ResolveError;
use super::verify::Standing;
use crate::git::FetchError;
use crate::identity::{IdentityError, TokenError};

/// Characters of a commit's subject that events show.
const SUBJECT_LIMIT: usize = 50;
/// What each text says of a server that wants to be left alone for a while.
const ASKS_TO_WAIT: &str = " asks to wait ";
/// Reason of events about artifacts that were removed.
pub(super) const COLLECTED: &str = "GarbageCollectionSucceeded";

/// What storage gave to tell.
#[must_use]
pub(super) fn storage_events(observed: &Observed) -> Vec<Event> {
    let damage = observed.damage.as_ref().map(|damage| {
        Event::warning(
            "ArtifactVerificationFailed",
            format!("failed to verify integrity of artifact: {damage}"),
        )
    });
    let collected = (observed.collected > 0).then(|| {
        Event::unposted(
            COLLECTED,
            format!("garbage collected {} artifacts", observed.collected),
        )
    });
    damage.into_iter().chain(collected).collect()
}

/// What the end of the pass gave to tell: signatures that were verified, and what became of the artifact.
#[must_use]
pub(super) fn events(before: &GitRepository, ending: &Ending, after: &GitRepositoryStatus) -> Vec<Event> {
    let artifact = artifact_event(before, ending, after);
    verified_event(before, ending)
        .into_iter()
        .chain(artifact)
        .collect()
}

/// Signatures of other objects, or by other keys, than those that the status names already.
fn verified_event(before: &GitRepository, ending: &Ending) -> Option<Event> {
    let standing = match ending {
        Ending::Stored(stored) => &stored.standing,
        Ending::UpToDate { standing, .. } => standing,
        Ending::Failed(_) | Ending::Suspended => return None,
    };
    let Standing::Verified(verified) = standing else {
        return None;
    };
    let status = before.status.as_ref();
    let held = status.and_then(|status| {
        let mut conditions = status.conditions.iter();
        conditions.find(|held| held.type_ == Kind::SourceVerified.as_str() && held.status == "True")
    });
    let is_new = held.is_none_or(|held| held.message != verified.text);
    is_new.then(|| Event::unposted("Succeeded", &verified.text))
}

/// A new artifact is one whose digest is new; a recovery is told only if nothing else is.
fn artifact_event(before: &GitRepository, ending: &Ending, after: &GitRepositoryStatus) -> Option<Event> {
    let status = before.status.clone().unwrap_or_default();
    let artifact = after.artifact.as_ref();
    let revision = artifact.map(|held| held.revision.clone()).unwrap_or_default();
    let text = match ending {
        Ending::Suspended => return None,
        Ending::Failed(error) => {
            let is_quiet = match error {
                PassError::Fetch(FetchError::Throttled { .. })
                | PassError::Resolve(ResolveError::Identity(IdentityError::Token(TokenError::Throttled {
                    ..
                }))) => was_throttled(&status),
                error => matches!(error.class(), Class::Waiting(_)),
            };
            let event = if is_quiet { Event::trace } else { Event::warning };
            return Some(event(error.reason(), error.message()));
        }
        Ending::Stored(stored) => format!("stored artifact for commit '{}'", shortened(&stored.subject)),
        Ending::UpToDate { .. } => format!("stored artifact for commit '{revision}'"),
    };
    let digest = |held: &Artifact| held.digest.clone();
    if status.artifact.as_ref().map(digest) != artifact.map(digest) {
        let event = about(Event::normal("NewArtifact", text), artifact);
        return Some(match ending {
            Ending::Stored(stored) => event.with(EVENT_FILES, stored.files.to_string()),
            _ => event,
        });
    }
    let failures = [
        Kind::FetchFailed,
        Kind::IncludeUnavailable,
        Kind::StorageOperationFailed,
    ];
    let had_failed = status
        .conditions
        .iter()
        .any(|held| failures.iter().any(|kind| kind.as_str() == held.type_));
    if had_failed {
        return Some(about(Event::normal("Succeeded", text), artifact));
    }
    let (reason, text) = match ending {
        Ending::UpToDate { .. } => (
            "GitOperationSucceeded",
            "no changes since last reconciliation: observed revision",
        ),
        _ => ("ArtifactUpToDate", "artifact up-to-date with remote revision:"),
    };
    Some(Event::trace(reason, format!("{text} '{revision}'")))
}

/// Whether the object shows already that a server asks to wait: the time that it names may be another one each time.
fn was_throttled(status: &GitRepositoryStatus) -> bool {
    let mut failed = status
        .conditions
        .iter()
        .filter(|held| held.type_ == Kind::FetchFailed.as_str());
    failed.any(|held| held.message.contains(ASKS_TO_WAIT))
}

fn about(event: Event, artifact: Option<&Artifact>) -> Event {
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
