//! Objects that a commit may have moved to a file that does not parse.
//!
//! Git stores no renames, and the objects of a file that does not parse are not known. So a commit after which one of its files does not
//! parse removes no object: an object that it takes out of all files does not change until the file parses or is removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::History;
use crate::store::git::step::Step;
use crate::store::state::Key;

/// A possible move of an object whose new file is not known.
#[derive(Debug)]
pub(super) struct PendingMove {
    /// The last file with the object.
    from: String,
    /// Files of the same commit that do not parse.
    to: Arc<[String]>,
}

/// The content of a file before a commit changed it.
pub(super) struct Before {
    pub(super) path: String,
    pub(super) keys: Vec<Key>,
}

impl History {
    /// Keeps the objects that a commit takes out of all files if one of these does not parse. Objects whose move ends are added to
    /// `affected`. `changed` are the files of the commit, which are indexed.
    pub(super) fn keep_moved(&mut self, step: &Step<'_>, changed: Vec<Before>, affected: &mut BTreeSet<Key>) {
        let broken = changed.iter().map(|file| &file.path);
        let broken = broken.filter(|path| self.unreadable.contains_key(*path));
        let broken: Arc<[String]> = broken.cloned().collect();
        let mut candidates = self.end_moves();
        affected.extend(candidates.iter().map(|(key, _)| key.clone()));
        if broken.is_empty() {
            return;
        }
        for Before { path, keys } in changed {
            candidates.extend(keys.into_iter().map(|key| (key, path.clone())));
        }
        for (key, from) in candidates {
            let is_gone = self.objects.contains_key(&key) && !self.places.contains_key(&key);
            // A store that removes an object says so.
            if !is_gone || step.trailers.removed.contains(&key) {
                continue;
            }
            let to = broken.clone();
            let pending = PendingMove { from, to };
            let reason = self.describe(&pending);
            self.reports.push(step.report(&key, &pending.from, &reason));
            self.moves.insert(key, pending);
        }
    }

    /// Forgets the moves of objects that have a file again, and those without a file that does not parse. Returns their objects, each with
    /// the file that it had.
    fn end_moves(&mut self) -> Vec<(Key, String)> {
        let (places, unreadable) = (&self.places, &self.unreadable);
        let mut ended = Vec::new();
        self.moves.retain(|key, pending| {
            let is_open = pending.to.iter().any(|path| unreadable.contains_key(path));
            let is_pending = is_open && !places.contains_key(key);
            if !is_pending {
                ended.push((key.clone(), std::mem::take(&mut pending.from)));
            }
            is_pending
        });
        ended
    }

    fn describe(&self, pending: &PendingMove) -> String {
        let problem = pending.to.iter().find_map(|path| {
            let reason = self.problem(path)?;
            Some(format!("{path} does not parse: {reason}"))
        });
        let problem = problem.unwrap_or_default();
        format!("the commit takes the object out of all files, and its file {problem}")
    }

    /// Returns the reason for which an object without a file cannot be written; `None` if it can be written.
    pub(in crate::store::git) fn pending_move(&self, key: &Key) -> Option<String> {
        let pending = self.moves.get(key)?;
        let reason = self.describe(pending);
        Some(format!(
            "{key} was in {}, and is read-only: {reason}",
            pending.from
        ))
    }
}
