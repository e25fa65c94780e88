//! Content of included artifacts: from this controller's storage, through a temporary directory, over the tree. Blocks.

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

/// Beginning of the names of temporary directories.
const PREFIX: &str = "flux-include-";

/// What an included artifact may hold.
#[derive(Clone, Copy, Debug)]
pub(in crate::reconcile) struct Bounds {
    /// Most files and directories.
    pub entries: u64,
}

impl Bounds {
    fn limits(self) -> artifact::Limits {
        artifact::Limits {
            entries: self.entries,
            // A path in Git may be as deep as its length of 4096 bytes allows.
            depth: 2048,
            ..artifact::Limits::default()
        }
    }
}

/// Lays the includes over the tree, in their order.
///
/// # Errors
/// The first include that cannot be had. Trying again reads its artifact anew.
pub(in crate::reconcile) fn merge(
    tree: &mut Tree,
    included: &[Included],
    storage: &dyn Storage,
    bounds: Bounds,
    stop: &Token,
) -> Result<(), IncludeError> {
    for one in included {
        let include = &one.include;
        lay(tree, one, storage, bounds, stop).map_err(|error| match error {
            CopyError::Overlay(OverlayError::Tree(source @ TreeError::TooManyLinks { .. })) => {
                IncludeError::Place {
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
        let (name, revision) = (&include.repository.name, &one.artifact.revision);
        tracing::debug!(name, revision, to = include.target_path(), "artifact included");
    }
    Ok(())
}

fn lay(
    tree: &mut Tree,
    one: &Included,
    storage: &dyn Storage,
    bounds: Bounds,
    stop: &Token,
) -> Result<(), CopyError> {
    let directory = tempfile::Builder::new()
        .prefix(PREFIX)
        .tempdir()
        .map_err(CopyError::Temporary)?;
    extract(one, storage, directory.path(), bounds, stop)?;
    let content = directory.path().join(inside(one.include.source_path()));
    let overlay = Overlay::kept_by(content, Arc::new(directory));
    Ok(tree.overlay(one.include.target_path().as_bytes(), overlay)?)
}

/// Extracts the artifact and checks that it was the one that the status names.
fn extract(
    one: &Included,
    storage: &dyn Storage,
    into: &Path,
    bounds: Bounds,
    stop: &Token,
) -> Result<(), CopyError> {
    let artifact = &one.artifact;
    let wanted: Digest = artifact
        .checksum()
        .map_err(|error| CopyError::Digest(error.to_string()))?;
    let path = ObjectDirectory::git_repository(&one.namespace, &one.include.repository.name)?
        .recorded(&artifact.path)
        .ok_or_else(|| CopyError::Foreign(artifact.path.clone()))?;
    let mut file = Hashed {
        inner: storage.open(&path)?,
        hasher: Hasher::new(wanted.algorithm()),
    };
    unpack(&mut file, into, &bounds.limits(), stop)?;
    let read_whole = io::copy(&mut file, &mut io::sink()).is_ok();
    if !read_whole || file.hasher.finish() != wanted {
        return Err(CopyError::Changed(wanted.to_string()));
    }
    Ok(())
}

/// A path within a directory that has no links in it: `..` ends at its root.
fn inside(path: &str) -> PathBuf {
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

/// A reader that computes a digest of what passes.
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
    fn no_path_leads_out() {
        for (path, wanted) in [
            ("", ""),
            ("/", ""),
            ("a/b", "a/b"),
            ("/a//b/./c/", "a/b/c"),
            ("../../../path", "path"),
            ("a/../../b", "b"),
            ("..", ""),
        ] {
            assert_eq!(inside(path), Path::new(wanted), "{path}");
        }
    }

    proptest! {
        #[test]
        fn nothing_but_names_is_left(path in "[a-c./\\\\]{0,40}") {
            let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            prop_assert!(inside(&path).components().all(plain));
        }
    }
}
