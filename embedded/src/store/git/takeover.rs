//! Takes over commits of a branch to its journal, which is the order of all changes.
//!
//! The branch and its journal move independently, so that they have no common order of their own: a status that is written on an older
//! head of the branch would get a lower version than a change of the spec that another process has seen. Therefore the journal alone is
//! the order:
//!
//! * A write of a spec moves both in one step, first the branch. A write of a status moves the journal only.
//! * A commit of another process or user on the branch counts once a commit of the journal has taken it over. Its content follows from
//!   both, so that two processes that see the same push write the same commit.
//! * Both moves are compare and swap. The process that comes second reads the journal and decides again.
//! * A process that ends after the move of the branch leaves a commit that is taken over like any other, with the versions in its trailers.
//! * A branch whose history was rewritten is taken over like each other commit. Its objects keep their identities, which follow from the
//!   journal.
//! * The journal of a branch without one begins with all of its history, so that no object changes.
//! * A journal only moves forward. If somebody deletes it or moves it back, a running process restores it.

use std::time::{Duration, Instant};

use super::branch::{ELSEWHERE, Edits, Heads, Moved};
use super::{Git, foreign, message};
use crate::store::backend::Foreign;

/// Attempts to take over the commits of others while other processes write.
const ATTEMPTS: usize = 8;
/// Time after which a start begins no further attempt.
pub(super) const START_LIMIT: Duration = Duration::from_mins(1);

impl Git {
    /// Returns the newest known commits.
    pub(super) const fn heads(&self) -> Heads {
        self.history.heads()
    }

    /// Applies the commits of the journal that the store does not know yet, and takes over those of the branch.
    ///
    /// Begins no further attempt after `end`. Fails if no commit is known afterwards: a start on a branch with objects must not look like one
    /// without.
    pub(super) fn follow_journal(&mut self, end: Instant) -> Result<Foreign, git2::Error> {
        let mut foreign = Foreign::default();
        let mut outcome = Ok(());
        let mut attempts = 0;
        while attempts == 0 || (attempts < ATTEMPTS && Instant::now() < end) {
            attempts += 1;
            match self.take_over_or_fetch(&mut foreign) {
                Ok(moved) => outcome = moved,
                Err(error) if foreign.records.is_empty() => return Err(error),
                // What was read is published, the rest follows with the next poll.
                Err(error) => {
                    outcome = Err(error.message().to_owned());
                    break;
                }
            }
            if outcome.is_ok() {
                break;
            }
        }
        let reason = outcome.err();
        self.not_taken_over = reason.map(|reason| self.branch.not_taken_over(attempts, &reason));
        if let Some(reason) = &self.not_taken_over {
            if self.history.head.is_none() {
                return Err(git2::Error::from_str(reason));
            }
            tracing::warn!(
                reason,
                "commits of the branch are not read yet; the next poll tries again"
            );
        }
        foreign.invalid = std::mem::take(&mut self.history.reports);
        Ok(foreign)
    }

    /// Returns why a commit of this process was rejected. A write that meets other commits without end gets the reason for which they are not
    /// read.
    pub(super) fn rejection(&self, reason: String) -> String {
        match &self.not_taken_over {
            Some(not_taken_over) if reason == ELSEWHERE => not_taken_over.clone(),
            _ => reason,
        }
    }

    /// Makes one attempt, and fetches what another process has pushed if that came first.
    fn take_over_or_fetch(&mut self, foreign: &mut Foreign) -> Result<Moved, git2::Error> {
        let moved = self.take_over(foreign)?;
        if moved.is_err()
            && let Some(remote) = &self.remote
        {
            remote.fetch(&self.branch)?;
        }
        Ok(moved)
    }

    /// Makes one attempt. The inner error says why the journal is not moved: another process has written, or moves it now.
    fn take_over(&mut self, foreign: &mut Foreign) -> Result<Moved, git2::Error> {
        let mut found = self.branch.heads()?;
        let known = self.follow_entries(found, foreign)?;
        if found == known {
            return Ok(Ok(()));
        }
        if let (Some(before), Some(remote)) = (known.branch, &self.remote)
            && !self.is_after(found, before)?
        {
            // `git ls-remote` reads the branch first. During a push it can show the branch before the push, and the journal after it.
            remote.fetch(&self.branch)?;
            let again = self.branch.heads()?;
            if again.journal != found.journal {
                return Ok(Err(ELSEWHERE.to_owned()));
            }
            found = again;
        }
        let Some(head) = found.branch else {
            // A deleted branch must not be taken for one without objects.
            return match known.branch {
                None => Ok(Ok(())),
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
        // The journal alone moves. If it was deleted or moved back, it comes back.
        let moved = self.advance(found, new)?;
        if moved.is_ok() {
            self.follow_entries(new, foreign)?;
        }
        Ok(moved)
    }

    /// Whether the branch is at a commit or one after it.
    fn is_after(&self, found: Heads, before: git2::Oid) -> Result<bool, git2::Error> {
        match found.branch {
            Some(head) => self.branch.has_ancestor(head, before),
            None => Ok(false),
        }
    }

    /// Applies the commits of the journal that the store does not know yet. Returns the commits from which the journal is to move on.
    fn follow_entries(&mut self, found: Heads, foreign: &mut Foreign) -> Result<Heads, git2::Error> {
        let Some(head) = found.journal else {
            return Ok(self.heads());
        };
        match self.branch.chain(self.history.journal, head)? {
            Some(chain) if !self.stale => self.apply_entries(chain, foreign)?,
            // As if it was deleted: each commit of it counts.
            None if self.branch.is_moved_back(self.history.journal, head)? => {}
            chain => {
                let is_rewritten = chain.is_none();
                return self.replace_entries(found, head, is_rewritten, foreign);
            }
        }
        Ok(self.heads())
    }

    fn apply_entries(&mut self, chain: Vec<git2::Oid>, foreign: &mut Foreign) -> Result<(), git2::Error> {
        let mut records = Vec::new();
        let newest = self.newest;
        // A start publishes none.
        let is_running = newest > 0;
        let applied = chain
            .into_iter()
            .try_for_each(|id| self.apply_entry(id, is_running.then_some(&mut records)));
        records.retain(|record| record.revision > newest);
        foreign.records.extend(records);
        applied
    }

    /// Reads the whole history of a journal, once that has taken over the branch: before, objects of the branch would be missing in one that
    /// another process or a user has begun again, and the garbage collector would delete what they own.
    fn replace_entries(
        &mut self,
        found: Heads,
        journal: git2::Oid,
        is_rewritten: bool,
        foreign: &mut Foreign,
    ) -> Result<Heads, git2::Error> {
        let covered = self.branch.covered(journal)?;
        if covered != found.branch {
            return Ok(Heads {
                branch: covered,
                journal: found.journal,
            });
        }
        if covered.is_none() {
            return Err(git2::Error::from_str(foreign::DELETED));
        }
        let replaced = self.replace_history(is_rewritten)?;
        foreign.rewritten = true;
        foreign.records.extend(replaced.records);
        Ok(self.heads())
    }
}
