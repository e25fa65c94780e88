//! Runs with the embedded API (over TLS for the backend of the CLI), a real CLI, and artifacts over HTTP.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a fixture that cannot be made fails its test"
)]

mod access;
mod artifacts;
mod backends;
mod break_glass;
mod cli_wrapper;
mod committed_files;
mod early_stops;
mod environment;
mod faults;
mod forged;
mod heartbeats;
mod interruptions;
mod lifecycle;
mod locks;
mod log_parts;
mod logs;
mod outputs;
mod plans;
mod providers;
mod quoted_values;
mod required_approvals;
mod sizes;
mod state_copies;
mod up;
mod users;
mod versions;
