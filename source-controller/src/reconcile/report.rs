//! What a pass came to, as status and as events. Pure: one writer elsewhere sends what is computed here.

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_api::annotation::{EVENT_DIGEST, EVENT_FILES, EVENT_REVISION, event_key, requested_at};
use sluice_api::condition::{SourceCondition as Kind, Truth, Vocabulary as _};
use sluice_api::source::{Artifact, GROUP, GitRepository, GitRepositoryStatus};
use sluice_runtime::event::Event;
use sluice_runtime::failure::{Class, Failure};

use super::conditions::Board;
use super::content::ContentConfig;
use super::error::PassError;
use super::observe::Observed;
use super::verify::Standing;

/// Characters of a commit's subject that events show.
const SUBJECT_LIMIT: usize = 50;
/// Reason of events about artifacts that were removed.
pub(super) const COLLECTED: &str = "GarbageCollectionSucceeded";

/// How a pass ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// A new artifact is stored.
    Stored {
        /// The artifact.
        artifact: Artifact,
        /// Number of files in it.
        files: u64,
        /// The commit's subject.
        subject: String,
        /// What it was made with.
        content: ContentConfig,
        /// Its signatures.
        standing: Standing,
    },
    /// The stored artifact is what would be made.
    UpToDate {
        /// What it is made with.
        content: ContentConfig,
        /// Its signatures.
        standing: Standing,
    },
    /// Something went wrong.
    Failed {
        /// What.
        error: PassError,
        /// The revision that the remote has, if it was found out.
        revision: Option<String>,
    },
    /// The object is suspended.
    Suspended,
    /// Other passes hold all places at the host; nothing was done and nothing is reported.
    Busy,
}

/// The text of a pass in progress, for a status that is written before its end: only at a new generation, a new request
/// or a lost artifact, and only once for each.
#[must_use]
pub(super) fn announcement(object: &GitRepository, observed: &Observed) -> Option<String> {
    let status = object.status.clone().unwrap_or_default();
    let announced = |kind: Kind| {
        let held = status.conditions.iter().find(|held| held.type_ == kind.as_str());
        held.is_some_and(|held| held.observed_generation == object.metadata.generation)
    };
    if observed.lost {
        return Some(progress(object, observed, None));
    }
    if is_new_generation(object) && !announced(Kind::Reconciling) {
        return Some(generation_text(object));
    }
    let requested = requested_at(object.annotations());
    let pending = requested.is_some() && requested != status.last_handled_reconcile_at.as_deref();
    (pending && !is_new_generation(object)).then(|| progress(object, observed, None))
}

/// How far a pass has come, in the words that `Reconciling` shows.
#[must_use]
pub(super) fn progress(object: &GitRepository, observed: &Observed, revision: Option<&str>) -> String {
    match (&observed.artifact, revision) {
        (artifact, Some(revision)) if !artifact.as_ref().is_some_and(|held| is_of(held, revision)) => {
            format!("building artifact: new upstream revision '{revision}'")
        }
        (None, _) if observed.lost => "building artifact: disappeared from storage".to_owned(),
        (None, _) => "building artifact".to_owned(),
        (Some(_), _) if is_new_generation(object) => generation_text(object),
        (Some(_), _) => "reconciliation in progress".to_owned(),
    }
}

/// The status while the pass goes on. With `revision` (which differs from the artifact's) the object is known to be
/// outdated, and `Ready` says so; otherwise `Ready` stays what it was.
#[must_use]
pub(super) fn in_progress(
    object: &GitRepository,
    observed: &Observed,
    text: &str,
    revision: Option<&str>,
    now: Timestamp,
) -> GitRepositoryStatus {
    let mut status = with_artifact(object, observed);
    let mut board = board(object, observed);
    board.delete(Kind::Stalled);
    board.yes(Kind::Reconciling, "Progressing", text);
    if let Some(revision) = revision {
        for kind in [Kind::FetchFailed, Kind::StorageOperationFailed] {
            board.delete(kind);
        }
        outdated(&mut board, observed, Some(revision));
        forget_refusal(&mut board);
    }
    let undecided = board
        .get(Kind::Ready)
        .is_none_or(|ready| ready.truth == Truth::Unknown);
    if undecided || revision.is_some() || observed.lost {
        board.set(Kind::Ready, Truth::Unknown, "Progressing", text);
    }
    status.conditions = board.into_conditions(object.metadata.generation, now);
    status
}

