//! A remote repository as an object specifies it: address, credentials, timeout and limits.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sluice_runtime::http::Proxy;

use super::address::Address;
use super::credentials::{Credentials, hash_parts};
use super::error::FetchError;
use super::tls::Tls;
use super::transport::Transport;

/// A remote repository and the settings with which it is read.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Connections, shared by the whole process.
    pub transport: Transport,
    /// Address of the repository.
    pub address: Address,
    /// Credentials sent to the server.
    pub credentials: Credentials,
    /// Trusted authorities and client certificate for TLS.
    pub tls: Arc<Tls>,
    /// The object's own proxy; without one, the process's environment decides.
    pub proxy: Option<Arc<Proxy>>,
    /// Limit for each operation as a whole, `spec.timeout`.
    pub timeout: Duration,
    /// Limits on what the server may send.
    pub limits: Limits,
    /// The object for which the remote is read.
    pub owner: Owner,
}

/// The object for which a remote is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The namespace of the object.
    pub namespace: String,
    /// Digest of the name and uid of the API object that provides the credentials, if any. It stays the same when the
    /// credentials are renewed.
    pub principal: Option<[u8; 32]>,
}

impl Remote {
    /// Runs `work` within the timeout.
    pub(super) async fn within_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FetchError> {
        // In a box: a future that is passed on by value takes its space twice.
        let result = tokio::time::timeout(self.timeout, Box::pin(work)).await;
        result.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// Returns the error of an operation that exceeded the timeout.
    pub(crate) fn timed_out(&self) -> FetchError {
        FetchError::TimedOut {
            host: self.address.host(),
            limit: self.timeout,
        }
    }

    /// Whether there are credentials or a client certificate that only the server of the address may see.
    #[must_use]
    pub(crate) fn has_credentials(&self) -> bool {
        self.credentials != Credentials::Anonymous || self.tls.identity.is_some()
    }

    /// Digest of the reader for the name of the mirror. It covers the source of the credentials, so renewed credentials
    /// find the existing mirror. All readers without credentials are equal.
    #[must_use]
    pub(crate) fn mirror_identity(&self) -> [u8; 32] {
        match self.owner.principal {
            Some(principal) if self.has_credentials() => {
                let hash = Sha256::new_with_prefix(b"principal");
                hash.chain_update(principal).finalize().into()
            }
            _ => self.credentials_digest(),
        }
    }

    /// Digest of the route for the name of the mirror: authorities and proxy, without the credentials for the proxy.
    #[must_use]
    pub(crate) fn mirror_route(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash_parts(&mut hash, [&self.tls.authorities]);
        if let Some(proxy) = &self.proxy {
            hash.update(proxy.to_string());
        }
        hash.finalize().into()
    }

    /// Whether a request must verify access before any content of a mirror is used. The mirror may have been filled by
    /// other objects or with other credentials.
    #[must_use]
    pub(crate) fn needs_access_check(&self) -> bool {
        self.owner.principal.is_some() || self.proxy.is_some()
    }

    /// Digest of the current credentials and client certificate.
    #[must_use]
    pub(crate) fn credentials_digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(self.credentials.digest());
        self.tls.hash_identity(&mut hash);
        hash.finalize().into()
    }

    /// Digest of credentials, client certificate, authorities and proxy. A server's response is valid only for readers
    /// with the same digest.
    #[must_use]
    pub(crate) fn access_digest(&self) -> [u8; 32] {
        Sha256::new_with_prefix(self.credentials_digest())
            .chain_update(self.route_digest())
            .finalize()
            .into()
    }

    /// Digest of the URL and of [`Remote::access_digest`], by which a response is kept for its readers. Shorter than the URL itself.
    #[must_use]
    pub(crate) fn access_key(&self) -> [u8; 32] {
        Sha256::new_with_prefix(self.access_digest())
            .chain_update(self.address.url().as_str())
            .finalize()
            .into()
    }

    /// Digest of the route alone: authorities and proxy, with the credentials for the proxy.
    #[must_use]
    pub(crate) fn route_digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash_parts(&mut hash, [&self.tls.authorities]);
        if let Some(proxy) = &self.proxy {
            let (name, password) = proxy.user().unwrap_or_default();
            hash_parts(&mut hash, [proxy.to_string().as_str(), name, password]);
        }
        hash.finalize().into()
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
