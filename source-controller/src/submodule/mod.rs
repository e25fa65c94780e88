//! Submodules as a repository describes them: the file `.gitmodules`, and where the addresses in it lead.
//!
//! Pure; `reconcile::submodules` fetches them. Everything here was written by whoever may push to the repository, so it is
//! bounded, and it never decides where credentials go beyond the host that they were given for.

mod address;
pub mod config;
mod gitmodules;

pub use address::{RelativeError, absolute, remote, same_host};
pub use gitmodules::{FILE_NAME, GitmodulesError, LARGEST_FILE, Submodule, parse};
