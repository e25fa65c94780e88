//! The embedded API with its clients: kube-rs clients and controllers in process, kubectl and terraform over TLS.

#![expect(clippy::unwrap_used, reason = "this crate is tests and their fixtures")]

mod apply;
mod benchmark;
mod client;
mod controller;
mod definitions;
mod discovery;
mod fixture;
mod full_disk;
mod garbage_collection;
mod git_definitions;
mod git_old_watches;
mod git_sharing;
mod git_store;
mod git_store_writers;
mod helm;
mod kubectl;
mod kubectl_apply;
mod lists;
mod response;
mod restart;
mod roles;
mod scale;
mod socket;
mod terraform;
mod watch;
mod yaml;
