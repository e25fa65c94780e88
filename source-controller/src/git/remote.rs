//! A remote repository as an object names it: where, as whom, how long and how much.

use std::time::Duration;

use super::address::Address;
use super::credentials::Credentials;
use super::transport::Transport;

/// A remote repository and the terms on which it is read.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Connections, shared by everything in the process.
    pub transport: Transport,
    /// Where it is.
    pub address: Address,
    /// Who is asking.
    pub credentials: Credentials,
    /// Bound on each operation as a whole, `spec.timeout`.
    pub timeout: Duration,
    /// Bounds on what it may send.
    pub limits: Limits,
}

/// Bounds on what a remote may send. Each is generous for a repository of configuration, and set by a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one pack. Default 1 GiB.
    pub pack_bytes: u64,
    /// Objects in one pack. Default 4 million.
    pub pack_objects: u32,
    /// Bytes of one file; a file is held in memory as a whole. Default 256 MiB.
    pub blob_bytes: u64,
    /// Files and directories of one commit. Default 1 million.
    pub entries: u64,
    /// Bytes of the answer to a lookup of refs. Default 4 MiB.
    pub refs_bytes: u64,
}

/// Flag that sets [`Limits::pack_bytes`].
pub const PACK_BYTES_FLAG: &str = "--git-max-pack-bytes";
/// Flag that sets [`Limits::pack_objects`].
pub const PACK_OBJECTS_FLAG: &str = "--git-max-pack-objects";
/// Flag that sets [`Limits::blob_bytes`].
pub const BLOB_BYTES_FLAG: &str = "--git-max-blob-bytes";
/// Flag that sets [`Limits::entries`].
pub const ENTRIES_FLAG: &str = "--git-max-entries";

impl Default for Limits {
    fn default() -> Self {
        Self {
            pack_bytes: 1 << 30,
            pack_objects: 4_000_000,
            blob_bytes: 256 << 20,
            entries: 1_000_000,
            refs_bytes: 4 << 20,
        }
    }
}
