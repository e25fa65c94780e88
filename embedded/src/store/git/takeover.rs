//! Takes over commits of a branch to its journal, which is the order of all changes.
//!
//! The branch and its journal move independently, so that they have no common order of their own: a status that is written on an older
//! head of the branch would get a lower version than a change of the spec that another process has seen. Therefore the journal alone is
//! the order:
//!
//! * A write of a spec moves both in one step, first the branch. A write of a status moves the journal only.
//! * A commit of others on the branch counts once a commit of the journal has taken it over. Its content follows from both, so that two
//!   processes that see the same push write the same commit.
//! * Both moves are compare and swap. Who comes second reads the journal and decides again.
//! * A process that ends after the move of the branch leaves a commit like one of others, with the versions in its trailers.
//! * A branch whose history was rewritten is taken over like each other commit. Its objects keep their identities, which follow from the
//!   journal.
//! * The journal of a branch without one begins with all of its history, so that no object changes.

use super::branch::{Edits, Heads};
use super::{Git, foreign, message};
use crate::store::backend::Foreign;

/// Attempts to take over the commits of others while other processes write.
const ATTEMPTS: usize = 8;

impl Git {
    /// Returns the newest known commits.
    pub(super) const fn heads(&self) -> Heads {
        Heads {
            branch: self.history.head,
            journal: self.history.journal,
        }
    }

    /// Applies the commits of the journal that the store does not know yet, and takes over those of the branch.
    pub(super) fn follow_journal(&mut self) -> Result<Foreign, git2::Error> {
        let mut foreign = Foreign::default();
        let mut is_done = false;
        for _ in 0..ATTEMPTS {
            match self.take_over_or_fetch(&mut foreign) {
                Ok(done) => is_done = done,
                Err(error) if foreign.records.is_empty() => return Err(error),
                // What was read is published, the rest follows with the next poll.
                Err(_) => break,
            }
            if is_done {
                break;
            }
        }
        if !is_done {
            tracing::warn!(
                "commits of the branch are not read yet: its journal is locked, or other processes write to it"
            );
        }
        foreign.invalid = std::mem::take(&mut self.history.reports);
        Ok(foreign)
    }

    /// Makes one attempt, and fetches what another process has pushed. Returns false if there is something.
    fn take_over_or_fetch(&mut self, foreign: &mut Foreign) -> Result<bool, git2::Error> {
        let is_done = self.take_over(foreign)?;
        if !is_done && let Some(remote) = &self.remote {
            remote.fetch(&self.branch)?;
        }
        Ok(is_done)
    }

    /// Makes one attempt. Returns false if another process has written.
    fn take_over(&mut self, foreign: &mut Foreign) -> Result<bool, git2::Error> {
        let mut found = self.branch.heads()?;
        self.follow_entries(found, foreign)?;
        let known = self.heads();
        let is_restored = found.journal.is_none() && known.journal.is_some();
        if found.branch == known.branch && !is_restored {
            return Ok(true);
        }
        if let (Some(before), Some(remote)) = (known.branch, &self.remote)
            && !self.is_after(found, before)?
        {
            // A look at a remote repository reads the branch first. During a push it can show the branch before it, and the journal after it.
            remote.fetch(&self.branch)?;
            let again = self.branch.heads()?;
            if again.journal != found.journal {
                return Ok(false);
            }
            found = again;
        }
        let Some(head) = found.branch else {
            // A deleted branch must not look like one without objects.
            return match known.branch {
                None => Ok(true),
                Some(_) => Err(git2::Error::from_str(foreign::DELETED)),
            };
        };
        let mut new = Heads {
            branch: found.branch,
            journal: known.journal,
        };
        if known.branch != found.branch {
            let time = self.branch.info(head)?.time;
            let message = message::take_over(head);
            let entry = self
                .branch
                .write_entry(known.journal, Some(head), &Edits::new(), &message, time)?;
            new.journal = Some(entry);
        }
        if let Some(remote) = &self.remote {
            remote.check()?;
        }
        // The journal alone moves. If it was deleted, it comes back.
        let is_moved = self.advance(found, new)?.is_ok();
        if is_moved {
            self.follow_entries(new, foreign)?;
        }
        Ok(is_moved)
    }

    /// Whether the branch is at a commit or one after it.
    fn is_after(&self, found: Heads, before: git2::Oid) -> Result<bool, git2::Error> {
        match found.branch {
            Some(head) => self.branch.has_ancestor(head, before),
            None => Ok(false),
        }
    }

    /// Applies the commits of the journal that the store does not know yet.
    fn follow_entries(&mut self, found: Heads, foreign: &mut Foreign) -> Result<(), git2::Error> {
        let Some(head) = found.journal else {
            return Ok(());
        };
        let chain = self.branch.chain(self.history.journal, head)?;
        let Some(chain) = chain.filter(|_| !self.stale) else {
            let replaced = self.replace_history()?;
            foreign.rewritten = true;
            foreign.records.extend(replaced.records);
            return Ok(());
        };
        let mut records = Vec::new();
        let applied = chain
            .into_iter()
            .try_for_each(|id| self.apply_entry(id, &mut records));
        let newest = self.newest;
        records.retain(|record| record.revision > newest);
        foreign.records.extend(records);
        applied
    }
}
