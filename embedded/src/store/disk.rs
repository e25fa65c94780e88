//! Files of the store: private permissions, and a reserve of disk space.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::StoreError;

/// Reserved bytes, so that a running apply can store its state on a full disk.
pub(super) const RESERVE: u64 = 16 << 20;

/// Adds the path to an I/O error.
pub(super) fn io_error(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::File {
        path: path.display().to_string(),
        source,
    }
}

/// Opens an existing file of this user for reading and writing, and makes it private.
pub(super) fn open_private(path: &Path) -> Result<File, StoreError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(io_error(path))?;
    let metadata = file.metadata().map_err(io_error(path))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(StoreError::Foreign {
            path: path.display().to_string(),
            uid: metadata.uid(),
        });
    }
    if metadata.mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))
            .map_err(io_error(path))?;
    }
    Ok(file)
}

/// Creates a private file; replaces an existing one.
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

/// Appends an extension to the path.
pub(super) fn with_extension(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

/// Syncs the directory of `path`, so that its entries are durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

/// Whether an error means that no space is left.
pub(super) fn is_full(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(error) if matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    ))
}

/// A file that occupies space until the disk is full.
#[derive(Debug)]
pub(super) struct SpaceReserve {
    path: PathBuf,
    allocated: bool,
}

impl SpaceReserve {
    /// Opens the reserve of the store at `path`; allocates it if there is space.
    pub(super) fn open(path: &Path) -> Self {
        let mut reserve = Self {
            path: with_extension(path, "reserve"),
            allocated: false,
        };
        reserve.allocated = fs::metadata(&reserve.path).is_ok_and(|file| file.len() == RESERVE);
        reserve.allocate();
        reserve
    }

    /// Whether the space is allocated.
    pub(super) const fn is_allocated(&self) -> bool {
        self.allocated
    }

    /// Frees the space for the store; returns false if it was already free.
    pub(super) fn release(&mut self) -> bool {
        let allocated = std::mem::replace(&mut self.allocated, false);
        if allocated && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot release the reserve"
            );
        }
        allocated
    }

    /// Allocates the space if the disk has twice as much.
    pub(super) fn allocate(&mut self) {
        let free = rustix::fs::statvfs(self.path.parent().unwrap_or_else(|| Path::new(".")))
            .map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        if self.allocated || free < 2 * RESERVE {
            return;
        }
        self.allocated = self.write_file().is_ok();
        if !self.allocated {
            drop(fs::remove_file(&self.path)); // a partial reserve is useless
        }
    }

    fn write_file(&self) -> io::Result<()> {
        let mut file = create_private(&self.path)?;
        if rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, RESERVE).is_err() {
            // Without fallocate: a sparse file would reserve nothing.
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
    fn a_reserve_is_released_once_and_allocated_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("objects.redb");
        let mut reserve = SpaceReserve::open(&path);
        assert!(reserve.is_allocated());
        assert_eq!(
            fs::metadata(with_extension(&path, "reserve")).unwrap().len(),
            RESERVE
        );
        assert!(reserve.release());
        assert!(!reserve.release());
        assert!(!with_extension(&path, "reserve").exists());
        reserve.allocate();
        assert!(reserve.is_allocated());
        assert!(
            SpaceReserve::open(&path).is_allocated(),
            "the reserve of an earlier run is reused"
        );
    }
}
