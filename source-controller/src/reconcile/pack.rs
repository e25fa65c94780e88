//! Packs a tree into an archive: loads the ignore rules, then lists every entry that they keep. Blocks. Writes no work tree, and reads
//! only files whose segment the previous artifact does not have.

use std::collections::HashMap;
use std::io::{self, Write};
use std::iter;

use sha2::{Digest as _, Sha256};
use sluice_runtime::failure::{Class, Failure};
use sluice_runtime::shutdown::Token;

use super::warnings::{ContentWarnings, is_pointer};
use crate::archive::{self, Body, Content, Entry, Previous, Settings, Sink, Stopped, Written};
use crate::git::{IGNORE_BYTES_FLAG, IGNORE_PATTERNS_FLAG};
use crate::ignore::{self, IgnoreFile, Rules};
use crate::tree::{Kind, Node, Tree, TreeError, lossy_path};

/// Maximum length of a link target, in bytes.
const MAX_LINK_TARGET: u64 = 4096;
/// Maximum number of links from an ignore file to its content.
const MAX_LINKS: usize = 8;

/// An error while packing.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The tree cannot be read.
    #[error("failed to read the checkout: {0}")]
    Read(#[from] TreeError),
    /// An ignore file cannot be used.
    #[error("failed to read ignore file '{path}': {why}")]
    Ignore {
        /// Its path in the repository.
        path: String,
        /// The defect.
        why: String,
    },
    /// The ignore files exceed the size limit in total.
    #[error(
        "failed to read ignore file '{path}': the ignore files have more than {limit} {unit} together; raise {flag}"
    )]
    IgnoreTooLarge {
        /// The path of the file that exceeded the limit.
        path: String,
        /// The limit.
        limit: u64,
        /// Its unit.
        unit: &'static str,
        /// The flag that sets the limit.
        flag: &'static str,
    },
    /// A path that consumers refuse to unpack.
    #[error("path {path} has a control character; rename it or exclude it with an ignore rule")]
    ControlCharacter {
        /// The path, with the character escaped.
        path: String,
    },
    /// The archive cannot be written.
    #[error("unable to archive artifact to storage: {0}")]
    Write(#[from] io::Error),
    /// The process is stopping, or the time limit was reached.
    #[error("packing was stopped")]
    Stopped,
}

impl Failure for PackError {
    fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            // A new commit can fix this; the retry detects it.
            Self::Ignore { .. }
            | Self::IgnoreTooLarge { .. }
            | Self::ControlCharacter { .. }
            | Self::Write(_)
            | Self::Stopped => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Read(error) => error.reason(),
            Self::Ignore { .. } | Self::IgnoreTooLarge { .. } => "SourceIgnoreError",
            Self::ControlCharacter { .. } => "GitOperationFailed",
            Self::Write(_) => "ArchiveOperationFailed",
            Self::Stopped => "Failed",
        }
    }
}

impl From<Stopped> for PackError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// Writes the archive of a tree to `out`. Returns it with warnings about the content.
///
/// # Errors
/// The checkout or an ignore file cannot be read, `out` cannot be written, or the build was cancelled.
pub(super) fn pack<W: Write>(
    tree: &Tree,
    spec_ignore: Option<&str>,
    previous: Option<Previous>,
    settings: &Settings<'_>,
    out: W,
) -> Result<(Written<W>, ContentWarnings), PackError> {
    let stop = settings.stop;
    let rules = Rules::new(ignore_files(tree, stop)?, spec_ignore);
    let mut warnings = ContentWarnings::default();
    let sizes = previous.as_ref().map(|previous| previous.index.sizes());
    let sizes = sizes.unwrap_or_default();
    let root = Entry::directory(b".");
    let listed = tree.nodes().filter_map(|node| {
        if stop.is_cancelled() {
            return Some(Err(PackError::Stopped));
        }
        let entry = node
            .map_err(PackError::from)
            .and_then(|node| entry_of(node, &rules, &sizes));
        if let Ok(Some(entry)) = &entry {
            warnings.inspect(&entry.path);
        }
        entry.transpose()
    });
    let written = archive::write(iter::once(Ok(root)).chain(listed), previous, settings, out)?;
    let totals = &written.totals;
    warnings.add_pointers(
        totals.notable,
        totals.first_notable.as_deref().unwrap_or_default(),
    );
    Ok((written, warnings))
}

/// Known sizes of Git objects by their names.
type Sizes = HashMap<[u8; 20], u64>;

