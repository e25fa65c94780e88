//! A remote repository as an object specifies it: address, credentials, timeout and limits.

use std::ops::Deref;
use std::time::Duration;

use super::access::{Access, SharedAccess};
use super::error::FetchError;
use super::transport::Transport;

/// A remote repository and the settings with which it is read. Dereferences to its [`Access`].
#[derive(Clone, Debug)]
pub struct Remote {
    /// Connections, shared by the whole process.
    pub transport: Transport,
    /// Address of the repository, its reader and the route to it.
    pub access: SharedAccess,
    /// Limit for each operation as a whole, `spec.timeout`.
    pub timeout: Duration,
    /// Limits on what the server may send.
    pub limits: Limits,
}

impl Deref for Remote {
    type Target = SharedAccess;

    fn deref(&self) -> &SharedAccess {
        &self.access
    }
}

impl Remote {
    /// Runs `work` within the timeout. It is pinned, because a future that is passed on by value takes its space twice.
    pub(super) async fn within_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, FetchError>> + Unpin,
    ) -> Result<T, FetchError> {
        let result = tokio::time::timeout(self.timeout, work).await;
        result.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// Returns the error of an operation that exceeded the timeout.
    pub(crate) fn timed_out(&self) -> FetchError {
        FetchError::TimedOut {
            host: self.address.host(),
            limit: self.timeout,
        }
    }

    /// Returns the same remote with changed access, which has its own digests.
    #[must_use]
    pub(crate) fn with_access(self, change: impl FnOnce(&mut Access)) -> Self {
        let mut access = Access::clone(&self.access);
        change(&mut access);
        Self {
            access: access.into(),
            ..self
        }
    }
}

/// Limits on what a remote may send. The defaults suit a configuration repository; a flag sets each one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one pack. Default 1 GiB.
    pub pack_bytes: u64,
    /// Objects of one pack and their unpacked bytes. The default number of objects is twice [`Limits::entries`].
    pub pack: sluice_git_pack::Limits,
    /// Bytes of one file. It is held in memory as a whole if it is small or stored as a delta. Default 256 MiB.
    pub blob_bytes: u64,
    /// Files and directories of one commit. Default 1 million.
    pub entries: u64,
    /// Bytes of all ignore files of one commit together. Default 1 MiB.
    pub ignore_bytes: u64,
    /// Patterns in all ignore files of one commit together. Default 65,536: a pattern of two bytes takes some hundred in memory.
    pub ignore_patterns: u64,
    /// Bytes of one list of refs. Default 64 MiB, about half a million tags. The list is streamed, not stored.
    pub refs_bytes: u64,
}

/// Flag that sets [`Limits::pack_bytes`].
pub const PACK_BYTES_FLAG: &str = "--git-max-pack-bytes";
/// Flag that sets the objects of [`Limits::pack`].
pub const PACK_OBJECTS_FLAG: &str = "--git-max-pack-objects";
/// Flag that sets the unpacked bytes of [`Limits::pack`].
pub const UNPACKED_BYTES_FLAG: &str = "--git-max-unpacked-bytes";
/// Flag that sets the bytes of a deltified object in [`Limits::pack`].
pub const DELTA_BYTES_FLAG: &str = "--git-max-delta-bytes";
/// Flag that sets [`Limits::blob_bytes`].
pub const BLOB_BYTES_FLAG: &str = "--git-max-blob-bytes";
/// Flag that sets [`Limits::entries`].
pub const ENTRIES_FLAG: &str = "--git-max-entries";
/// Flag that sets [`Limits::ignore_bytes`].
pub const IGNORE_BYTES_FLAG: &str = "--git-max-ignore-bytes";
/// Flag that sets [`Limits::ignore_patterns`].
pub const IGNORE_PATTERNS_FLAG: &str = "--git-max-ignore-patterns";
/// Flag that sets [`Limits::refs_bytes`].
pub const REFS_BYTES_FLAG: &str = "--git-max-refs-bytes";

impl Default for Limits {
    fn default() -> Self {
        Self {
            pack_bytes: 1 << 30,
            pack: sluice_git_pack::Limits::default(),
            blob_bytes: 256 << 20,
            entries: 1_000_000,
            ignore_bytes: 1 << 20,
            ignore_patterns: 1 << 16,
            refs_bytes: 64 << 20,
        }
    }
}
