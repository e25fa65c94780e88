//! The walk over the composed tree.

use std::collections::VecDeque;

use super::error::TreeError;
use super::layer::{Item, Layer, Leaf, list};
use super::{Kind, Node, Tree};
use crate::git::{LONGEST_PATH, Limits, ReadError, WAITING_PATHS};

/// Walks a composed tree. After an error it ends.
#[derive(Debug)]
pub struct Nodes {
    limits: Limits,
    /// A directory to be listed next.
    next: Option<Vec<Layer>>,
    levels: Vec<Level>,
    path: Vec<u8>,
    count: u64,
    /// Bytes of the paths of all directories in the levels.
    paths: usize,
    /// Directories that are there if anything is in them.
    pending: Vec<Node>,
    /// What comes next.
    ready: VecDeque<Node>,
}

/// A directory that is being walked.
#[derive(Debug)]
struct Level {
    items: std::vec::IntoIter<(Vec<u8>, Item)>,
    /// Bytes of the paths of the directories among them.
    paths: usize,
    /// Length of the directory's own path.
    path: usize,
    /// Directories that were pending before this one.
    pending: usize,
}

impl Nodes {
    pub(super) fn over(tree: &Tree) -> Self {
        Self::below(tree, Vec::new(), tree.root())
    }

    /// Over one directory alone.
    pub(super) fn below(tree: &Tree, path: Vec<u8>, layers: Vec<Layer>) -> Self {
        Self {
            limits: tree.base.checkout.limits(),
            next: Some(layers),
            levels: Vec::new(),
            path,
            count: 0,
            paths: 0,
            pending: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    fn step(&mut self) -> Result<Option<Node>, TreeError> {
        loop {
            if let Some(node) = self.ready.pop_front() {
                return Ok(Some(node));
            }
            if let Some(layers) = self.next.take() {
                let items = list(&layers, &self.path)?;
                // Counted as they are listed: that is when they take memory.
                self.count += items.len() as u64;
                if self.count > self.limits.entries {
                    return Err(TreeError::Read(ReadError::too_many_entries(&self.limits)));
                }
                let directories = items
                    .iter()
                    .filter(|(_, item)| matches!(item, Item::Directory { .. }));
                let paths = directories.count().saturating_mul(self.path.len());
                self.paths += paths;
                if self.paths > WAITING_PATHS {
                    return Err(TreeError::Read(ReadError::PathsTooLong(WAITING_PATHS)));
                }
                self.levels.push(Level {
                    items: items.into_iter(),
                    paths,
                    path: self.path.len(),
                    // Its own node, if there is one, is the last.
                    pending: self.pending.len().saturating_sub(1),
                });
            }
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            self.path.truncate(level.path);
            if let Some((name, item)) = level.items.next() {
                self.enter(&name, item)?;
            } else {
                self.pending.truncate(level.pending);
                self.paths -= level.paths;
                self.levels.pop();
            }
        }
    }

    fn enter(&mut self, name: &[u8], item: Item) -> Result<(), TreeError> {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        if self.path.len() > LONGEST_PATH {
            return Err(TreeError::Read(ReadError::PathTooLong(LONGEST_PATH)));
        }
        let (node, there) = match item {
            Item::Directory { layers, certain } => {
                self.next = Some(layers);
                (self.node(Kind::Directory, None), certain)
            }
            Item::Leaf(leaf) => (self.node(leaf.kind(), Some(leaf)), true),
        };
        self.pending.push(node);
        if there {
            self.ready.extend(self.pending.drain(..));
        }
        Ok(())
    }

    fn node(&self, kind: Kind, leaf: Option<Leaf>) -> Node {
        Node {
            path: self.path.clone(),
            kind,
            leaf,
            limits: self.limits,
        }
    }
}

impl Iterator for Nodes {
    type Item = Result<Node, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.step().transpose();
        if let Some(Err(_)) = &item {
            (self.next, self.levels) = (None, Vec::new());
            self.ready.clear();
        }
        item
    }
}
