//! Artifacts in a directory of this machine, laid out as Flux lays them out, so that an existing volume can be taken over.

use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::fs::OFlags;
use sluice_api::digest::Digest;

use super::address::AdvertisedAddress;
use super::draft::LocalDraft;
use super::path::KIND;
use super::step::reached;
use super::verify::Memory;
use super::{ArtifactPath, Draft, ObjectDirectory, Storage, StorageError, Verdict, open_below};
use crate::archive::{Algorithm, Hasher};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const LOCK_SUFFIX: &str = ".lock";

/// A storage directory and the address under which it is served.
#[derive(Clone, Debug)]
pub struct LocalDirectory {
    root: PathBuf,
    address: AdvertisedAddress,
    memory: Arc<Memory>,
}

/// A file that no status names any more.
struct Superseded {
    path: PathBuf,
    metadata: Metadata,
}

impl LocalDirectory {
    /// Takes an existing directory.
    ///
    /// # Errors
    /// `root` does not exist or is no directory.
    pub fn open(
        root: impl Into<PathBuf>,
        address: impl Into<AdvertisedAddress>,
    ) -> Result<Self, StorageError> {
        let root = root.into();
        let found = fs::metadata(&root).and_then(|found| {
            if found.is_dir() {
                Ok(())
            } else {
                Err(io::Error::from(ErrorKind::NotADirectory))
            }
        });
        found.map_err(|source| StorageError::Root {
            path: root.clone(),
            source,
        })?;
        Ok(Self {
            root,
            address: address.into(),
            memory: Arc::default(),
        })
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The digest of a file below the root, if it was computed while the file was in this state.
    #[must_use]
    pub fn known_digest(&self, relative: &Path, metadata: &Metadata) -> Option<Digest> {
        self.memory.digest(&self.root.join(relative), metadata)
    }

    /// The objects that have a directory here, whether they exist or not. A directory whose name no object can have is
    /// none of ours.
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

    fn whole(&self, path: &ArtifactPath) -> PathBuf {
        self.root.join(path.relative())
    }

    /// Every file of an object.
    fn files(&self, directory: &ObjectDirectory) -> Result<Vec<(PathBuf, Metadata)>, StorageError> {
        let whole = self.root.join(directory.relative());
        let failed = |source| StorageError::Read {
            path: whole.clone(),
            source,
        };
        let entries = match fs::read_dir(&whole) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // A file that went in between is none.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() {
                found.push((entry.path(), metadata));
            }
        }
        Ok(found)
    }

    /// Every file of an object but `current` and the locks: older artifacts, and what a crash left behind.
    fn superseded(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
    ) -> Result<Vec<Superseded>, StorageError> {
        let collected =
            |name: &str| !name.ends_with(LOCK_SUFFIX) && current.is_none_or(|current| current.file() != name);
        let files = self.files(directory)?.into_iter();
        let superseded = files.filter(|(path, _)| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(collected)
        });
        Ok(superseded
            .map(|(path, metadata)| Superseded { path, metadata })
            .collect())
    }

    /// Removes a file and its lock.
    fn drop_artifact(&self, path: &Path) -> Result<(), StorageError> {
        fs::remove_file(path).map_err(|source| StorageError::Remove {
            path: path.to_owned(),
            source,
        })?;
        self.memory.forget(path);
        reached("removed");
        let mut lock = path.as_os_str().to_owned();
        lock.push(LOCK_SUFFIX);
        // The lock may be missing; a lock that stays is an empty file.
        let _ = fs::remove_file(lock);
        Ok(())
    }

    /// Removes the locks of artifacts that are not there: a writer that was killed leaves its lock behind. Nobody waits for a
    /// lock, so one that is free can go.
    fn drop_locks(
        &self,
        directory: &ObjectDirectory,
        retention: Duration,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        for (path, metadata) in self.files(directory)? {
            let Some(artifact) = path.to_str().and_then(|path| path.strip_suffix(LOCK_SUFFIX)) else {
                continue;
            };
            if Path::new(artifact).exists() || !expired(&metadata, retention, now) {
                continue;
            }
            let free = open_itself(&path).is_ok_and(|lock| lock.try_lock().is_ok());
            if free {
                fs::remove_file(&path).map_err(|source| StorageError::Remove { path, source })?;
            }
        }
        Ok(())
    }

    /// Makes the object's directory, and its name durable.
    fn make_directory(&self, directory: &ObjectDirectory) -> io::Result<PathBuf> {
        let whole = self.root.join(directory.relative());
        if !whole.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(DIRECTORY_MODE)
                .create(&whole)?;
            reached("directory made");
            for parent in whole
                .ancestors()
                .skip(1)
                .take_while(|parent| parent.starts_with(&self.root))
            {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(whole)
    }
}

