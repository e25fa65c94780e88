//! The nodes of the composed tree, and the walk over them.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use super::Tree;
use super::error::TreeError;
use super::layer::{Item, Layer, Leaf, list};
use crate::git::{Limits, MAX_PATH_BYTES, MAX_PENDING_PATH_BYTES, Oid, ReadError};

/// Type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file.
    File,
    /// An executable file.
    Executable,
    /// A symlink; its content is its target.
    Symlink,
}

/// One node of the composed tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// Path from the root, names joined by `/`; not necessarily UTF-8.
    pub path: Vec<u8>,
    /// Type of the node.
    pub kind: Kind,
    /// Source of the content; `None` for a directory.
    pub(super) leaf: Option<Leaf>,
    /// The tree object of a directory, if it decides everything below it.
    pub(super) tree: Option<Oid>,
    /// Limits for reading.
    pub(super) limits: Limits,
}

impl Node {
    /// Returns the size in bytes of a file or of a symlink's target; 0 for directories.
    ///
    /// # Errors
    /// The object is missing.
    pub fn size(&self) -> Result<u64, TreeError> {
        match &self.leaf {
            None => Ok(0),
            Some(Leaf::Object { checkout, id, .. }) => Ok(checkout.size(*id)?),
            Some(Leaf::File { size, .. }) => Ok(*size),
        }
    }

    /// As [`Node::size`], for content that [`Node::read`] returns later.
    ///
    /// # Errors
    /// The file is larger than allowed, or missing.
    pub(crate) fn allowed_size(&self) -> Result<u64, TreeError> {
        match &self.leaf {
            Some(Leaf::Object { checkout, id, .. }) => Ok(checkout.allowed_size(*id)?),
            Some(Leaf::File { size, .. }) if *size > self.limits.blob_bytes => Err(self.too_large(*size)),
            _ => self.size(),
        }
    }

    /// Returns the largest size that [`Node::allowed_size`] allows.
    pub(crate) const fn limit(&self) -> u64 {
        self.limits.blob_bytes
    }

    /// Returns the name of the object that has the content, if it is in a mirror.
    pub(crate) const fn object(&self) -> Option<Oid> {
        match &self.leaf {
            Some(Leaf::Object { id, .. }) => Some(*id),
            _ => None,
        }
    }

    /// Returns the tree object of a directory, if path and object decide everything below it.
    pub(crate) const fn tree(&self) -> Option<Oid> {
        self.tree
    }
}

/// A step of a walk.
#[derive(Debug)]
pub(crate) enum Visit {
    /// A node.
    Node(Node),
    /// The end of the last directory with [`Node::tree`] that has not ended yet.
    Leave {
        /// Number of items in it and below it.
        items: u64,
    },
}

/// Directories that an earlier walk visited. A walk returns each of them before it lists it, so that [`Nodes::skip_directory`] can omit it.
pub(crate) trait KnownTrees: Debug + Send + Sync {
    /// Whether an earlier walk returned a directory with this path and tree object.
    fn knows(&self, path: &[u8], tree: Oid) -> bool;
}

/// Iterator over a composed tree. It ends after an error.
#[derive(Debug)]
pub struct Nodes {
    limits: Limits,
    /// The directory to list next, and whether its tree object decides everything below it.
    next: Option<(Vec<Layer>, bool)>,
    levels: Vec<Level>,
    path: Vec<u8>,
    count: u64,
    /// Total length of the paths of all directories in the levels, in bytes.
    paths: usize,
    /// Directories that exist only if they are not empty.
    pending: Vec<Node>,
    /// What to return next.
    ready: VecDeque<Visit>,
    known: Option<Arc<dyn KnownTrees>>,
    /// The name of the only files to return, if not all are.
    only: Option<&'static [u8]>,
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
    /// Number of items before its own, if its tree object decides everything below it.
    before: Option<u64>,
}

impl Nodes {
    pub(super) fn new(tree: &Tree) -> Self {
        Self::below(tree, Vec::new(), tree.root())
    }

    /// Walks one directory.
    pub(super) fn below(tree: &Tree, path: Vec<u8>, layers: Vec<Layer>) -> Self {
        Self {
            limits: tree.base.checkout.limits(),
            next: Some((layers, false)),
            levels: Vec::new(),
            path,
            count: 0,
            paths: 0,
            pending: Vec::new(),
            ready: VecDeque::new(),
            known: None,
            only: None,
        }
    }