/// Returns the entry of a node; `None` if it is not packed.
fn entry_of(node: Node, rules: &Rules, sizes: &Sizes) -> Result<Option<Entry<FileContent>>, PackError> {
    let directory = node.kind == Kind::Directory;
    if node.kind == Kind::Symlink || rules.excludes(&node.path, directory) {
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
    let known = object.and_then(|id| sizes.get(id.as_bytes()).copied());
    let size = match known {
        Some(size) if size <= node.limit() => size,
        _ => node.allowed_size()?,
    };
    let id: Box<[u8]> = match object {
        Some(id) => id.as_bytes().into(),
        // A file of an included artifact has no name of its own.
        None => Sha256::digest(&*node.read()?).to_vec().into(),
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

/// The content of a file of the tree. Git LFS pointers are notable.
struct FileContent(Node);

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
}

/// Returns every ignore file of the tree; follows links inside it.
fn ignore_files(tree: &Tree, stop: &Token) -> Result<Vec<IgnoreFile>, PackError> {
    let (mut files, mut remaining) = (Vec::new(), tree.limits().ignore_bytes);
    let mut patterns = tree.limits().ignore_patterns;
    for node in tree.files_named(ignore::FILE_NAME) {
        if stop.is_cancelled() {
            return Err(PackError::Stopped);
        }
        let node = node?;
        let (directory, name) = split(&node.path);
        // Ignore files below a `.git` directory of an overlay do not belong to this repository.
        if name != ignore::FILE_NAME || directory.split(|b| *b == b'/').any(|part| part == b".git") {
            continue;
        }
        let content = match node.kind {
            Kind::File | Kind::Executable => Some(read(tree, &node, remaining)?),
            Kind::Symlink => follow(tree, &node, remaining)?,
            Kind::Directory => None,
        };
        let Some(content) = content else { continue };
        remaining -= content.len() as u64;
        let left = patterns.checked_sub(ignore::count_patterns(&content));
        patterns = left.ok_or_else(|| PackError::IgnoreTooLarge {
            path: lossy_path(&node.path),
            limit: tree.limits().ignore_patterns,
            unit: "patterns",
            flag: IGNORE_PATTERNS_FLAG,
        })?;
        let directory = directory.to_vec();
        files.push(IgnoreFile { directory, content });
    }
    Ok(files)
}

/// Reads an ignore file of at most `remaining` bytes.
fn read(tree: &Tree, node: &Node, remaining: u64) -> Result<Vec<u8>, PackError> {
    if node.size()? > remaining {
        return Err(PackError::IgnoreTooLarge {
            path: lossy_path(&node.path),
            limit: tree.limits().ignore_bytes,
            unit: "bytes",
            flag: IGNORE_BYTES_FLAG,
        });
    }
    Ok(node.read()?.to_vec())
}

/// Returns the content of a link's target. A dangling link counts as no file; a link out of the repository is an error.
fn follow(tree: &Tree, link: &Node, remaining: u64) -> Result<Option<Vec<u8>>, PackError> {
    let failed = |why: &str| PackError::Ignore {
        path: lossy_path(&link.path),
        why: why.to_owned(),
    };
    let mut at = link.clone();
    for _ in 0..MAX_LINKS {
        if at.size()? > MAX_LINK_TARGET {
            return Err(failed("its target is too long"));
        }
        let path = resolve_link(split(&at.path).0, &at.read()?);
        let path = path.ok_or_else(|| failed("it links out of the repository"))?;
        match tree.find(&path)? {
            Some(found) if found.kind == Kind::Symlink => at = found,
            Some(found) if matches!(found.kind, Kind::File | Kind::Executable) => {
                return read(tree, &found, remaining).map(Some);
            }
            _ => return Ok(None),
        }
    }
    Err(failed("too many links"))
}

/// Joins a link's target to its directory lexically. Returns `None` if it is absolute or leaves the root.
fn resolve_link(directory: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if target.starts_with(b"/") {
        return None;
    }
    let mut parts: Vec<&[u8]> = directory
        .split(|b| *b == b'/')
        .filter(|part| !part.is_empty())
        .collect();
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    path.iter()
        .rposition(|b| *b == b'/')
        .map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::resolve_link;

    #[test]
    fn links_out_of_the_repository_are_rejected() {
        for (directory, target, expected) in [
            ("", "a", Some("a")),
            ("a/b", "../c", Some("a/c")),
            ("a", "./b//c", Some("a/b/c")),
            ("a", "..", Some("")),
            ("a", "../../b", None),
            ("", "..", None),
            ("a", "/etc/passwd", None),
        ] {
            assert_eq!(
                resolve_link(directory.as_bytes(), target.as_bytes()).as_deref(),
                expected.map(str::as_bytes)
            );
        }
    }
}
