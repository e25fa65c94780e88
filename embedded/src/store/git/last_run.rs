//! What a start takes over from the last run on this machine: the identities of objects whose history was rewritten or removed since, and
//! the versions that they have for clients.

use super::branch::Branch;
use super::foreign;
use super::history::History;
use super::kinds::Kinds;
use crate::store::error::StoreError;
use crate::store::file::{File, Identities};

/// Problem of a start on a branch that was there before.
const MISSING: &str = "the branch does not exist";
/// Problem of a start on a branch that had objects before.
const EMPTY: &str = "the branch has another history without objects";

/// Carries identities over if the history was rewritten while the store was closed. Fails if the branch is missing or has no objects any
/// more: the repository was created again, or the name is wrong.
pub(super) fn carry_over_from_last_run(
    branch: &Branch,
    kinds: &Kinds,
    local: &File,
    new: &mut History,
) -> Result<(), git2::Error> {
    let Some(known) = last_head(local)? else {
        return Ok(());
    };
    // As while it runs: the garbage collector would delete what the objects own, and the next write would begin another history.
    let Some(head) = new.head else {
        return Err(unknown_history(MISSING, known));
    };
    if is_in_history(branch, new, head, known)? {
        return carry_over_from_journal(branch, kinds, local, new);
    }
    let mut kinds = kinds.before_history();
    let old = foreign::read_to(branch, &mut kinds, new.identities.clone(), known);
    let was_empty = old.as_ref().is_ok_and(|old| old.objects.is_empty());
    if new.objects.is_empty() && !was_empty {
        return Err(unknown_history(EMPTY, known));
    }
    match old {
        Ok(old) => {
            foreign::carry_over(&old, new);
            save_identities(local, new)
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the history was rewritten and its earlier commits are gone, so objects get other uids"
            );
            Ok(())
        }
    }
}

/// Gives objects the identities that only the journal of the last run knew, if that is gone: after a rewrite of the branch they do not
/// follow from its commits.
fn carry_over_from_journal(
    branch: &Branch,
    kinds: &Kinds,
    local: &File,
    new: &mut History,
) -> Result<(), git2::Error> {
    let Some(journal) = last_journal(local)? else {
        return Ok(());
    };
    if let Some(present) = new.journal
        && branch.has_ancestor(present, journal)?
    {
        return Ok(());
    }
    match identities_of_journal(branch, kinds, &new.identities, journal) {
        Ok(identities) => {
            foreign::replace_identities(new, identities);
            save_identities(local, new)
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the journal and its commits are gone, so objects from before a rewrite of the branch get other uids"
            );
            Ok(())
        }
    }
}

/// Returns the identities that the objects of a journal have, by the uids that follow from the branch alone.
fn identities_of_journal(
    branch: &Branch,
    kinds: &Kinds,
    identities: &Identities,
    journal: git2::Oid,
) -> Result<Identities, git2::Error> {
    let empty = History::new(identities.clone());
    let old = foreign::read_journal(branch, &mut kinds.before_history(), empty, journal)?;
    let Some(head) = old.head else {
        return Ok(identities.clone());
    };
    let mut alone = foreign::read_to(branch, &mut kinds.before_history(), identities.clone(), head)?;
    foreign::carry_over(&old, &mut alone);
    Ok(alone.identities)
}

/// Fails if the branch is missing or has no objects any more, as [`carry_over_from_last_run`]. A journal would take it over before that,
/// and keep it.
pub(super) fn check_last_run(
    branch: &Branch,
    kinds: &Kinds,
    local: &File,
    history: &History,
) -> Result<(), git2::Error> {
    let Some(known) = last_head(local)? else {
        return Ok(());
    };
    let Some(head) = branch.head()? else {
        return Err(unknown_history(MISSING, known));
    };
    if is_in_history(branch, history, head, known)? {
        return Ok(());
    }
    let has_objects = |id: git2::Oid| {
        let mut kinds = kinds.before_history();
        let history = foreign::read_to(branch, &mut kinds, Identities::default(), id)?;
        Ok::<bool, git2::Error>(!history.objects.is_empty())
    };
    if !has_objects(head)? && has_objects(known).unwrap_or(true) {
        return Err(unknown_history(EMPTY, known));
    }
    Ok(())
}

fn save_identities(local: &File, history: &History) -> Result<(), git2::Error> {
    let saved = local.set_identities(&history.identities);
    saved.map_err(|error| to_git_error(&error))
}

/// Returns the newest commit of the branch that this machine knows.
fn last_head(local: &File) -> Result<Option<git2::Oid>, git2::Error> {
    commit(local.head())
}

/// Returns the newest commit of the journal that this machine knows.
pub(super) fn last_journal(local: &File) -> Result<Option<git2::Oid>, git2::Error> {
    commit(local.journal())
}

fn commit(known: Result<Option<String>, StoreError>) -> Result<Option<git2::Oid>, git2::Error> {
    let known = known.map_err(|error| to_git_error(&error))?;
    known.map(|known| git2::Oid::from_str(&known)).transpose()
}

/// Whether a history continues that of the last run on this machine. Another one can have the same versions for other objects: it needs a
/// version of its own, before which no watch resumes. Without a last run, no client knows a version.
pub(super) fn is_continued(branch: &Branch, local: &File, history: &History) -> Result<bool, git2::Error> {
    let Some(known) = last_head(local)? else {
        return Ok(true);
    };
    match (last_journal(local)?, history.journal, history.head) {
        (Some(last), Some(journal), _) => Ok(branch.chain(Some(last), journal)?.is_some()),
        (None, None, Some(head)) => branch.has_ancestor(head, known),
        _ => Ok(false),
    }
}

/// Gives the objects of a history without a journal the versions that clients know. If it does not continue that of the last run, clients
/// can know its versions for other contents: a commit that a user amends has the versions of the one that it replaces. Then all objects get
/// new versions, so that no write with an earlier one replaces what the user wrote.
pub(super) fn take_versions(
    local: &File,
    history: &mut History,
    is_continued: bool,
) -> Result<(), StoreError> {
    if is_continued {
        history.set_versions(&local.versions()?);
        return Ok(());
    }
    let computed = history.versions();
    history.renumber();
    local.set_versions(&history.given_versions(&computed))
}

/// Whether the head of a branch has a commit in its history, or follows it in the journal, which keeps the commits from before a rewrite.
fn is_in_history(
    branch: &Branch,
    history: &History,
    head: git2::Oid,
    known: git2::Oid,
) -> Result<bool, git2::Error> {
    if branch.has_ancestor(head, known)? {
        return Ok(true);
    }
    match history.journal.filter(|_| history.head == Some(head)) {
        Some(journal) => branch.has_ancestor(journal, known),
        None => Ok(false),
    }
}

fn to_git_error(error: &StoreError) -> git2::Error {
    git2::Error::from_str(&error.to_string())
}

/// Returns the error of a start on a branch that lost the objects which this machine knows.
fn unknown_history(problem: &str, known: git2::Oid) -> git2::Error {
    git2::Error::from_str(&format!(
        "{problem}, but this state directory knows its commit {known}: push that commit again, correct the name of the repository or \
         branch, or use a new state directory"
    ))
}
