//! From a tree to an archive: ignore rules first, then every entry that they leave, streamed. Blocks; no work tree is
//! written, and of all files one at a time is in memory.

use std::io::{self, Write};

use sluice_runtime::failure::{Class, Failure};
use sluice_runtime::shutdown::Token;

use super::remarks::Remarks;
use crate::archive::{Algorithm, Archive, Totals};
use crate::git::IGNORE_BYTES_FLAG;
use crate::ignore::{self, IgnoreFile, Rules};
use crate::tree::{Kind, Node, Tree, TreeError};

/// Longest target of a link to an ignore file, in bytes.
const LONGEST_TARGET: u64 = 4096;
/// Links that are followed from one ignore file to its content.
const LINKS: usize = 8;

/// Why no archive was made.
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
        /// What is wrong with it.
        why: String,
    },
    /// The ignore files are too large together.
    #[error(
        "failed to read ignore file '{path}': the ignore files have more than {limit} bytes together; raise {flag}"
    )]
    IgnoreTooLarge {
        /// The path of the one that was too much.
        path: String,
        /// The limit.
        limit: u64,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// A path that consumers refuse to unpack.
    #[error("path {path} has a control character; rename it or leave it out with an ignore rule")]
    ControlCharacter {
        /// The path, with the character escaped.
        path: String,
    },
    /// The archive cannot be written.
    #[error("unable to archive artifact to storage: {0}")]
    Write(#[from] io::Error),
    /// The program is stopping, or the time was up.
    #[error("packing was stopped")]
    Stopped,
}

impl Failure for PackError {
    fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            // A new commit mends it, which is noticed by looking again.
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

/// Writes the archive of a tree to `out` and gives it back, with what was noticed on the way.
///
/// # Errors
/// The checkout cannot be read, an ignore file not be used, or `out` not be written; or `stop` was cancelled.
pub(super) fn pack<W: Write>(
    tree: &Tree,
    spec_ignore: Option<&str>,
    algorithm: Algorithm,
    out: W,
    stop: &Token,
) -> Result<(W, Totals, Remarks), PackError> {
    let rules = Rules::new(ignore_files(tree, stop)?, spec_ignore);
    let (mut archive, mut remarks) = (Archive::new(out, algorithm)?, Remarks::default());
    for node in tree.nodes() {
        if stop.is_cancelled() {
            return Err(PackError::Stopped);
        }
        add(&mut archive, &mut remarks, &rules, &node?)?;
    }
    let (out, totals) = archive.finish()?;
    Ok((out, totals, remarks))
}

fn add<W: Write>(
    archive: &mut Archive<W>,
    remarks: &mut Remarks,
    rules: &Rules,
    node: &Node,
) -> Result<(), PackError> {
    let directory = node.kind == Kind::Directory;
    if node.kind == Kind::Symlink || rules.excludes(&node.path, directory) {
        return Ok(());
    }
    // Consumers refuse the whole archive for one such name.
    if node.path.iter().any(u8::is_ascii_control) {
        return Err(PackError::ControlCharacter {
            path: format!("\"{}\"", node.path.escape_ascii()),
        });
    }
    if directory {
        remarks.look(&node.path, b"");
        archive.directory(&node.path)?;
    } else {
        let content = node.read()?;
        remarks.look(&node.path, &content);
        archive.file(&node.path, node.kind == Kind::Executable, &content)?;
    }
    Ok(())
}

/// Every ignore file of the tree, links to one inside it followed.
fn ignore_files(tree: &Tree, stop: &Token) -> Result<Vec<IgnoreFile>, PackError> {
    let (mut files, mut left) = (Vec::new(), tree.limits().ignore_bytes);
    for node in tree.nodes() {
        if stop.is_cancelled() {
            return Err(PackError::Stopped);
        }
        let node = node?;
        let (directory, name) = split(&node.path);
        // What an overlay has of another repository's administration is none of this one's.
        if name != ignore::FILE_NAME || directory.split(|b| *b == b'/').any(|part| part == b".git") {
            continue;
        }
        let content = match node.kind {
            Kind::File | Kind::Executable => Some(read(tree, &node, left)?),
            Kind::Symlink => follow(tree, &node, left)?,
            Kind::Directory => None,
        };
        let directory = directory.to_vec();
        left -= content.as_ref().map_or(0, |content| content.len() as u64);
        files.extend(content.map(|content| IgnoreFile { directory, content }));
    }
    Ok(files)
}

/// An ignore file, of which `left` bytes may be read.
fn read(tree: &Tree, node: &Node, left: u64) -> Result<Vec<u8>, PackError> {
    if node.size()? > left {
        return Err(PackError::IgnoreTooLarge {
            path: lossy(&node.path),
            limit: tree.limits().ignore_bytes,
            flag: IGNORE_BYTES_FLAG,
        });
    }
    Ok(node.read()?.to_vec())
}

/// The content behind a link. A link that leads nowhere counts as no file; one that leads out of the repository fails.
fn follow(tree: &Tree, link: &Node, left: u64) -> Result<Option<Vec<u8>>, PackError> {
    let failed = |why: &str| PackError::Ignore {
        path: lossy(&link.path),
        why: why.to_owned(),
    };
    let mut at = link.clone();
    for _ in 0..LINKS {
        if at.size()? > LONGEST_TARGET {
            return Err(failed("its target is too long"));
        }
        let path = joined(split(&at.path).0, &at.read()?);
        let path = path.ok_or_else(|| failed("it links out of the repository"))?;
        match tree.find(&path)? {
            Some(found) if found.kind == Kind::Symlink => at = found,
            Some(found) if matches!(found.kind, Kind::File | Kind::Executable) => {
                return read(tree, &found, left).map(Some);
            }
            _ => return Ok(None),
        }
    }
    Err(failed("too many links"))
}

/// Joins a link's target to its directory, by its text alone; nothing if it is absolute or climbs above the root.
fn joined(directory: &[u8], target: &[u8]) -> Option<Vec<u8>> {
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

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn a_link_stays_in_the_repository_or_is_none() {
        for (directory, target, wanted) in [
            ("", "a", Some("a")),
            ("a/b", "../c", Some("a/c")),
            ("a", "./b//c", Some("a/b/c")),
            ("a", "..", Some("")),
            ("a", "../../b", None),
            ("", "..", None),
            ("a", "/etc/passwd", None),
        ] {
            assert_eq!(
                joined(directory.as_bytes(), target.as_bytes()).as_deref(),
                wanted.map(str::as_bytes)
            );
        }
    }
}
