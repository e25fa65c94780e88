//! The working directories of stacks on disk: their layout, their owners and their removal.

mod cleanup;
mod quarantine;

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

pub use cleanup::{CleanupOutcome, list, remove};
pub use quarantine::{Quarantine, entries_with_prefix, remove_tree};

/// The home directory in a pod, as in tofu-controller.
const POD_HOME: &str = "/home/runner";

/// An operation on a working directory failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the working directory: {doing}: {source}")]
pub struct DirectoryError {
    /// What was attempted.
    pub doing: String,
    /// The error of the system.
    #[source]
    pub source: std::io::Error,
}

impl DirectoryError {
    /// An error that occurred while `doing` something.
    #[must_use]
    pub fn new(doing: &str, source: std::io::Error) -> Self {
        Self {
            doing: doing.to_owned(),
            source,
        }
    }
}

/// The home directory of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its path.
    pub path: PathBuf,
    /// It belongs to the stack alone and holds its mapped files. In a pod it is the home directory of the pod.
    pub is_of_stack: bool,
}

impl Home {
    /// Creates the directory if needed and returns its path.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create(&self) -> Result<&Path, DirectoryError> {
        create_private_directory(&self.path)?;
        Ok(&self.path)
    }
}

/// The module and workspace that a working directory is used for: the CLI of an earlier run may have left their state there.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkdirOwner {
    /// Module directory in the artifact.
    pub path: String,
    /// Workspace of the CLI.
    pub workspace: String,
    /// The location of the state, as the bundle names it.
    #[serde(default, rename = "place")]
    pub state_location: String,
}

impl WorkdirOwner {
    /// Reads the owner from its file; `None` where there is none.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

/// Paths of all files of one stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackPaths {
    /// The working directory.
    pub root: PathBuf,
    /// The file whose lock belongs to the process that uses the working directory.
    pub lock: PathBuf,
    /// One directory of logs for each run.
    pub logs: PathBuf,
    /// The home directory of the CLI.
    pub home: Home,
    /// The file with the [`WorkdirOwner`].
    pub owner: PathBuf,
    /// The file through which a user enters a break-glass session.
    pub break_glass: PathBuf,
    /// The lock file that `init` wrote in the last run.
    pub predicted_lock: PathBuf,
    /// Prefix of the names of scratch directories. `_` occurs in no name, so the prefix is unique to the stack.
    pub scratch_prefix: String,
    /// Prefix of the names of directories that are being removed.
    pub trash_prefix: String,
    /// Directories that cannot be removed.
    pub quarantine: Quarantine,
    /// The directory that all of these are in.
    pub parent: PathBuf,
}

impl StackPaths {
    /// Returns the paths below `work_root`; in a pod, upstream's `/tmp/<namespace>-<name>`. `_` occurs in no name, so paths of
    /// two stacks never collide.
    #[must_use]
    pub fn new(work_root: Option<&Path>, namespace: &str, name: &str) -> Self {
        let (parent, base) = match work_root {
            Some(root) => (root.to_owned(), format!("{namespace}_{name}")),
            None => (PathBuf::from("/tmp"), format!("{namespace}-{name}")),
        };
        let hidden = |suffix: &str| parent.join(format!(".{base}.{suffix}"));
        Self {
            root: parent.join(&base),
            lock: hidden("lock"),
            logs: hidden("logs"),
            home: Home {
                path: work_root.map_or_else(|| PathBuf::from(POD_HOME), |_| hidden("home")),
                is_of_stack: work_root.is_some(),
            },
            owner: hidden("tenant"),
            // In a pod there is one stack, and upstream's tools know this name.
            break_glass: match work_root {
                Some(_) => hidden("break-glass"),
                None => parent.join(".break-glass"),
            },
            predicted_lock: hidden("providers"),
            scratch_prefix: format!(".{base}_run-"),
            trash_prefix: format!(".{base}_trash-"),
            quarantine: Quarantine::new(&parent, format!(".{base}_aside-")),
            parent: parent.clone(),
        }
    }
}

/// Creates a directory, and those above it, that only its owner may enter.
///
/// # Errors
/// The directory cannot be created.
pub fn create_private_directory(path: &Path) -> Result<(), DirectoryError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|source| DirectoryError::new(&format!("make {}", path.display()), source))
}

/// Reads a file whose size is at most the limit.
///
/// # Errors
/// When it cannot be read, or is larger than the limit.
pub fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    if size <= limit {
        file.take(limit + 1).read_to_end(&mut bytes)?;
    }
    let size = size.max(bytes.len() as u64);
    if size <= limit {
        return Ok(bytes);
    }
    let name = path.file_name().unwrap_or_default().display();
    let text = format!("{name} has {size} bytes, more than the limit of {limit}");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_stacks_share_a_directory() {
        let root = Path::new("/work");
        assert_ne!(
            StackPaths::new(Some(root), "a", "b-c").root,
            StackPaths::new(Some(root), "a-b", "c").root
        );
        assert_eq!(
            StackPaths::new(None, "team", "net").root,
            Path::new("/tmp/team-net")
        );
    }

    #[test]
    fn a_file_above_its_limit_is_refused_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read_limited(&path, 4).unwrap(), b"four");
        let error = read_limited(&path, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "file has 4 bytes, more than the limit of 3");
        // Larger than any memory.
        let sparse = dir.path().join("sparse");
        File::create(&sparse).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(
            read_limited(&sparse, 9).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert_eq!(
            read_limited(&dir.path().join("none"), 9).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
