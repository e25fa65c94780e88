//! Harness and suites: real git, real kube-apiserver, real CLI.

pub mod story;
