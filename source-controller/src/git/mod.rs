//! Git without a `git` binary: the wire protocol over pooled connections, bare mirrors on disk, commits read from
//! packs.
//!
//! A reconciliation calls [`resolve()`] to find the commit that a [`Reference`] names, which costs one small request.
//! Only if the commit changed, [`fetch()`] transfers the difference into the [`Mirror`] and returns a [`Checkout`], from
//! which the archive is built. There is no work tree and no dependency on Kubernetes.

mod access;
mod address;
mod checkout;
mod credentials;
mod error;
mod fetch;
mod large_blob;
mod lookup;
mod mirror;
pub mod object;
pub mod protocol;
mod reference;
mod refs;
mod remote;
pub mod ssh;
mod threads;
mod tls;
mod transport;

pub use access::{Access, Owner, SharedAccess};
pub use address::{Address, AddressError};
pub use checkout::{Blob, Checkout, DirectoryEntry, Selection};
pub(crate) use checkout::{MAX_PATH_BYTES, MAX_PENDING_PATH_BYTES};
pub(crate) use credentials::hash_parts;
pub use credentials::{Credentials, CredentialsError};
pub use error::{AuthMethodError, FetchError, HandshakeError, ReadError, ServerMessage};
pub use fetch::{fetch, fetch_partial};
pub use git2::Oid;
#[cfg(test)]
pub(crate) use lookup::head;
pub use lookup::{Heads, resolve, verify_access};
pub use mirror::{DiskLimits, Mirror, Mirrors};
pub(crate) use mirror::{MAX_RECOVERY_BYTES, Pieces, RecoveryStore};
pub use object::{Commit, Kind};
pub use reference::{Head, RefFields, Reference, TagRef};
pub use remote::{
    BLOB_BYTES_FLAG, DELTA_BYTES_FLAG, ENTRIES_FLAG, IGNORE_BYTES_FLAG, IGNORE_PATTERNS_FLAG, Limits,
    PACK_BYTES_FLAG, PACK_OBJECTS_FLAG, REFS_BYTES_FLAG, Remote, UNPACKED_BYTES_FLAG,
};
pub use sluice_runtime::http::{Identity, Proxy, ProxyError, connect};
pub use tls::Tls;
pub(crate) use transport::Pool;
pub use transport::{Transport, TransportError};

#[cfg(test)]
mod tests;
