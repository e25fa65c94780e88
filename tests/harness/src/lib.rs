//! Test infrastructure: real git over real HTTP, a real etcd and kube-apiserver, the real command-line tools.
//!
//! Nothing here imports a controller, so the tests of every crate may use it. Servers listen on loopback at a port that the
//! kernel assigns, and end with the value that started them.

pub mod admission;
pub mod azurite;
pub mod canary;
pub mod cli;
pub mod closed_port;
pub mod cluster;
pub mod compared;
pub mod control_plane;
pub mod directory;
pub mod git;
pub mod gobuild;
pub mod gpg;
pub mod kubeconfig;
pub mod leaks;
pub mod node;
mod packages;
mod process;
pub mod proxy;
pub mod sample;
pub mod shell;
pub mod skip;
pub mod ssh;
pub mod ssh_key;
pub mod terminal;
pub mod tls;
pub mod tofu_controller;
pub mod trial;
