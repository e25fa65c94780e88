//! The embedded API as its users meet it: kube-rs clients and controllers in process, kubectl and terraform on a socket.

mod client;
mod collect;
mod controller;
mod fixture;
mod reply;
mod restart;
mod socket;
mod watch;
