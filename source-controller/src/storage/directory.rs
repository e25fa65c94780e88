//! Creates the directories of objects durably, and tells on which file system they are.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sluice_runtime::sync::lock;

use super::{LocalDirectory, ObjectDirectory, checkpoint};

const DIRECTORY_MODE: u32 = 0o700;

impl LocalDirectory {
    /// Creates the object's directory durably, and the root if a user has removed it: Flux does so, too, and nothing else would until the
    /// next start (`Storage.MkdirAll` of its source-controller).
    pub(super) fn create_directory(&self, directory: &ObjectDirectory) -> io::Result<PathBuf> {
        let absolute = directory.below(&self.root);
        if !absolute.is_dir() {
            let unsynced = self.unsynced(&absolute);
            DirBuilder::new()
                .recursive(true)
                .mode(DIRECTORY_MODE)
                .create(&absolute)?;
            checkpoint("directory created");
            for parent in unsynced {
                File::open(parent)?.sync_all()?;
            }
            let above = self.below_root(&absolute).skip(1).map(Path::to_owned);
            lock(&self.synced).extend(above);
        }
        Ok(absolute)
    }

    /// Returns a directory and those above it, up to the root, which is omitted.
    fn below_root<'a>(&self, directory: &'a Path) -> impl Iterator<Item = &'a Path> {
        directory.ancestors().take_while(move |path| **path != *self.root)
    }

    /// Returns the directories to sync after the creation of `absolute`: a name in them is new, or this process does not know that it is
    /// durable.
    pub(super) fn unsynced(&self, absolute: &Path) -> Vec<PathBuf> {
        let synced = lock(&self.synced);
        self.below_root(absolute)
            .filter(|path| !(synced.contains(*path) && path.is_dir()))
            .filter_map(|path| path.parent().map(Path::to_owned))
            .collect()
    }
}

/// Returns whether the file system is one of a local disk or of memory, where no look at a file waits for another machine.
pub(super) fn is_local_disk(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| {
        // The numbers of `linux/magic.h`, and of ZFS.
        matches!(
            found.f_type,
            0xef53 // ext2 to ext4
                | 0x5846_5342 // XFS
                | 0x9123_683e // Btrfs
                | 0xf2f5_2010 // F2FS
                | 0x2fc1_2fc1 // ZFS
                | 0x794c_7630 // overlayfs
                | 0x0102_1994 // tmpfs
        )
    })
}
