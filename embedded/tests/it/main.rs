//! The embedded API as its users meet it: kube-rs clients and controllers in process, kubectl and terraform on a socket.

#![expect(clippy::unwrap_used, reason = "this crate is tests and their fixtures")]

mod client;
mod collect;
mod controller;
mod fixture;
mod full_disk;
mod kubectl;
mod reply;
mod restart;
mod socket;
mod speed;
mod terraform;
mod watch;
