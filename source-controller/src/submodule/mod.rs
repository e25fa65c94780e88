//! Submodules of a repository: the file `.gitmodules`, and the addresses in it.
//!
//! Pure; `reconcile::submodules` fetches them. The file is untrusted, because every committer can write it. Its parsing
//! is bounded, and it can never send credentials to another host than the one they are for.

mod address;
pub mod config;
mod gitmodules;

pub use address::{LeavesHostError, absolute, is_same_host, remote};
pub use gitmodules::{FILE_NAME, GitmodulesError, MAX_FILE_BYTES, Submodule, parse};
