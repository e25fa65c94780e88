//! The walk over the composed tree.

use std::collections::VecDeque;

use super::error::TreeError;
use super::layer::{Item, Layer, Leaf, list};
use super::{Kind, Node, Tree};
use crate::git::{ENTRIES_FLAG, Limits, ReadError};

/// Longest path in bytes; Linux takes none that is longer.
const LONGEST_PATH: usize = 4096;

/// Walks a composed tree. After an error it ends.
#[derive(Debug)]
pub struct Nodes {
    limits: Limits,
    /// A directory to be listed next.
    next: Option<Vec<Layer>>,
    levels: Vec<Level>,
    path: Vec<u8>,
    count: u64,
    /// Directories that are there if anything is in them.
    pending: Vec<Node>,
    /// What comes next.
    ready: VecDeque<Node>,
}

/// A directory that is being walked.
#[derive(Debug)]
struct Level {
    items: std::vec::IntoIter<(Vec<u8>, Item)>,
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
                self.levels.push(Level {
                    items: list(&layers, &self.path)?.into_iter(),
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
                self.levels.pop();
            }
        }
    }

    fn enter(&mut self, name: &[u8], item: Item) -> Result<(), TreeError> {
        self.count += 1;
        if self.count > self.limits.entries {
            return Err(TreeError::Read(ReadError::TooManyEntries {
                limit: self.limits.entries,
                flag: ENTRIES_FLAG,
            }));
        }
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
