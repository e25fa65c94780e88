//! Packages of providers that runs share, so that each is downloaded once.
//!
//! Nothing in the cache is trusted. A package is found by source address, version, platform and the digest (`h1:`) that the
//! dependency lock file of the run names; its bytes are digested after they were copied for the run, and the CLI does the same
//! before it uses them. So a run can put in what it likes: another run takes only what its own lock file names.

mod cache;
mod lock;
mod package;

pub(crate) use cache::ProviderCache;
pub(crate) use lock::{DIRECTORY, LockedProvider, parse};
pub(crate) use package::file_digest;
