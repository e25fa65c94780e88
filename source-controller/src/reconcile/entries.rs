//! Lists the entries of an artifact. A directory that the previous artifact has, with the same tree object and under the same ignore
//! rules, is not listed again: its entries are taken from the listing of that artifact.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use sluice_runtime::shutdown::Token;

use super::pack::PackError;
use super::warnings::{ContentWarnings, is_pointer};
use crate::archive::{Body, Content, Directories, Directory, Entry, Index, Listed, Listing, Open, Run, Sink};
use crate::git::Oid;
use crate::ignore::{self, IgnoreFile, Rules};
use crate::tree::{Kind, KnownTrees, Node, Nodes, Tree, TreeError, Visit};

/// Changes with the rules that decide which entries a directory has. The version of the program belongs to them, too.
const RULES_VERSION: &str = concat!("sluice listing 1, ", env!("CARGO_PKG_VERSION"));

/// What the listing of the previous artifact offers.
pub(super) struct Earlier {
    listing: Arc<Listing>,
    rules: [u8; 32],
    directories: Arc<Directories>,
}

impl Earlier {
    pub(super) fn new(index: &Index) -> Self {
        Self {
            listing: index.listing(),
            rules: *index.rules(),
            directories: Arc::new(index.directories()),
        }
    }

    /// Returns the directories that need not be listed.
    pub(super) fn known(&self) -> Arc<dyn KnownTrees> {
        self.directories.clone()
    }

    /// Returns the number of items below a directory that has no ignore file.
    pub(super) fn items_without_rules(&self, node: &Node) -> Option<u64> {
        let found = self.directories.find(&node.path, node.tree()?.as_bytes())?;
        let directory = found.first().filter(|directory| !directory.has_rules)?;
        Some(directory.items.into())
    }
}

impl KnownTrees for Directories {
    fn knows(&self, path: &[u8], tree: Oid) -> bool {
        self.find(path, tree.as_bytes()).is_some()
    }
}

/// Returns the digest of everything beside path and tree that decides which entries a directory has. Each part is prefixed with its
/// length; an absent setting differs from an empty one.
pub(super) fn rules_digest(files: &[IgnoreFile], spec_ignore: Option<&str>, blob_bytes: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut put = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    put(RULES_VERSION.as_bytes());
    put(&blob_bytes.to_be_bytes());
    put(if spec_ignore.is_some() { &b"spec"[..] } else { b"" });
    put(spec_ignore.unwrap_or_default().as_bytes());
    for file in files {
        put(&file.directory);
        put(&file.content);
    }
    hash.finalize().into()
}

/// A directory that is being listed.
struct OpenDirectory {
    /// Its position among the recorded directories.
    at: usize,
    /// Number of warnings before it.
    warnings: u64,
}

/// The entries of a tree without its root, for [`crate::archive::write`].
pub(super) struct Entries<'a> {
    tree: &'a Tree,
    nodes: Nodes,
    rules: &'a Rules,
    earlier: Option<&'a Earlier>,
    /// Whether directories of the previous artifact have the same entries now.
    reuses_directories: bool,
    open: Open<FileContent>,
    stop: &'a Token,
    /// Number of entries, the root included.
    count: u32,
    directories: Vec<Directory>,
    levels: Vec<OpenDirectory>,
    warnings: ContentWarnings,
    failed: bool,
}

