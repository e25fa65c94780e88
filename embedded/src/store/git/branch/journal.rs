//! The journal of a branch: the branch `<name>-status`, a chain of commits along their first parents.
//!
//! The tree of a commit has the status files. Its second parent is the head of the branch that it belongs to, if that moved. So the
//! commits of the branch stay in the repository even if its history is rewritten. The second parent of a merge by others is none.

use git2::{Error, ErrorCode, Oid};

use super::{Branch, COMMITS_PER_REPOSITORY, Edits, Moved, message, race};

/// The error of a move whose branch points to another commit.
pub(in crate::store::git) const ELSEWHERE: &str = "other processes move the branch all the time";

/// Message of the first commit. Without a signature it is the same in each repository.
const FIRST: &str = "begin the journal of the status\n";

/// The newest commits of a branch and of its journal; `None` for what does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store::git) struct Heads {
    /// That of the branch.
    pub(in crate::store::git) branch: Option<Oid>,
    /// That of its journal.
    pub(in crate::store::git) journal: Option<Oid>,
}

/// The parents of a commit of the journal.
#[derive(Debug)]
pub(in crate::store::git) struct Entry {
    /// Head of the branch that it belongs to; `None` if that is the one of the commit before.
    pub(in crate::store::git) head: Option<Oid>,
    /// The commit before it.
    pub(in crate::store::git) previous: Option<Oid>,
}

impl Branch {
    /// Keeps the status of the objects in a journal.
    pub(in crate::store::git) fn with_journal(mut self) -> Self {
        self.journal = Some(format!("{}-status", self.reference));
        self
    }

    /// Whether the status of the objects is in a journal.
    pub(in crate::store::git) const fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Returns the newest commits. Reads the journal first. A write moves the branch first, so the branch that is read is never behind the
    /// journal.
    pub(in crate::store::git) fn heads(&self) -> Result<Heads, Error> {
        let journal = self.journal.as_deref().map(|journal| self.find(journal));
        let journal = journal.transpose()?.flatten();
        let branch = self.head()?;
        Ok(Heads { branch, journal })
    }

    /// Returns the error of a journal that has not taken over the commits of the branch, and what to do if it remains.
    pub(in crate::store::git) fn not_taken_over(&self, attempts: usize, reason: &str) -> String {
        let journal = self.journal.as_deref().unwrap_or_default();
        let plural = if attempts == 1 { "" } else { "s" };
        format!(
            "{journal} has not taken over the commits of {} in {attempts} attempt{plural}: {reason}; if this remains, remove the lock file \
             that the reason names, or stop the process that moves the branch",
            self.reference
        )
    }

    /// Returns the commits of a journal after `until` up to `head`, oldest first; `None` if `until` is not one of them.
    pub(in crate::store::git) fn chain(
        &self,
        until: Option<Oid>,
        head: Oid,
    ) -> Result<Option<Vec<Oid>>, Error> {
        let mut chain = Vec::new();
        let mut next = Some(head);
        let mut reader: Option<Self> = None;
        while next != until {
            let Some(id) = next else { return Ok(None) };
            chain.push(id);
            if chain.len().is_multiple_of(COMMITS_PER_REPOSITORY) {
                reader = Some(self.reopened()?);
            }
            next = reader.as_ref().unwrap_or(self).entry(id)?.previous;
        }
        chain.reverse();
        Ok(Some(chain))
    }

    /// Whether a journal was moved back from a known commit that the repository still has.
    pub(in crate::store::git) fn is_moved_back(
        &self,
        known: Option<Oid>,
        journal: Oid,
    ) -> Result<bool, Error> {
        let Some(known) = known else { return Ok(false) };
        match self.has_ancestor(known, journal) {
            // The repository may have removed the known one.
            Err(error) if error.code() == ErrorCode::NotFound => Ok(false),
            found => found,
        }
    }

    /// Returns the newest commit of the branch that a journal has taken over; `None` if there is none.
    pub(in crate::store::git) fn covered(&self, journal: Oid) -> Result<Option<Oid>, Error> {
        let mut next = Some(journal);
        while let Some(id) = next {
            let entry = self.entry(id)?;
            if entry.head.is_some() {
                return Ok(entry.head);
            }
            next = entry.previous;
        }
        Ok(None)
    }

