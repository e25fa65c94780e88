//! What a pass came to, as status. Pure: one writer elsewhere sends what is computed here, and the events beside it.

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_api::annotation::requested_at;
use sluice_api::condition::{SourceCondition as Kind, Truth, Vocabulary as _};
use sluice_api::source::{Artifact, GitRepository, GitRepositoryStatus};
use sluice_runtime::failure::{Class, Failure};

use super::conditions::Board;
use super::content::ContentConfig;
use super::error::PassError;
use super::observe::Observed;
use super::verify::Standing;

/// Why an artifact is made anew though the remote has nothing new.
const OTHER_INCLUDES: &str = "included artifacts differ from last observed includes";

/// How the text of an object begins that waits for its pass.
pub(super) const WAITING: &str = "waiting for a place at";

/// A new artifact.
#[derive(Debug)]
pub(super) struct Stored {
    /// The artifact.
    pub artifact: Artifact,
    /// Number of files in it.
    pub files: u64,
    /// The commit's subject.
    pub subject: String,
    /// What it was made with.
    pub content: ContentConfig,
    /// Its signatures.
    pub standing: Standing,
}

/// How a pass ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// A new artifact is stored.
    Stored(Box<Stored>),
    /// The stored artifact is what would be made.
    UpToDate {
        /// What it is made with.
        content: ContentConfig,
        /// Its signatures.
        standing: Standing,
    },
    /// Something went wrong.
    Failed(PassError),
    /// The object is suspended.
    Suspended,
}

/// What a pass has found out so far that an artifact has to follow.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    /// The revision that the remote has.
    pub revision: Option<String>,
    /// Whether the included artifacts are others than those of the last time.
    pub includes: bool,
}

impl News {
    /// The revision, if it is not that of the stored artifact.
    fn new_revision(&self, observed: &Observed) -> Option<&str> {
        let held = observed.artifact.as_ref();
        self.revision
            .as_deref()
            .filter(|new| held.is_none_or(|held| !is_of(held, new)))
    }

    /// Whether a new artifact is to come.
    pub(super) fn is_drift(&self, observed: &Observed) -> bool {
        self.includes || self.new_revision(observed).is_some()
    }
}

/// The text of a pass in progress, for a status that is written before its end: only at a new generation, a new request
/// or a lost artifact, and only once for each.
#[must_use]
pub(super) fn announcement(object: &GitRepository, observed: &Observed) -> Option<String> {
    let status = object.status.clone().unwrap_or_default();
    let announced = |kind: Kind| {
        let held = status.conditions.iter().find(|held| held.type_ == kind.as_str());
        held.is_some_and(|held| {
            held.observed_generation == object.metadata.generation && !held.message.starts_with(WAITING)
        })
    };
    if observed.lost {
        return Some(progress(object, observed, &News::default()));
    }
    if is_new_generation(object) && !announced(Kind::Reconciling) {
        return Some(generation_text(object));
    }
    (is_asked_for(object) && !is_new_generation(object)).then(|| progress(object, observed, &News::default()))
}

/// Whether somebody asks for a pass by annotation, and has not been served yet.
#[must_use]
pub(super) fn is_asked_for(object: &GitRepository) -> bool {
    let requested = requested_at(object.annotations());
    let status = object.status.as_ref();
    let handled = status.and_then(|status| status.last_handled_reconcile_at.as_deref());
    requested.is_some() && requested != handled
}

/// How far a pass has come, in the words that `Reconciling` shows.
#[must_use]
pub(super) fn progress(object: &GitRepository, observed: &Observed, news: &News) -> String {
    if let Some(revision) = news.new_revision(observed) {
        return format!("building artifact: new upstream revision '{revision}'");
    }
    if news.includes {
        return format!("building artifact: {OTHER_INCLUDES}");
    }
    match &observed.artifact {
        None if observed.lost => "building artifact: disappeared from storage".to_owned(),
        None => "building artifact".to_owned(),
        Some(_) if is_new_generation(object) => generation_text(object),
        Some(_) => "reconciliation in progress".to_owned(),
    }
}

/// The status while the pass goes on. Where a new artifact is to come the object is known to be outdated, and `Ready` says
/// so; otherwise `Ready` stays what it was.
#[must_use]
pub(super) fn in_progress(
    object: &GitRepository,
    observed: &Observed,
    text: &str,
    news: &News,
    now: Timestamp,
) -> GitRepositoryStatus {
    let mut status = with_artifact(object, observed);
    let mut board = board(object, observed);
    board.delete(Kind::Stalled);
    board.yes(Kind::Reconciling, "Progressing", text);
    let drift = news.is_drift(observed);
    if drift {
        board.delete(Kind::IncludeUnavailable);
        outdated(&mut board, observed, news);
        if news.revision.is_some() {
            board.delete(Kind::FetchFailed);
            board.delete(Kind::StorageOperationFailed);
        } else if !status.included_artifacts.is_empty() {
            board.yes(Kind::ArtifactOutdated, "IncludeChange", OTHER_INCLUDES);
        }
        forget_refusal(&mut board);
    }
    let undecided = board
        .get(Kind::Ready)
        .is_none_or(|ready| ready.truth == Truth::Unknown);
    if undecided || drift || observed.lost {
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
    news: &News,
    ending: &Ending,
    now: Timestamp,
) -> GitRepositoryStatus {
    let mut status = with_artifact(object, observed);
    let mut board = board(object, observed);
    let handled = match ending {
        Ending::Stored(stored) => {
            let Stored {
                artifact,
                content,
                standing,
                ..
            } = &**stored;
            status.artifact = Some(artifact.clone());
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
                content.seal(&mut status, standing.keys());
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
        Ending::Failed(error) => {
            failed(&mut board, object, observed, news, error);
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

/// A condition goes when the step that it is about went well in this pass; one whose turn did not come stays.
fn failed(board: &mut Board, object: &GitRepository, observed: &Observed, news: &News, error: &PassError) {
    board.delete(Kind::StorageOperationFailed);
    let answered = news.revision.is_some() || matches!(error, PassError::Verify(_));
    if answered || matches!(error, PassError::Fetch(_)) {
        board.delete(Kind::IncludeUnavailable);
    }
    if answered {
        board.delete(Kind::FetchFailed);
    }
    outdated(board, observed, news);
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
        .map_or(message, |_| progress(object, observed, news));
    board.yes(Kind::Reconciling, "ProgressingWithRetry", &text);
}

/// There is a newer revision, if the remote was asked and an older artifact is there.
fn outdated(board: &mut Board, observed: &Observed, news: &News) {
    match news
        .new_revision(observed)
        .filter(|_| observed.artifact.is_some())
    {
        Some(new) => {
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

/// Whether no pass has ended that knew the spec as it is.
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
    let seen = observed_generation(object).unwrap_or(-1);
    let generation = object.metadata.generation.unwrap_or_default();
    format!("processing object: new generation {seen} -> {generation}")
}

fn stored_text(revision: &str) -> String {
    format!("stored artifact for revision '{revision}'")
}