    /// Omits files and symlinks with another name, and directories that exist only because of them.
    pub(super) fn only(self, name: &'static [u8]) -> Self {
        Self {
            only: Some(name),
            ..self
        }
    }

    /// Returns each known directory before it is listed.
    pub(crate) fn knowing(self, known: Arc<dyn KnownTrees>) -> Self {
        Self {
            known: Some(known),
            ..self
        }
    }

    /// Omits everything below the known directory that was returned last. It has so many items, which count towards the limit.
    ///
    /// # Errors
    /// The tree has too many items.
    pub(crate) fn skip_directory(&mut self, items: u64) -> Result<(), TreeError> {
        self.next = None;
        self.count_items(items)
    }

    fn count_items(&mut self, items: u64) -> Result<(), TreeError> {
        self.count = self.count.saturating_add(items);
        if self.count > self.limits.entries {
            return Err(TreeError::Read(ReadError::too_many_entries(&self.limits)));
        }
        Ok(())
    }

    /// Returns the next step: as the iterator, and the end of each directory whose tree object decides everything below it.
    pub(crate) fn visit(&mut self) -> Option<Result<Visit, TreeError>> {
        let item = self.step().transpose();
        if let Some(Err(_)) = &item {
            (self.next, self.levels) = (None, Vec::new());
            self.ready.clear();
        }
        item
    }

    /// Whether there is no node.
    pub(super) fn is_empty(&mut self) -> Result<bool, TreeError> {
        Ok(self.next().transpose()?.is_none())
    }

    fn step(&mut self) -> Result<Option<Visit>, TreeError> {
        loop {
            if let Some(visit) = self.ready.pop_front() {
                return Ok(Some(visit));
            }
            if let Some((layers, is_whole)) = self.next.take() {
                self.descend(&layers, is_whole)?;
            }
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            self.path.truncate(level.path);
            if let Some((name, item)) = level.items.next() {
                self.enter(&name, item)?;
            } else {
                // Its own node is still pending if it does not exist.
                if let Some(before) = level.before
                    && self.pending.len() <= level.pending
                {
                    let items = self.count - before;
                    self.ready.push_back(Visit::Leave { items });
                }
                self.pending.truncate(level.pending);
                self.paths -= level.paths;
                self.levels.pop();
            }
        }
    }

    /// Lists a directory.
    fn descend(&mut self, layers: &[Layer], is_whole: bool) -> Result<(), TreeError> {
        let before = is_whole.then_some(self.count);
        let items = list(layers, &self.path)?;
        // Entries are counted when they are listed, because then they use memory.
        self.count_items(items.len() as u64)?;
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
            before,
        });
        Ok(())
    }

    fn enter(&mut self, name: &[u8], item: Item) -> Result<(), TreeError> {
        if matches!(item, Item::Leaf(_)) && self.only.is_some_and(|only| only != name) {
            return Ok(());
        }
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        if self.path.len() > MAX_PATH_BYTES {
            return Err(TreeError::Read(ReadError::PathTooLong(MAX_PATH_BYTES)));
        }
        let (node, exists) = match item {
            Item::Directory { layers, certain } => {
                let tree = match &layers[..] {
                    [layer] if !certain => layer.whole_tree(&self.path),
                    _ => None,
                };
                // An earlier walk returned it, so it exists.
                let known = self.known.as_deref();
                let is_known =
                    tree.is_some_and(|tree| known.is_some_and(|known| known.knows(&self.path, tree)));
                self.next = Some((layers, tree.is_some()));
                let mut node = self.node(Kind::Directory, None);
                node.tree = tree;
                (node, certain || is_known)
            }
            Item::Leaf(leaf) => (self.node(leaf.kind(), Some(leaf)), true),
        };
        self.pending.push(node);
        if exists {
            self.ready.extend(self.pending.drain(..).map(Visit::Node));
        }
        Ok(())
    }

    fn node(&self, kind: Kind, leaf: Option<Leaf>) -> Node {
        Node {
            path: self.path.clone(),
            kind,
            leaf,
            tree: None,
            limits: self.limits,
        }
    }
}

impl Iterator for Nodes {
    type Item = Result<Node, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.visit()? {
                Ok(Visit::Node(node)) => return Some(Ok(node)),
                Ok(Visit::Leave { .. }) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
