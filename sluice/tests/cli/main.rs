//! Tests of the command line: the program in a pseudo-terminal and in a pipe, against an API with objects in known states.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this crate is tests")]

mod act;
mod away;
mod begin;
mod complete;
mod counter;
mod decide;
mod errors;
mod fixture;
mod local_plan;
mod look;
mod outputs;
mod proxy;
mod scale;
mod screen;
mod shells;
mod snapshot_cases;
mod snapshot_objects;
mod snapshots;
mod stored_logs;
mod terminal;