impl<'a> Entries<'a> {
    /// Lists a tree; `digest` is that of the rules.
    pub(super) fn new(
        tree: &'a Tree,
        (rules, digest): (&'a Rules, &[u8; 32]),
        earlier: Option<&'a Earlier>,
        stop: &'a Token,
    ) -> Self {
        let same_rules = earlier.filter(|earlier| earlier.rules == *digest);
        let mut nodes = tree.nodes();
        if let Some(earlier) = same_rules {
            nodes = nodes.knowing(earlier.known());
        }
        let lowest = tree.clone();
        let open = move |path: &[u8], id: &[u8], executable: bool| {
            // Another name is that of a file of an included artifact, which is never taken from a listing.
            let id = Oid::from_bytes(id).unwrap_or(Oid::ZERO_SHA1);
            FileContent(lowest.file(path, id, executable))
        };
        Self {
            tree,
            nodes,
            rules,
            earlier,
            reuses_directories: same_rules.is_some(),
            open: Arc::new(open),
            stop,
            count: 0,
            directories: Vec::new(),
            levels: Vec::new(),
            warnings: ContentWarnings::default(),
            failed: false,
        }
    }

    /// Returns the recorded directories, depth first.
    pub(super) fn into_parts(self) -> (Vec<Directory>, ContentWarnings) {
        (self.directories, self.warnings)
    }

    fn step(&mut self) -> Option<Result<Listed<FileContent>, PackError>> {
        loop {
            if self.stop.is_cancelled() {
                return Some(Err(PackError::Stopped));
            }
            if self.count == 0 {
                return Some(Ok(self.listed(Entry::directory(b"."))));
            }
            let listed = match self.nodes.visit()? {
                Ok(Visit::Node(node)) => self.visit(node),
                Ok(Visit::Leave { items }) => {
                    self.leave(items);
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            };
            if let Some(listed) = listed.transpose() {
                return Some(listed);
            }
        }
    }

    /// Returns what a node adds to the archive.
    fn visit(&mut self, node: Node) -> Result<Option<Listed<FileContent>>, PackError> {
        if let Some(tree) = node.tree() {
            if let Some(run) = self.reuse(&node.path, tree)? {
                return Ok((!run.range.is_empty()).then_some(Listed::Run(run)));
            }
            self.levels.push(OpenDirectory {
                at: self.directories.len(),
                warnings: self.warnings.unreadable(),
            });
            let directory = Directory::new(&node.path, tree.as_bytes(), self.count);
            self.directories.push(directory);
        } else if node.kind != Kind::Directory && is_ignore_file(&node.path) {
            self.mark_rules();
        }
        let Some(entry) = self.entry_of(node)? else {
            return Ok(None);
        };
        self.warnings.inspect(&entry.path);
        Ok(Some(self.listed(entry)))
    }

    /// Returns the entries of a directory that the previous artifact has.
    fn reuse(&mut self, path: &[u8], tree: Oid) -> Result<Option<Run<FileContent>>, PackError> {
        let Some(earlier) = self.earlier.filter(|_| self.reuses_directories) else {
            return Ok(None);
        };
        let Some(found) = earlier.directories.find(path, tree.as_bytes()) else {
            return Ok(None);
        };
        let [directory, ..] = found else {
            return Ok(None);
        };
        self.nodes.skip_directory(directory.items.into())?;
        for inner in found {
            let mut inner = inner.clone();
            let distance = inner.first.saturating_sub(directory.first);
            inner.first = self.count.saturating_add(distance);
            self.directories.push(inner);
        }
        if directory.has_rules {
            self.mark_rules();
        }
        self.count = self.count.saturating_add(directory.entries);
        Ok(Some(Run {
            range: directory.first..directory.first.saturating_add(directory.entries),
            open: Arc::clone(&self.open),
        }))
    }

    /// Notes that each open directory has an ignore file.
    fn mark_rules(&mut self) {
        for level in &self.levels {
            if let Some(directory) = self.directories.get_mut(level.at) {
                directory.has_rules = true;
            }
        }
    }

    /// Completes the record of the innermost directory. One with a warning has none, so that each build warns again.
    fn leave(&mut self, items: u64) {
        let Some(OpenDirectory { at, warnings }) = self.levels.pop() else {
            return;
        };
        let inner = self.directories.len().saturating_sub(at + 1);
        let Some(directory) = self.directories.get_mut(at) else {
            return;
        };
        let (Ok(items), Ok(inner)) = (u32::try_from(items), u32::try_from(inner)) else {
            self.directories.remove(at);
            return;
        };
        directory.entries = self.count.saturating_sub(directory.first);
        (directory.items, directory.inner) = (items, inner);
        if self.warnings.unreadable() != warnings {
            self.directories.remove(at);
        }
    }

    /// Counts an entry; returns its position instead if the previous artifact has it.
    fn listed(&mut self, entry: Entry<FileContent>) -> Listed<FileContent> {
        self.count += 1;
        let is_of_commit = match &entry.body {
            Body::Directory => true,
            Body::File { content, .. } => self.tree.is_file_of_commit(&content.0),
        };
        let earlier = self.earlier.filter(|_| is_of_commit);
        let found = earlier.and_then(|earlier| {
            let position = earlier.listing.find(&entry.path)?;
            earlier.listing.has(position, &entry).then_some(position)
        });
        match found {
            Some(position) => Listed::Run(Run {
                range: position..position + 1,
                open: Arc::clone(&self.open),
            }),
            None => Listed::Entry(entry),
        }
    }

    /// Returns the entry of a node; `None` if it is not packed.
    fn entry_of(&self, node: Node) -> Result<Option<Entry<FileContent>>, PackError> {
        let directory = node.kind == Kind::Directory;
        if node.kind == Kind::Symlink || self.rules.excludes(&node.path, directory) {
            return Ok(None);
        }
        // Consumers refuse the whole archive because of one such name.
        if node.path.iter().any(u8::is_ascii_control) {
            return Err(PackError::ControlCharacter {
                path: format!("\"{}\"", node.path.escape_ascii()),
            });
        }
        if directory {
            return Ok(Some(Entry::directory(&node.path)));
        }
        let object = node.object();
        let size = match object.and_then(|id| self.known_size(&node.path, id)) {
            Some(size) if size <= node.limit() => size,
            _ => node.allowed_size()?,
        };
        let id: Box<[u8]> = match object {
            Some(id) => id.as_bytes().into(),
            // A file of an included artifact has no name of its own.
            None => digest_of(&node)?,
        };
        Ok(Some(Entry {
            path: node.path.clone(),
            body: Body::File {
                executable: node.kind == Kind::Executable,
                size,
                id,
                content: FileContent(node),
            },
        }))
    }

    /// Returns the size of an object that the previous artifact has at the same path.
    fn known_size(&self, path: &[u8], id: Oid) -> Option<u64> {
        let listing = &self.earlier?.listing;
        listing.size(listing.find(path)?, id.as_bytes())
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Listed<FileContent>, PackError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.step();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

/// Returns the SHA-256 of the content of a file.
fn digest_of(node: &Node) -> Result<Box<[u8]>, TreeError> {
    let mut hash = Sha256::new();
    node.read_parts(&mut |part: &[u8]| -> Result<(), TreeError> {
        hash.update(part);
        Ok(())
    })?;
    Ok(hash.finalize().to_vec().into())
}

fn is_ignore_file(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next() == Some(ignore::FILE_NAME)
}

/// The content of a file of the tree. Git LFS pointers are notable.
pub(super) struct FileContent(Node);

impl Content for FileContent {
    type Error = PackError;

    fn read(&self, sink: Sink<'_, PackError>) -> Result<bool, PackError> {
        let (mut parts, mut is_notable) = (0_u64, false);
        self.0.read_parts(&mut |part: &[u8]| {
            parts += 1;
            is_notable = parts == 1 && is_pointer(part);
            sink(part)
        })?;
        Ok(is_notable)
    }

    fn held_bytes(&self) -> u64 {
        self.0.held_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_of_the_rules_changes_their_digest() {
        let file = |directory: &str, content: &str| IgnoreFile {
            directory: directory.into(),
            content: content.into(),
        };
        let digests = [
            rules_digest(&[], None, 1),
            rules_digest(&[], None, 2),
            rules_digest(&[], Some(""), 1),
            rules_digest(&[], Some("a"), 1),
            rules_digest(&[file("", "a")], None, 1),
            rules_digest(&[file("a", "")], None, 1),
            rules_digest(&[file("a", "a")], None, 1),
            rules_digest(&[file("a", "a"), file("b", "a")], None, 1),
        ];
        let distinct: std::collections::BTreeSet<_> = digests.iter().collect();
        assert_eq!(distinct.len(), digests.len());
    }
}
