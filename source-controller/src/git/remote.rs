//! A remote repository as an object names it: where, as whom, how long and how much.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sluice_runtime::http::Proxy;

use super::address::Address;
use super::credentials::Credentials;
use super::tls::Tls;
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
    /// What is trusted and shown, where TLS is spoken.
    pub tls: Arc<Tls>,
    /// The object's own proxy; without one, the process's environment decides.
    pub proxy: Option<Arc<Proxy>>,
    /// Bound on each operation as a whole, `spec.timeout`.
    pub timeout: Duration,
    /// Bounds on what it may send.
    pub limits: Limits,
    /// On whose behalf it is read.
    pub owner: Owner,
}

/// On whose behalf a remote is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The namespace of the object.
    pub namespace: String,
    /// Where its credentials come from, if from an object of the API: a digest of that object's name and uid, which stays
    /// when the credentials in it are renewed.
    pub principal: Option<[u8; 32]>,
}

impl Remote {
    /// Whether there is anything that only the address's own server may see.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        self.credentials != Credentials::Anonymous || self.tls.identity.is_some()
    }

    /// A digest of who reads, by which mirrors are named: where the credentials come from, so that renewed ones find what
    /// the old ones fetched; without credentials everybody is the same.
    #[must_use]
    pub fn identity(&self) -> [u8; 32] {
        match self.owner.principal {
            Some(principal) if self.has_credentials() => {
                let hash = Sha256::new_with_prefix(b"principal");
                hash.chain_update(principal).finalize().into()
            }
            _ => self.reader(),
        }
    }

    /// A digest of the way by which mirrors are named: authorities, and the proxy without the name and password for it.
    #[must_use]
    pub fn route(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let authorities = &self.tls.authorities;
        hash.update(authorities.len().to_be_bytes());
        hash.update(authorities);
        if let Some(proxy) = &self.proxy {
            hash.update(proxy.to_string());
        }
        hash.finalize().into()
    }

    /// Whether access must be proved by a request before anything of a mirror is given away: others, or other credentials,
    /// may have filled it.
    #[must_use]
    pub fn needs_proof(&self) -> bool {
        self.owner.principal.is_some() || self.proxy.is_some()
    }

    /// A digest that differs when whoever asks does: credentials and client certificate, as they are now.
    #[must_use]
    pub fn reader(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(self.credentials.digest());
        self.tls.identify(&mut hash);
        hash.finalize().into()
    }

    /// A digest that differs also when the way does: authorities and proxy. What a server says is believed only by
    /// those who would have asked it on the same way.
    #[must_use]
    pub fn way(&self) -> [u8; 32] {
        Sha256::new_with_prefix(self.reader())
            .chain_update(self.path())
            .finalize()
            .into()
    }

    /// A digest of the way alone, whoever asks: authorities and proxy.
    #[must_use]
    pub fn path(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let authorities = &self.tls.authorities;
        hash.update(authorities.len().to_be_bytes());
        hash.update(authorities);
        if let Some(proxy) = &self.proxy {
            let (name, password) = proxy.user().unwrap_or_default();
            for part in [proxy.to_string().as_str(), name, password] {
                hash.update(part.len().to_be_bytes());
                hash.update(part);
            }
        }
        hash.finalize().into()
    }
}

/// Bounds on what a remote may send. Each is generous for a repository of configuration, and set by a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one pack. Default 1 GiB.
    pub pack_bytes: u64,
    /// Objects in one pack, some 60 bytes of memory each. Default 2 million, twice what a commit may have.
    pub pack_objects: u32,
    /// Bytes that the objects of one pack have unpacked, those that are made more than once counted each time. Default
    /// 16 GiB.
    pub unpacked_bytes: u64,
    /// Bytes of one object that is stored as a difference, or that others are stored as differences to; such objects
    /// are held in memory, two at a time. Chains of them have at most 16 times as many bytes. Default 64 MiB.
    pub delta_bytes: u64,
    /// Bytes of one file; a file is held in memory as a whole. Default 256 MiB.
    pub blob_bytes: u64,
    /// Files and directories of one commit. Default 1 million.
    pub entries: u64,
    /// Bytes of all ignore files of one commit together. Default 1 MiB.
    pub ignore_bytes: u64,
    /// Bytes of one list of refs. Default 64 MiB: half a million tags. A list is read as it comes and not kept.
    pub refs_bytes: u64,
}

/// Flag that sets [`Limits::pack_bytes`].
pub const PACK_BYTES_FLAG: &str = "--git-max-pack-bytes";
/// Flag that sets [`Limits::pack_objects`].
pub const PACK_OBJECTS_FLAG: &str = "--git-max-pack-objects";
/// Flag that sets [`Limits::unpacked_bytes`].
pub const UNPACKED_BYTES_FLAG: &str = "--git-max-unpacked-bytes";
/// Flag that sets [`Limits::delta_bytes`].
pub const DELTA_BYTES_FLAG: &str = "--git-max-delta-bytes";
/// Flag that sets [`Limits::blob_bytes`].
pub const BLOB_BYTES_FLAG: &str = "--git-max-blob-bytes";
/// Flag that sets [`Limits::entries`].
pub const ENTRIES_FLAG: &str = "--git-max-entries";
/// Flag that sets [`Limits::ignore_bytes`].
pub const IGNORE_BYTES_FLAG: &str = "--git-max-ignore-bytes";
/// Flag that sets [`Limits::refs_bytes`].
pub const REFS_BYTES_FLAG: &str = "--git-max-refs-bytes";

impl Default for Limits {
    fn default() -> Self {
        Self {
            pack_bytes: 1 << 30,
            pack_objects: 2_000_000,
            unpacked_bytes: 16 << 30,
            delta_bytes: 64 << 20,
            blob_bytes: 256 << 20,
            entries: 1_000_000,
            ignore_bytes: 1 << 20,
            refs_bytes: 64 << 20,
        }
    }
}