    /// Returns what a commit of the journal says besides its files.
    pub(in crate::store::git) fn entry(&self, id: Oid) -> Result<Entry, Error> {
        let commit = self.repository.find_commit(id)?;
        let second = commit.parent_ids().nth(1);
        Ok(Entry {
            previous: commit.parent_ids().next(),
            head: second.filter(|head| message::belongs_to(commit.message().unwrap_or_default(), *head)),
        })
    }

    /// Writes a commit of the journal, with the head of the branch if that moved. The journal does not move.
    pub(in crate::store::git) fn write_entry(
        &self,
        parent: Option<Oid>,
        head: Option<Oid>,
        edits: &Edits,
        message: &str,
        time: i64,
    ) -> Result<Oid, Error> {
        let parent = match parent {
            Some(parent) => parent,
            None => self.write_tree(&self.empty_tree()?, &Edits::new(), &[], FIRST, 0)?,
        };
        let before = self.repository.find_commit(parent)?.tree()?;
        let parents: Vec<Oid> = std::iter::once(parent).chain(head).collect();
        self.write_tree(&before, edits, &parents, message, time)
    }

    /// Moves the branch, its journal, or both.
    pub(in crate::store::git) fn advance_heads(&self, old: Heads, new: Heads) -> Result<Moved, Error> {
        let branch = new.branch.filter(|_| new.branch != old.branch);
        let journal = new.journal.filter(|_| new.journal != old.journal);
        let journal = journal.zip(self.journal.as_deref());
        match (branch, journal) {
            (None, None) => Ok(Ok(())),
            (Some(branch), None) => self.try_advance(old.branch, branch),
            (None, Some((journal, reference))) => self.try_advance_reference(reference, old.journal, journal),
            (Some(branch), Some((journal, reference))) => {
                let mut transaction = self.repository.transaction()?;
                if let Err(error) = transaction.lock_ref(reference) {
                    return race(reference, error).map(Err);
                }
                if self.find(reference)? != old.journal {
                    return Ok(Err(ELSEWHERE.to_owned()));
                }
                // The journal is locked, so that only the branch can be elsewhere. If the process ends between the two moves, the next one
                // takes the commit over from the branch.
                let moved = self.try_advance(old.branch, branch)?;
                if moved.is_ok() {
                    transaction.set_target(reference, journal, None, "sluice")?;
                    transaction.commit()?;
                }
                Ok(moved)
            }
        }
    }

    /// Checks that the branch, its journal, or both point to the expected old commits, before anything is written.
    pub(in crate::store::git) fn check_heads(
        &self,
        known: Heads,
        moves_branch: bool,
    ) -> Result<Moved, Error> {
        let found = self.heads()?;
        let is_elsewhere = found.journal != known.journal || (moves_branch && found.branch != known.branch);
        Ok(if is_elsewhere {
            Err(ELSEWHERE.to_owned())
        } else {
            Ok(())
        })
    }

    /// Moves the branch and its journal from the known commits to the commits of two other references, as far as these exist.
    pub(in crate::store::git) fn advance_to(
        &self,
        known: Heads,
        tips: Heads,
        references: [&str; 2],
    ) -> Result<(), Error> {
        // The remote branch can have moved after `git ls-remote`, so the reference counts.
        let find = |tip: Option<Oid>, reference: &str| {
            tip.map(|_| self.repository.refname_to_id(reference)).transpose()
        };
        let new = Heads {
            branch: find(tips.branch, references[0])?,
            journal: find(tips.journal, references[1])?,
        };
        // A branch that is elsewhere follows with the next poll.
        drop(self.advance_heads(known, new)?);
        self.forget(tips)
    }

    /// Removes from a clone what does not exist in the remote repository.
    pub(in crate::store::git) fn forget(&self, remote: Heads) -> Result<(), Error> {
        if remote.branch.is_none() {
            self.remove(&self.reference)?;
        }
        match &self.journal {
            Some(journal) if remote.journal.is_none() => self.remove(journal),
            _ => Ok(()),
        }
    }
}
