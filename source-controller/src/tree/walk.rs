//! The walk over the composed tree.

use std::collections::VecDeque;

use super::error::TreeError;
use super::layer::{Item, Layer, Leaf, list};
use super::{Kind, Node, Tree};
use crate::git::{Limits, MAX_PATH_BYTES, MAX_PENDING_PATH_BYTES, ReadError};

/// Iterator over a composed tree. It ends after an error.
#[derive(Debug)]
pub struct Nodes {
    limits: Limits,
    /// The directory to list next.
    next: Option<Vec<Layer>>,
    levels: Vec<Level>,
    path: Vec<u8>,
    count: u64,
    /// Total length of the paths of all directories in the levels, in bytes.
    paths: usize,
    /// Directories that exist only if they are not empty.
    pending: Vec<Node>,
    /// Nodes to return next.
    ready: VecDeque<Node>,
}

/// A directory on the current path of the walk.
#[derive(Debug)]
struct Level {
    items: std::vec::IntoIter<(Vec<u8>, Item)>,
    /// Total length of the paths of its subdirectories, in bytes.
    paths: usize,
    /// Length of its own path.
    path: usize,
    /// Number of pending directories before this one.
    pending: usize,
}

impl Nodes {
    pub(super) fn new(tree: &Tree) -> Self {
        Self::below(tree, Vec::new(), tree.root())
    }

    /// Walks one directory.
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

    /// Whether there is no node.
    pub(super) fn is_empty(&mut self) -> Result<bool, TreeError> {
        Ok(self.next().transpose()?.is_none())
    }

    fn step(&mut self) -> Result<Option<Node>, TreeError> {
        loop {
            if let Some(node) = self.ready.pop_front() {
                return Ok(Some(node));
            }
            if let Some(layers) = self.next.take() {
                let items = list(&layers, &self.path)?;
                // Entries are counted when they are listed, because then they use memory.
                self.count += items.len() as u64;
                if self.count > self.limits.entries {
                    return Err(TreeError::Read(ReadError::too_many_entries(&self.limits)));
                }
                let directories = items
                    .iter()
                    .filter(|(_, item)| matches!(item, Item::Directory { .. }));
                let paths = directories.count().saturating_mul(self.path.len());
                self.paths += paths;
                if self.paths > MAX_PENDING_PATH_BYTES {
                    return Err(TreeError::Read(ReadError::PathsTooLong(MAX_PENDING_PATH_BYTES)));
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
        if self.path.len() > MAX_PATH_BYTES {
            return Err(TreeError::Read(ReadError::PathTooLong(MAX_PATH_BYTES)));
        }
        let (node, exists) = match item {
            Item::Directory { layers, certain } => {
                self.next = Some(layers);
                (self.node(Kind::Directory, None), certain)
            }
            Item::Leaf(leaf) => (self.node(leaf.kind(), Some(leaf)), true),
        };
        self.pending.push(node);
        if exists {
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
