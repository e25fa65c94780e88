//! Looking one path up in the composed tree.

use std::collections::VecDeque;

use super::error::{TreeError, shown};
use super::layer::{Item, Layer, Leaf, list};
use super::{Kind, Node, Nodes, Tree};

/// Links that are followed in one path.
const LINKS: usize = 40;

/// What is at a path.
#[derive(Debug)]
pub(super) enum Place {
    /// Nothing.
    Nowhere,
    /// A file or a link.
    Leaf(Leaf),
    /// A directory; unless it is certain, it is there only if something is in it.
    Directory { layers: Vec<Layer>, certain: bool },
}

impl Tree {
    /// What is at exactly this path; links are not followed.
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

    /// Whether something is at this path. Links are followed, and never lead out of the tree, nor does `..`: both end
    /// at its root.
    ///
    /// # Errors
    /// The tree cannot be read, or links lead to each other.
    pub fn has(&self, path: &[u8]) -> Result<bool, TreeError> {
        let names = self.resolve(path)?;
        Ok(names.is_empty() || self.node(&names)?.is_some())
    }

    /// The names on the way to where a path leads within the tree. What is not there is taken by its text.
    pub(super) fn resolve(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, TreeError> {
        let split =
            |path: &[u8]| -> Vec<Vec<u8>> { path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect() };
        let mut ahead: VecDeque<_> = split(path).into();
        let (mut names, mut links): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
        while let Some(name) = ahead.pop_front() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    names.pop();
                    continue;
                }
                _ => names.push(name),
            }
            let Place::Leaf(leaf) = self.place(&names)? else {
                continue;
            };
            if leaf.kind() != Kind::Symlink {
                continue;
            }
            links += 1;
            if links > LINKS {
                return Err(TreeError::TooManyLinks { path: shown(path) });
            }
            let node = self.leaf(&names, leaf);
            let target = node.read()?;
            if target.starts_with(b"/") {
                names.clear();
            } else {
                names.pop();
            }
            for name in split(&target).into_iter().rev() {
                ahead.push_front(name);
            }
        }
        Ok(names)
    }

    pub(super) fn place(&self, names: &[Vec<u8>]) -> Result<Place, TreeError> {
        let mut place = Place::Directory {
            layers: self.root(),
            certain: true,
        };
        for (depth, name) in names.iter().enumerate() {
            let Place::Directory { layers, .. } = place else {
                return Ok(Place::Nowhere);
            };
            let items = list(&layers, &names[..depth].join(&b'/'))?;
            place = match items.into_iter().find(|(found, _)| found == name) {
                None => return Ok(Place::Nowhere),
                Some((_, Item::Leaf(leaf))) => Place::Leaf(leaf),
                Some((_, Item::Directory { layers, certain })) => Place::Directory { layers, certain },
            };
        }
        Ok(place)
    }

    fn node(&self, names: &[Vec<u8>]) -> Result<Option<Node>, TreeError> {
        match self.place(names)? {
            Place::Nowhere => Ok(None),
            Place::Leaf(leaf) => Ok(Some(self.leaf(names, leaf))),
            Place::Directory { layers, certain } => {
                let path = names.join(&b'/');
                let there = certain
                    || Nodes::below(self, path.clone(), layers)
                        .next()
                        .transpose()?
                        .is_some();
                Ok(there.then(|| Node {
                    path,
                    kind: Kind::Directory,
                    leaf: None,
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
            limits: self.base.checkout.limits(),
        }
    }
}
