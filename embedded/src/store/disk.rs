//! The files around the store: private whatever was there before, and a reserve of space for a full disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::StoreError;

/// Bytes that are kept back, so that an apply in flight can store its state on a full disk.
pub(super) const RESERVE: u64 = 16 << 20;

/// An error of the system, with the path.
pub(super) fn unusable(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::File {
        path: path.display().to_string(),
        source,
    }
}

/// Opens an existing file of this user for reading and writing, and takes it away from all others.
pub(super) fn open_private(path: &Path) -> Result<File, StoreError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(unusable(path))?;
    let metadata = file.metadata().map_err(unusable(path))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(StoreError::Foreign {
            path: path.display().to_string(),
            uid: metadata.uid(),
        });
    }
    if metadata.mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))
            .map_err(unusable(path))?;
    }
    Ok(file)
}

/// Makes a private file; what has the name goes.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// The path with one more extension.
pub(super) fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

/// Makes the names in the directory of `path` durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

/// Whether an error says that no space is left.
pub(super) fn is_full(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(error) if matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    ))
}

/// A file that takes up space until the disk is full.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    held: bool,
}

impl Reserve {
    /// The reserve of the store at `path`, taken if there is room.
    pub(super) fn of(path: &Path) -> Self {
        let mut reserve = Self {
            path: beside(path, "reserve"),
            held: false,
        };
        reserve.held = fs::metadata(&reserve.path).is_ok_and(|file| file.len() == RESERVE);
        reserve.take();
        reserve
    }

    /// Whether the space is kept back.
    pub(super) const fn is_held(&self) -> bool {
        self.held
    }

    /// Gives the space to the store; false when it was given before.
    pub(super) fn release(&mut self) -> bool {
        let held = std::mem::replace(&mut self.held, false);
        if held && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the reserve cannot be released"
            );
        }
        held
    }

    /// Takes the space back once the disk has twice as much.
    pub(super) fn take(&mut self) {
        let free = rustix::fs::statvfs(self.path.parent().unwrap_or_else(|| Path::new(".")))
            .map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        if self.held || free < 2 * RESERVE {
            return;
        }
        self.held = self.fill().is_ok();
        if !self.held {
            drop(fs::remove_file(&self.path)); // part of a reserve is none
        }
    }

    fn fill(&self) -> io::Result<()> {
        let mut file = create_private(&self.path)?;
        if rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, RESERVE).is_err() {
            // A file system without allocation: a hole would keep nothing back.
            let block = vec![0_u8; 1 << 20];
            for _ in 0..RESERVE / (1 << 20) {
                file.write_all(&block)?;
            }
        }
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_released_once_and_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("objects.redb");
        let mut reserve = Reserve::of(&path);
        assert!(reserve.is_held());
        assert_eq!(fs::metadata(beside(&path, "reserve")).unwrap().len(), RESERVE);
        assert!(reserve.release());
        assert!(!reserve.release());
        assert!(!beside(&path, "reserve").exists());
        reserve.take();
        assert!(reserve.is_held());
        assert!(Reserve::of(&path).is_held(), "that of an earlier run is used");
    }
}
