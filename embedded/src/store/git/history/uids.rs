//! The uids and creation times of objects on the branch.
//!
//! A uid follows from the object and the commit before its creation. A branch can come back to that commit, so with a journal the number of
//! creations on it counts, too. This needs the uids of all objects that were ever created, 16 bytes each and the space of the table, and no
//! bound of them is right: any earlier commit can come back, and only a replay of the whole history could count the creations on it, because
//! Git does not say which files were valid objects. Uids that are forgotten would be given again, to other objects. Without a journal no
//! commit comes back: a rewritten branch is another history.

use git2::Oid;
use uuid::Uuid;

use super::History;
use crate::store::file::Identity;
use crate::store::git::admit;
use crate::store::git::kinds::Kinds;
use crate::store::git::step::Step;
use crate::store::state::Key;

impl History {
    /// Returns the uid of an object that the commit after `base` creates. It was created on `base` before if the branch came back to that
    /// commit: then it has another uid. No other uid differs from those of earlier versions, which did not count: objects on this machine
    /// name their owners by it.
    fn new_uid(&self, key: &Key, base: Option<Oid>) -> Uuid {
        let mut creations = 0;
        loop {
            let uid = admit::uid(key, base, creations);
            if !self.created.contains(&uid) {
                return uid;
            }
            creations += 1;
        }
    }

    /// Returns the identity of an object that the next commit creates: the one that a start reads from it.
    pub(in crate::store::git) fn next_identity(&self, kinds: &Kinds, key: &Key, time: i64) -> Identity {
        let uid = if kinds.is_in_journal(key) {
            admit::uid(key, self.newest_entry(), 0)
        } else {
            self.new_uid(key, self.head)
        };
        self.known_identity(uid, time)
    }

    /// Returns the identity of an object that a commit creates.
    pub(super) fn identity(&mut self, step: &Step<'_>, key: &Key) -> Identity {
        let uid = self.new_uid(key, step.previous);
        if step.branch.has_journal() {
            self.created.insert(uid);
        }
        self.known_identity(uid, step.info.time)
    }

    /// Remembers the uid of an object that a commit of this process creates. `journal` is the commit of the journal.
    pub(super) fn remember_uid(&mut self, key: &Key, journal: Option<Oid>) {
        if journal.is_some() {
            let uid = self.new_uid(key, self.head);
            self.created.insert(uid);
        }
    }

    /// Returns the identity from before a rewrite of the history, or the one that follows from the commit.
    pub(super) fn known_identity(&self, uid: Uuid, created: i64) -> Identity {
        let uid = uid.to_string();
        self.identities.get(&uid).cloned().unwrap_or_else(|| Identity {
            created: admit::timestamp(created),
            uid,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::store::backend::{Origin, Record};
    use crate::store::git::branch::{Branch, Edits, Heads};
    use crate::store::watch_cache::ChangeType;

    const FILE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

    /// Returns the number of uids that are kept after a commit of others and one of this process, each with a new object.
    fn kept(branch: &Branch) -> usize {
        let edits = Edits::from([("a.yaml".to_owned(), Some(FILE.to_owned()))]);
        let id = branch.write(None, &edits, "test\n", 0).unwrap();
        let mut history = History::default();
        let read = history.apply(branch, &mut Kinds::new(&[]).unwrap(), id).unwrap();
        assert_eq!(read.len(), 1);
        let key = Key::new("configmaps", "default", "b");
        let written = Record {
            key: key.clone(),
            kind: ChangeType::Put,
            object: Arc::new(json!({"metadata": {"name": "b", "namespace": "default"}})),
            revision: read[0].revision + 1,
            origin: Origin::default(),
        };
        let heads = Heads {
            branch: Some(id),
            journal: branch.has_journal().then_some(id),
        };
        history.accept(
            heads,
            &[written],
            BTreeMap::from([("b.yaml".to_owned(), vec![key])]),
        );
        history.created.len()
    }

    #[test]
    fn uids_are_kept_only_with_a_journal() {
        let folder = tempfile::tempdir().unwrap();
        git2::Repository::init_bare(folder.path()).unwrap();
        let open = || Branch::open(folder.path(), "main", "").unwrap();
        assert_eq!(kept(&open()), 0);
        assert_eq!(kept(&open().with_journal()), 2);
    }
}
