//! Copies the content of included artifacts from storage through a temporary directory over the tree. Blocks.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use sluice_api::digest::Digest;
use sluice_runtime::artifact::{self, unpack};
use sluice_runtime::shutdown::Token;

use super::{CopyError, IncludeError, Included};
use crate::archive::Hasher;
use crate::storage::{ObjectDirectory, Storage};
use crate::tree::{Overlay, OverlayError, Tree, TreeError};

/// Name prefix of temporary directories.
const TEMPORARY_PREFIX: &str = "flux-include-";

/// Overlays the includes on the tree, in order; each has at most `entries` files and directories.
///
/// # Errors
/// The first include that fails. A retry reads its artifact again.
pub(in crate::reconcile) fn merge(
    tree: &mut Tree,
    includes: &[Included],
    storage: &dyn Storage,
    entries: u64,
    stop: &Token,
) -> Result<(), IncludeError> {
    let limits = artifact::Limits {
        entries,
        // Git allows paths of 4096 bytes, so directories can be that deep.
        depth: 2048,
        ..artifact::Limits::default()
    };
    for included in includes {
        let include = &included.include;
        overlay(tree, included, storage, &limits, stop).map_err(|error| match error {
            CopyError::Overlay(OverlayError::Tree(source @ TreeError::TooManyLinks { .. })) => {
                IncludeError::Slot {
                    name: include.repository.name.clone(),
                    source,
                }
            }
            source => IncludeError::Copy {
                name: include.repository.name.clone(),
                from: include.source_path().to_owned(),
                to: include.target_path().to_owned(),
                source: Box::new(source),
            },
        })?;
        let (name, revision) = (&include.repository.name, &included.artifact.revision);
        tracing::debug!(name, revision, to = include.target_path(), "artifact included");
    }
    Ok(())
}

fn overlay(
    tree: &mut Tree,
    included: &Included,
    storage: &dyn Storage,
    limits: &artifact::Limits,
    stop: &Token,
) -> Result<(), CopyError> {
    let directory = tempfile::Builder::new()
        .prefix(TEMPORARY_PREFIX)
        .tempdir()
        .map_err(CopyError::Temporary)?;
    extract(included, storage, directory.path(), limits, stop)?;
    let content = directory
        .path()
        .join(resolve_below(included.include.source_path()));
    let overlay = Overlay::owned_by(content, Arc::new(directory));
    Ok(tree.overlay(included.include.target_path().as_bytes(), overlay)?)
}

/// Extracts the artifact and checks its content against the digest in the status.
fn extract(
    included: &Included,
    storage: &dyn Storage,
    into: &Path,
    limits: &artifact::Limits,
    stop: &Token,
) -> Result<(), CopyError> {
    let artifact = &included.artifact;
    let expected: Digest = artifact
        .checksum()
        .map_err(|error| CopyError::Digest(error.to_string()))?;
    let path = ObjectDirectory::git_repository(&included.namespace, &included.include.repository.name)?
        .recorded(&artifact.path)
        .ok_or_else(|| CopyError::Foreign(artifact.path.clone()))?;
    let mut file = Hashed {
        inner: storage.open(&path)?,
        hasher: Hasher::new(expected.algorithm()),
    };
    unpack(&mut file, into, limits, stop)?;
    let read_whole = io::copy(&mut file, &mut io::sink()).is_ok();
    if !read_whole || file.hasher.finish() != expected {
        return Err(CopyError::Changed(expected.to_string()));
    }
    Ok(())
}

/// Resolves a path below a directory without links; `..` stops at its root.
fn resolve_below(path: &str) -> PathBuf {
    let mut found = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => found.push(name),
            Component::ParentDir => drop(found.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    found
}

/// A reader that hashes everything read through it.
struct Hashed<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_path_leaves_the_directory() {
        for (path, expected) in [
            ("", ""),
            ("/", ""),
            ("a/b", "a/b"),
            ("/a//b/./c/", "a/b/c"),
            ("../../../path", "path"),
            ("a/../../b", "b"),
            ("..", ""),
        ] {
            assert_eq!(resolve_below(path), Path::new(expected), "{path}");
        }
    }

    proptest! {
        #[test]
        fn only_normal_components_remain(path in "[a-c./\\\\]{0,40}") {
            let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            prop_assert!(resolve_below(&path).components().all(plain));
        }
    }
}
