//! The files of an unpacked artifact and their digests, computed once for all stacks that read it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use sha2::{Digest, Sha256};

use super::ClosureError;

/// An unpacked artifact with the digests of its files.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
    files: BTreeMap<PathBuf, FileEntry>,
    bytes: u64,
}

/// The content and mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileEntry {
    digest: [u8; 32],
    executable: bool,
}

impl Tree {
    /// Reads all files below `root`. Only regular files count: artifacts contain no others.
    ///
    /// # Errors
    /// A file or directory cannot be read.
    pub fn read(root: &Path) -> Result<Self, ClosureError> {
        let mut tree = Self {
            root: root.to_owned(),
            files: BTreeMap::new(),
            bytes: 0,
        };
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            let entries = fs::read_dir(root.join(&folder)).map_err(unreadable(&folder))?;
            for entry in entries {
                let path = folder.join(entry.map_err(unreadable(&folder))?.file_name());
                let metadata = fs::symlink_metadata(root.join(&path)).map_err(unreadable(&path))?;
                if metadata.is_dir() {
                    open.push(path);
                } else if metadata.is_file() {
                    let digest = content(&root.join(&path)).map_err(unreadable(&path))?;
                    let executable = metadata.permissions().mode() & 0o111 != 0;
                    tree.bytes = tree.bytes.saturating_add(metadata.len());
                    tree.files.insert(path, FileEntry { digest, executable });
                }
            }
        }
        Ok(tree)
    }

    /// Returns the same files after their directory was renamed.
    #[must_use]
    pub fn moved(mut self, root: PathBuf) -> Self {
        self.root = root;
        self
    }

    /// Returns the directory of the artifact.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the size of all files in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns whether there is no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the digest over all files.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        digest(&self.files.iter().collect())
    }

    /// Returns the file at `path`, or the files below it.
    pub(super) fn below<'a>(
        &'a self,
        path: &'a Path,
    ) -> impl Iterator<Item = (&'a PathBuf, &'a FileEntry)> + use<'a> {
        // Paths are ordered by their components, so the files below a path are adjacent.
        self.files
            .range::<Path, _>((Bound::Included(path), Bound::Unbounded))
            .take_while(move |(file, _)| file.starts_with(path))
    }

    /// Returns the paths of the files directly in `folder`.
    pub(super) fn names<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a PathBuf> + use<'a> {
        self.below(folder)
            .map(|(file, _)| file)
            .filter(move |file| file.parent() == Some(folder))
    }
}

/// Hashes length-prefixed paths, modes and content digests in the order of paths.
pub(super) fn digest(files: &BTreeMap<&PathBuf, &FileEntry>) -> [u8; 32] {
    let mut all = Sha256::new();
    for (path, entry) in files {
        let name = path.as_os_str().as_encoded_bytes();
        all.update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes());
        all.update(name);
        all.update([u8::from(entry.executable)]);
        all.update(entry.digest);
    }
    all.finalize().into()
}

fn content(path: &Path) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut file = fs::File::open(path)?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            n => hash.update(&buffer[..n]),
        }
    }
}

pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> ClosureError {
    let path = path.display().to_string();
    move |source| ClosureError::Unreadable { path, source }
}
