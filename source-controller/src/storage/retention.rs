//! What a local directory holds that no status may name: objects that are gone, superseded artifacts, leftovers of
//! crashes, and locks and indexes without an artifact.

use std::fs::{self, DirEntry, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::path::{INDEX_SUFFIX, KIND, LOCK_SUFFIX, beside, open_nofollow};
use super::{ArtifactPath, LocalDirectory, ObjectDirectory, StorageError, checkpoint};

/// Retention of superseded artifacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Retention time, counted from supersession.
    pub ttl: Duration,
    /// Maximum number of artifacts per object on a full disk, including the current one.
    pub records: usize,
}

/// A file of an object.
pub(super) struct ObjectFile {
    pub(super) path: PathBuf,
    pub(super) metadata: Metadata,
}

impl ObjectFile {
    fn name(&self) -> Option<&str> {
        self.path.file_name()?.to_str()
    }

    /// Returns what its name has after that of the current artifact.
    fn suffix(&self, current: &ArtifactPath) -> Option<&str> {
        self.name()?.strip_prefix(current.file())
    }

    /// Returns whether it is a superseded artifact or a leftover of a crash: neither `current` nor a lock or an index.
    pub(super) fn is_superseded(&self, current: Option<&ArtifactPath>) -> bool {
        self.name().is_some_and(|name| {
            let is_companion = name.ends_with(LOCK_SUFFIX) || name.ends_with(INDEX_SUFFIX);
            !is_companion && current.is_none_or(|current| current.file() != name)
        })
    }
}

/// Returns whether the files are the current artifact and nothing else but its lock and its index, so that time alone makes none of them
/// superfluous.
pub(super) fn is_settled(files: &[ObjectFile], current: &ArtifactPath) -> bool {
    let is_known = |file: &ObjectFile| {
        let suffix = file.suffix(current);
        suffix.is_some_and(|suffix| matches!(suffix, "" | LOCK_SUFFIX | INDEX_SUFFIX))
    };
    files.iter().all(is_known) && files.iter().any(|file| file.suffix(current) == Some(""))
}

impl LocalDirectory {
    /// Returns the objects with a directory here, whether they still exist or not. Ignores names that are invalid for
    /// objects.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn objects(&self) -> Result<Vec<ObjectDirectory>, StorageError> {
        let mut found = Vec::new();
        for namespace in directories(&self.root.join(KIND))? {
            for name in directories(&self.root.join(KIND).join(&namespace))? {
                found.extend(ObjectDirectory::git_repository(&namespace, &name));
            }
        }
        Ok(found)
    }

    /// Returns every file of an object.
    pub(super) fn files(&self, directory: &ObjectDirectory) -> Result<Vec<ObjectFile>, StorageError> {
        let absolute = directory.below(&self.root);
        let mut found = Vec::new();
        for entry in entries(&absolute)? {
            let entry = entry?;
            // The file was removed concurrently.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() {
                let path = entry.path();
                found.push(ObjectFile { path, metadata });
            }
        }
        Ok(found)
    }

    /// Removes an artifact with its index and its lock.
    pub(super) fn remove_artifact(&self, path: &Path) -> Result<(), StorageError> {
        fs::remove_file(path).map_err(StorageError::remove(path))?;
        self.digests.remove(path);
        checkpoint("removed");
        for suffix in [INDEX_SUFFIX, LOCK_SUFFIX] {
            // Ignore a missing file; what is left is removed later.
            let _ = fs::remove_file(beside(path, suffix));
        }
        Ok(())
    }
}

/// Removes the locks and indexes of artifacts that no longer exist, which a killed process leaves behind. Locks are only tried, never
/// awaited, so removing an unlocked one is safe.
pub(super) fn remove_leftovers(
    files: &[ObjectFile],
    retention: Duration,
    now: Timestamp,
) -> Result<(), StorageError> {
    for ObjectFile { path, metadata } in files {
        let artifact_of = |suffix: &str| path.to_str().and_then(|path| path.strip_suffix(suffix));
        let lock = artifact_of(LOCK_SUFFIX);
        let Some(artifact) = lock.or_else(|| artifact_of(INDEX_SUFFIX)) else {
            continue;
        };
        if !is_expired(metadata, retention, now) || Path::new(artifact).exists() {
            continue;
        }
        let is_free = lock.is_none() || open_nofollow(path).is_ok_and(|lock| lock.try_lock().is_ok());
        if !is_free {
            continue;
        }
        match fs::remove_file(path) {
            // It may have been removed with its artifact since the list.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(StorageError::remove(path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether a file is older than the retention time.
pub(super) fn is_expired(metadata: &Metadata, retention: Duration, now: Timestamp) -> bool {
    let since = metadata
        .modified()
        .ok()
        .and_then(|time| SystemTime::from(now).duration_since(time).ok());
    since.is_some_and(|since| since > retention)
}

/// Lists a directory; empty if it does not exist.
fn entries(path: &Path) -> Result<impl Iterator<Item = Result<DirEntry, StorageError>>, StorageError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        entries => Some(entries.map_err(StorageError::read(path))?),
    };
    let entries = entries.into_iter().flatten();
    Ok(entries.map(|entry| entry.map_err(StorageError::read(path))))
}

/// Returns the names of subdirectories, without links; none if the directory does not exist.
fn directories(path: &Path) -> Result<Vec<String>, StorageError> {
    let mut names = Vec::new();
    for entry in entries(path)? {
        let entry = entry?;
        if entry.file_type().map_err(StorageError::read(path))?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}
