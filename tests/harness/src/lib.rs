//! What the suites stand on: real git over real HTTP, a real etcd and kube-apiserver, the real command-line tools.
//!
//! Nothing here imports a controller, so every crate of the workspace may use it in its tests. Whatever is started
//! listens on loopback at a port the kernel chose, and ends with the value that started it.

pub mod canary;
pub mod cli;
pub mod closed;
pub mod cluster;
pub mod git;
pub mod gobuild;
pub mod gpg;
mod process;
pub mod proxy;
pub mod sample;
pub mod skip;
pub mod ssh;
pub mod ssh_key;
pub mod tls;
pub mod trial;