/// The status at the end of the pass.
#[must_use]
pub(super) fn settled(
    object: &GitRepository,
    observed: &Observed,
    ending: &Ending,
    now: Timestamp,
) -> GitRepositoryStatus {
    let mut status = with_artifact(object, observed);
    let mut board = board(object, observed);
    let handled = match ending {
        Ending::Stored {
            artifact,
            content,
            standing,
            ..
        } => {
            status.artifact = Some(artifact.clone());
            status.included_artifacts = Vec::new();
            content.clone().record(&mut status, standing.keys());
            succeeded(&mut board, &artifact.revision);
            vouch(&mut board, &mut status, standing);
            true
        }
        Ending::UpToDate { content, standing } => {
            // Written where it is kept, or where something is written anyway: an older definition prunes it.
            if *standing != Standing::Held
                && (status.content_config_checksum.is_some() || is_new_generation(object))
            {
                content.clone().record(&mut status, standing.keys());
            }
            vouch(&mut board, &mut status, standing);
            succeeded(
                &mut board,
                observed
                    .artifact
                    .as_ref()
                    .map_or("", |artifact| &artifact.revision),
            );
            true
        }
        Ending::Failed { error, revision } => {
            failed(&mut board, object, observed, error, revision.as_deref());
            error.class() == Class::Terminal
        }
        Ending::Suspended => {
            board.delete(Kind::Stalled);
            let left_over = board.get(Kind::Reconciling).map(|held| held.message.clone());
            if let Some(text) = left_over {
                board.yes(Kind::Reconciling, "ProgressingWithRetry", &text);
            }
            true
        }
        Ending::Busy => false,
    };
    if object.spec.verify.is_none() && !matches!(ending, Ending::Suspended) {
        board.delete(Kind::SourceVerified);
        status.source_verification_mode = None;
    }
    board.sum_up();
    status.conditions = board.into_conditions(object.metadata.generation, now);
    if handled && !status.conditions.is_empty() {
        status.observed_generation = object.metadata.generation;
    }
    if let Some(token) = requested_at(object.annotations()) {
        status.last_handled_reconcile_at = Some(token.to_owned());
    }
    status
}

/// The status of an object that is being deleted: it names no artifact any more, and otherwise stays.
#[must_use]
pub(super) fn released(object: &GitRepository, now: Timestamp) -> GitRepositoryStatus {
    let status = object.status.clone().unwrap_or_default();
    let mut board = Board::new(&status.conditions);
    board.delete(Kind::ArtifactInStorage);
    GitRepositoryStatus {
        artifact: None,
        conditions: board.into_conditions(object.metadata.generation, now),
        ..status
    }
}

fn with_artifact(object: &GitRepository, observed: &Observed) -> GitRepositoryStatus {
    GitRepositoryStatus {
        artifact: observed.artifact.clone(),
        ..object.status.clone().unwrap_or_default()
    }
}

fn board(object: &GitRepository, observed: &Observed) -> Board {
    let held = object
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let mut board = Board::new(held);
    if observed.artifact.is_none() {
        board.delete(Kind::ArtifactInStorage);
    }
    board
}

fn succeeded(board: &mut Board, revision: &str) {
    for kind in [
        Kind::FetchFailed,
        Kind::IncludeUnavailable,
        Kind::StorageOperationFailed,
        Kind::ArtifactOutdated,
        Kind::Stalled,
        Kind::Reconciling,
    ] {
        board.delete(kind);
    }
    board.yes(Kind::ArtifactInStorage, "Succeeded", &stored_text(revision));
}

/// Shows what is known of signatures, for this generation. What nobody asks for any more is removed by the caller.
fn vouch(board: &mut Board, status: &mut GitRepositoryStatus, standing: &Standing) {
    let text = match standing {
        Standing::Unasked => return,
        Standing::Held => board.get(Kind::SourceVerified).map(|held| held.message.clone()),
        Standing::Verified(verified) => {
            status.source_verification_mode = Some(verified.mode.to_owned());
            Some(verified.text.clone())
        }
    };
    if let Some(text) = text {
        board.yes(Kind::SourceVerified, "Succeeded", &text);
    }
}

/// Forgets a signature that did not count: this pass has not got as far, or found another one.
fn forget_refusal(board: &mut Board) {
    let refused = board
        .get(Kind::SourceVerified)
        .is_some_and(|held| held.truth == Truth::False);
    if refused {
        board.delete(Kind::SourceVerified);
    }
}

