//! Looks up one path in the composed tree.

use std::collections::VecDeque;

use super::error::{TreeError, lossy_path};
use super::layer::{Item, Layer, Leaf, list};
use super::{Kind, Node, Nodes, Tree};

/// Maximum number of symlinks in one path.
const MAX_SYMLINKS: usize = 40;

/// Result of a lookup.
#[derive(Debug)]
pub(super) enum Lookup {
    /// Nothing.
    Missing,
    /// A file or a symlink.
    Leaf(Leaf),
    /// A directory. If it is not `certain`, it exists only if it is not empty.
    Directory { layers: Vec<Layer>, certain: bool },
}

impl Tree {
    /// Returns the node at exactly this path; symlinks are not followed.
    ///
    /// # Errors
    /// The tree cannot be read.
    pub fn find(&self, path: &[u8]) -> Result<Option<Node>, TreeError> {
        let names: Vec<_> = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
        self.node(&names)
    }

    /// Whether the path exists. Symlinks are followed; symlinks and `..` never leave the tree but end at its root.
    ///
    /// # Errors
    /// The tree cannot be read, or symlinks form a cycle.
    pub fn has(&self, path: &[u8]) -> Result<bool, TreeError> {
        let names = self.resolve(path)?;
        Ok(names.is_empty() || self.node(&names)?.is_some())
    }

    /// Resolves a path within the tree to its names. Missing parts are resolved lexically.
    pub(super) fn resolve(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, TreeError> {
        let split =
            |path: &[u8]| -> Vec<Vec<u8>> { path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect() };
        let mut remaining: VecDeque<_> = split(path).into();
        let (mut names, mut links): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
        while let Some(name) = remaining.pop_front() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    names.pop();
                    continue;
                }
                _ => names.push(name),
            }
            let Lookup::Leaf(leaf) = self.look_up(&names)? else {
                continue;
            };
            if leaf.kind() != Kind::Symlink {
                continue;
            }
            links += 1;
            if links > MAX_SYMLINKS {
                return Err(TreeError::TooManyLinks {
                    path: lossy_path(path),
                });
            }
            let node = self.leaf(&names, leaf);
            let target = node.read()?;
            if target.starts_with(b"/") {
                names.clear();
            } else {
                names.pop();
            }
            for name in split(&target).into_iter().rev() {
                remaining.push_front(name);
            }
        }
        Ok(names)
    }

    pub(super) fn look_up(&self, names: &[Vec<u8>]) -> Result<Lookup, TreeError> {
        let mut lookup = Lookup::Directory {
            layers: self.root(),
            certain: true,
        };
        for (depth, name) in names.iter().enumerate() {
            let Lookup::Directory { layers, .. } = lookup else {
                return Ok(Lookup::Missing);
            };
            let items = list(&layers, &names[..depth].join(&b'/'))?;
            lookup = match items.into_iter().find(|(found, _)| found == name) {
                None => return Ok(Lookup::Missing),
                Some((_, Item::Leaf(leaf))) => Lookup::Leaf(leaf),
                Some((_, Item::Directory { layers, certain })) => Lookup::Directory { layers, certain },
            };
        }
        Ok(lookup)
    }

    fn node(&self, names: &[Vec<u8>]) -> Result<Option<Node>, TreeError> {
        match self.look_up(names)? {
            Lookup::Missing => Ok(None),
            Lookup::Leaf(leaf) => Ok(Some(self.leaf(names, leaf))),
            Lookup::Directory { layers, certain } => {
                let path = names.join(&b'/');
                let exists = certain || !Nodes::below(self, path.clone(), layers).is_empty()?;
                Ok(exists.then(|| Node {
                    path,
                    kind: Kind::Directory,
                    leaf: None,
                    tree: None,
                    limits: self.base.checkout.limits(),
                }))
            }
        }
    }

    fn leaf(&self, names: &[Vec<u8>], leaf: Leaf) -> Node {
        Node {
            path: names.join(&b'/'),
            kind: leaf.kind(),
            leaf: Some(leaf),
            tree: None,
            limits: self.base.checkout.limits(),
        }
    }
}
