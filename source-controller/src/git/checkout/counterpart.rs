//! The tree of an earlier commit beside that of a later one.

use std::cmp::Ordering;

use git2::Oid;

use crate::git::object::{Kind, tree_entries};

/// A tree of an earlier commit, walked in parallel with another one. Git writes both in the same order, so this needs
/// no memory; entries out of order are not found.
pub(super) struct Counterpart<'a> {
    tree: Option<(Oid, &'a [u8])>,
    /// Position of the next entry.
    offset: usize,
}

impl<'a> Counterpart<'a> {
    pub(super) const fn new(tree: Option<(Oid, &'a [u8])>) -> Self {
        Self { tree, offset: 0 }
    }

    /// Returns the entry of this name, if it has the same type: directory or not.
    pub(super) fn find(&mut self, name: &[u8], kind: Kind) -> Option<(Kind, Oid)> {
        let (tree, raw) = self.tree?;
        let rest = raw.get(self.offset..)?;
        for entry in tree_entries(tree, rest) {
            let entry = entry.ok()?;
            let found = &rest[entry.name.clone()];
            let next = self.offset + entry.name.end + 21;
            match sort_key(found, entry.kind).cmp(sort_key(name, kind)) {
                Ordering::Less => self.offset = next,
                Ordering::Equal => {
                    self.offset = next;
                    return Some((entry.kind, entry.id));
                }
                Ordering::Greater => return None,
            }
        }
        None
    }
}

/// Returns Git's sort key of an entry: directories sort as if their names ended in a slash.
fn sort_key(name: &[u8], kind: Kind) -> impl Iterator<Item = &u8> {
    let slash: &[u8] = if kind == Kind::Directory { b"/" } else { b"" };
    name.iter().chain(slash)
}