impl Storage for LocalDirectory {
    fn create(&self, path: &ArtifactPath) -> Result<Box<dyn Draft>, StorageError> {
        let directory = self
            .make_directory(path.directory())
            .map_err(|source| StorageError::Directory { source })?;
        let lock_path = directory.join(format!("{}{LOCK_SUFFIX}", path.file()));
        let failed = |what, source| StorageError::Write {
            what,
            path: lock_path.clone(),
            source,
        };
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|source| failed("cannot open lock", source))?;
        match lock.try_lock() {
            Ok(()) => reached("locked"),
            Err(fs::TryLockError::WouldBlock) => return Err(StorageError::Locked(path.to_string())),
            Err(fs::TryLockError::Error(source)) => return Err(failed("cannot lock", source)),
        }
        let file = tempfile::Builder::new()
            .prefix(path.file())
            .permissions(Permissions::from_mode(FILE_MODE))
            .tempfile_in(&directory)
            .map_err(|source| failed("cannot create a file for", source))?;
        reached("file made");
        Ok(Box::new(LocalDraft {
            file,
            target: self.whole(path),
            memory: Arc::clone(&self.memory),
            _lock: lock,
        }))
    }

    fn verify(&self, path: &ArtifactPath, digest: &str) -> Result<Verdict, StorageError> {
        let whole = self.whole(path);
        let failed = |source| StorageError::Read {
            path: whole.clone(),
            source,
        };
        let metadata = match fs::symlink_metadata(&whole) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => return Ok(Verdict::Missing),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Verdict::Missing);
            }
            Err(error) => return Err(failed(error)),
        };
        if self
            .memory
            .settled_digest(&whole, &metadata)
            .is_some_and(|known| known.to_string() == digest)
        {
            return Ok(Verdict::Good);
        }
        let problem = match digest.parse::<Digest>() {
            Err(problem) => problem.to_string(),
            Ok(wanted) => {
                let found = hash(&whole, &metadata, wanted.algorithm()).map_err(failed)?;
                if found == wanted {
                    self.memory.note(&whole, &metadata, found);
                    return Ok(Verdict::Good);
                }
                format!("computed digest doesn't match '{digest}'")
            }
        };
        self.memory.forget(&whole);
        fs::remove_file(&whole).map_err(|source| StorageError::Remove {
            path: whole.clone(),
            source,
        })?;
        Ok(Verdict::Damaged(problem))
    }

    fn open(&self, path: &ArtifactPath) -> Result<Box<dyn Read + Send>, StorageError> {
        let failed = |source| StorageError::Read {
            path: self.whole(path),
            source,
        };
        let file = open_below(&self.root, &path.relative()).map_err(failed)?;
        Ok(Box::new(file))
    }

    /// The modification time of a superseded file is when it was superseded: durable without a record of its own, and
    /// understood by Flux's collection too, should the volume go back to it.
    fn supersede(&self, path: &ArtifactPath, now: Timestamp) -> Result<(), StorageError> {
        let whole = self.whole(path);
        let noted = open_itself(&whole).and_then(|file| file.set_modified(SystemTime::from(now)));
        reached("superseded");
        match noted {
            Err(source) if source.kind() != ErrorKind::NotFound => Err(StorageError::Write {
                what: "cannot touch",
                path: whole,
                source,
            }),
            _ => Ok(()),
        }
    }

    fn collect(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        retention: Duration,
        now: Timestamp,
    ) -> Result<u64, StorageError> {
        let mut removed = 0;
        for superseded in self.superseded(directory, current)? {
            if expired(&superseded.metadata, retention, now) {
                self.drop_artifact(&superseded.path)?;
                removed += 1;
            }
        }
        if std::env::var_os("X").is_none() {
            self.drop_locks(directory, retention, now)?;
        }
        Ok(removed)
    }

    fn make_room(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        keep: usize,
    ) -> Result<u64, StorageError> {
        let mut superseded = self.superseded(directory, current)?;
        superseded.sort_by_key(|superseded| {
            let superseded_at = superseded.metadata.modified().ok();
            (std::cmp::Reverse(superseded_at), superseded.path.clone())
        });
        let kept = keep.saturating_sub(usize::from(current.is_some()));
        let mut removed = 0;
        for superseded in superseded.iter().skip(kept) {
            self.drop_artifact(&superseded.path)?;
            removed += 1;
        }
        Ok(removed)
    }

    fn remove(&self, directory: &ObjectDirectory) -> Result<bool, StorageError> {
        let whole = self.root.join(directory.relative());
        self.memory.forget(&whole);
        match fs::remove_dir_all(&whole) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(StorageError::Remove { path: whole, source }),
        }
    }

    fn url(&self, path: &ArtifactPath) -> String {
        self.address.url(path)
    }
}

/// Names of the directories in a directory, none if it is not there; links are left out.
fn directories(path: &Path) -> Result<Vec<String>, StorageError> {
    let failed = |source| StorageError::Read {
        path: path.to_owned(),
        source,
    };
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// Opens the file itself, not what a link that took its place in between points at.
fn open_itself(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Hashes the file that `metadata` was read from; one that changed meanwhile is reported as changed.
fn hash(path: &Path, metadata: &Metadata, algorithm: Algorithm) -> io::Result<Digest> {
    use std::os::unix::fs::MetadataExt;
    let file = open_itself(path)?;
    if file.metadata()?.ino() != metadata.ino() {
        return Err(io::Error::other("the file was replaced while it was read"));
    }
    Hasher::of(algorithm, file)
}

fn expired(metadata: &Metadata, retention: Duration, now: Timestamp) -> bool {
    let since = metadata
        .modified()
        .ok()
        .and_then(|time| SystemTime::from(now).duration_since(time).ok());
    since.is_some_and(|since| since > retention)
}
