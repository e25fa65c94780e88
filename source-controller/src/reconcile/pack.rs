//! Packs a tree into an archive: loads the ignore rules, then lists every entry that they keep (`entries`). Blocks. Writes no work tree,
//! and reads only files whose segment the previous artifact does not have.

use std::io::{self, Write};

use sluice_runtime::failure::{Class, Failure};
use sluice_runtime::shutdown::Token;

use super::entries::{Earlier, Entries, rules_digest};
use super::warnings::ContentWarnings;
use crate::archive::{self, Previous, Settings, Stopped, Written};
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
    let earlier = previous.as_ref().map(|previous| Earlier::new(&previous.index));
    let files = ignore_files(tree, earlier.as_ref(), stop)?;
    let digest = rules_digest(&files, spec_ignore, tree.limits().blob_bytes);
    let rules = Rules::new(files, spec_ignore);
    let mut entries = Entries::new(tree, (&rules, &digest), earlier.as_ref(), stop);
    let mut written = archive::write(&mut entries, previous, settings, out)?;
    let (directories, mut warnings) = entries.into_parts();
    written.index = written
        .index
        .map(|index| index.with_directories(digest, directories));
    let totals = &written.totals;
    warnings.add_pointers(
        totals.notable,
        totals.first_notable.as_deref().unwrap_or_default(),
    );
    Ok((written, warnings))
}

/// Returns every ignore file of the tree; follows links inside it. Lists no directory in which the previous artifact found none.
fn ignore_files(tree: &Tree, earlier: Option<&Earlier>, stop: &Token) -> Result<Vec<IgnoreFile>, PackError> {
    let (mut files, mut remaining) = (Vec::new(), tree.limits().ignore_bytes);
    let mut patterns = tree.limits().ignore_patterns;
    let mut nodes = tree.files_named(ignore::FILE_NAME);
    if let Some(earlier) = earlier {
        nodes = nodes.knowing(earlier.known());
    }
    while let Some(node) = nodes.next() {
        if stop.is_cancelled() {
            return Err(PackError::Stopped);
        }
        let node = node?;
        if let Some(items) = earlier.and_then(|earlier| earlier.items_without_rules(&node)) {
            nodes.skip_directory(items)?;
            continue;
        }
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

/// Returns the content of a link's target. A dangling link counts as a missing file; a link out of the repository is an error.
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
