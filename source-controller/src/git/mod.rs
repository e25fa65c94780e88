//! Git without a `git`: the wire protocol over pooled connections, bare mirrors on disk, commits read from packs.
//!
//! A pass asks [`resolve`] which commit a [`Reference`] names, which is one small request; only if that is news does
//! [`fetch`] bring the difference into the [`Mirror`] and give a [`Checkout`], from which the archive is made. There is
//! no work tree. Nothing here knows Kubernetes.

mod address;
mod checkout;
mod credentials;
mod error;
mod fetch;
mod head;
mod index;
mod mirror;
pub mod object;
pub mod pack;
pub mod protocol;
mod reference;
mod refs;
mod remote;
mod resolve;
mod selection;
pub mod ssh;
mod threads;
mod tls;
mod transport;

pub use address::{Address, AddressError};
pub use checkout::{Blob, Checkout, Child};
pub(crate) use checkout::{LONGEST_PATH, WAITING_PATHS};
pub use credentials::{Credentials, CredentialsError};
pub use error::{AuthMethodError, FetchError, HandshakeError, ReadError, Said};
pub use fetch::{fetch, fetch_part};
pub use git2::Oid;
#[cfg(test)]
pub use head::head;
pub use head::{Head, TagRef};
pub use mirror::{Mirror, Mirrors, Room};
pub use object::{Commit, Kind};
pub use reference::{Fields, Reference};
pub use remote::{
    BLOB_BYTES_FLAG, DELTA_BYTES_FLAG, ENTRIES_FLAG, IGNORE_BYTES_FLAG, Limits, Owner, PACK_BYTES_FLAG,
    PACK_OBJECTS_FLAG, REFS_BYTES_FLAG, Remote, UNPACKED_BYTES_FLAG,
};
pub use resolve::{prove, resolve};
pub use selection::Selection;
pub use sluice_runtime::http::{Identity, Proxy, ProxyError, connect};
pub use tls::Tls;
pub(crate) use transport::Pool;
pub use transport::{Transport, TransportError};

#[cfg(test)]
mod tests;