fn failed(
    board: &mut Board,
    object: &GitRepository,
    observed: &Observed,
    error: &PassError,
    revision: Option<&str>,
) {
    for kind in [
        Kind::FetchFailed,
        Kind::IncludeUnavailable,
        Kind::StorageOperationFailed,
    ] {
        board.delete(kind);
    }
    outdated(board, observed, revision);
    let (reason, message) = (error.reason(), error.message());
    forget_refusal(board);
    match error.condition() {
        Some(Kind::SourceVerified) => board.set(Kind::SourceVerified, Truth::False, reason, &message),
        Some(kind) => board.yes(kind, reason, &message),
        None => {}
    }
    if error.class() == Class::Terminal {
        board.delete(Kind::Reconciling);
        board.yes(Kind::Stalled, reason, &message);
        return;
    }
    board.delete(Kind::Stalled);
    // A failure without a condition of its own speaks here, and through it in `Ready`.
    let text = error
        .condition()
        .map_or(message, |_| progress(object, observed, revision));
    board.yes(Kind::Reconciling, "ProgressingWithRetry", &text);
}

/// There is a newer revision, if the remote was asked and an older artifact is there.
fn outdated(board: &mut Board, observed: &Observed, revision: Option<&str>) {
    let older = observed
        .artifact
        .as_ref()
        .zip(revision)
        .filter(|(held, new)| !is_of(held, new));
    match older {
        Some((_, new)) => {
            board.yes(
                Kind::ArtifactOutdated,
                "NewRevision",
                &format!("new upstream revision '{new}'"),
            );
        }
        None => board.delete(Kind::ArtifactOutdated),
    }
}

/// Whether the artifact is of this revision, in whatever form its own was written.
#[must_use]
pub(super) fn is_of(artifact: &Artifact, revision: &str) -> bool {
    artifact.parsed_revision().to_string() == revision
}

fn is_new_generation(object: &GitRepository) -> bool {
    object.metadata.generation != observed_generation(object)
}

fn observed_generation(object: &GitRepository) -> Option<i64> {
    object
        .status
        .as_ref()
        .and_then(|status| status.observed_generation)
}

fn generation_text(object: &GitRepository) -> String {
    let seen = observed_generation(object).unwrap_or(-1);
    let generation = object.metadata.generation.unwrap_or_default();
    format!("processing object: new generation {seen} -> {generation}")
}

fn stored_text(revision: &str) -> String {
    format!("stored artifact for revision '{revision}'")
}

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
        Event::trace(
            COLLECTED,
            format!("garbage collected {} artifacts", observed.collected),
        )
    });
    damage.into_iter().chain(collected).collect()
}

/// What the end of the pass gave to tell. A new artifact is one whose digest is new; a recovery is told only if nothing
/// else is.
#[must_use]
pub(super) fn events(before: &GitRepository, ending: &Ending, after: &GitRepositoryStatus) -> Vec<Event> {
    let status = before.status.clone().unwrap_or_default();
    let artifact = after.artifact.as_ref();
    let revision = artifact.map(|held| held.revision.clone()).unwrap_or_default();
    let text = match ending {
        Ending::Suspended | Ending::Busy => return Vec::new(),
        Ending::Failed { error, .. } => {
            let waiting = matches!(error.class(), Class::Waiting(_));
            let event = if waiting { Event::trace } else { Event::warning };
            return vec![event(error.reason(), error.message())];
        }
        Ending::Stored { subject, .. } => format!("stored artifact for commit '{}'", shortened(subject)),
        Ending::UpToDate { .. } => format!("stored artifact for commit '{revision}'"),
    };
    let digest = |held: &Artifact| held.digest.clone();
    if status.artifact.as_ref().map(digest) != artifact.map(digest) {
        let event = about(Event::normal("NewArtifact", text), artifact);
        return vec![match ending {
            Ending::Stored { files, .. } => event.with(EVENT_FILES, files.to_string()),
            _ => event,
        }];
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
        return vec![about(Event::normal("Succeeded", text), artifact)];
    }
    let (reason, text) = match ending {
        Ending::UpToDate { .. } => (
            "GitOperationSucceeded",
            "no changes since last reconciliation: observed revision",
        ),
        _ => ("ArtifactUpToDate", "artifact up-to-date with remote revision:"),
    };
    vec![Event::trace(reason, format!("{text} '{revision}'"))]
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
