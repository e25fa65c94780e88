//! The files of an unpacked artifact and their digests, taken once for all the stacks that read it.

use super::ClosureError;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs, io,
    ops::Bound,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// An unpacked artifact, and what its files hold.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
    files: BTreeMap<PathBuf, Leaf>,
    bytes: u64,
}

/// What counts of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    digest: [u8; 32],
    executable: bool,
}

impl Tree {
    /// Reads all files below `root`. Only plain files count: artifacts hold no other kind.
    ///
    /// # Errors
    /// When something cannot be read.
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
                    tree.files.insert(path, Leaf { digest, executable });
                }
            }
        }
        Ok(tree)
    }

    /// The same files after their directory was given another name.
    #[must_use]
    pub fn moved(mut self, root: PathBuf) -> Self {
        self.root = root;
        self
    }

    /// Where the artifact is unpacked.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Bytes in all files.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The digest over all files.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        digest(&self.files.iter().collect())
    }

    /// The file at `path`, or the files below it.
    pub(super) fn below<'a>(
        &'a self,
        path: &'a Path,
    ) -> impl Iterator<Item = (&'a PathBuf, &'a Leaf)> + use<'a> {
        // Paths are ordered by their components: what lies below a path stands together.
        self.files
            .range::<Path, _>((Bound::Included(path), Bound::Unbounded))
            .take_while(move |(file, _)| file.starts_with(path))
    }

    /// The names of the files that lie in `folder` itself.
    pub(super) fn names<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a PathBuf> + use<'a> {
        self.below(folder)
            .map(|(file, _)| file)
            .filter(move |file| file.parent() == Some(folder))
    }
}

/// Length-prefixed paths, modes and content digests, in the order of paths.
pub(super) fn digest(files: &BTreeMap<&PathBuf, &Leaf>) -> [u8; 32] {
    let mut all = Sha256::new();
    for (path, leaf) in files {
        let name = path.as_os_str().as_encoded_bytes();
        all.update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes());
        all.update(name);
        all.update([u8::from(leaf.executable)]);
        all.update(leaf.digest);
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
