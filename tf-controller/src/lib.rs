//! The tf-controller: plans and applies Terraform objects.
//!
//! `reconcile` reconciles a stack, `decide` is its pure decision, and `executor` starts the runs, which the runner
//! (`sluice-tf-runner`) carries out.

pub mod args;
pub mod definitions;
pub mod executor;
pub mod inputs;

mod decide;
mod memory;
mod program;
mod reconcile;
mod run;
mod runs;
mod schedule;
mod sources;

pub use memory::{MeasuredMemory, MemoryQuantity, MemoryRequest, QuantityError};
pub use program::run_program;
pub use reconcile::{LocalInputsError, local_bundle};
pub use run::{Options, RunError, run};
pub use schedule::{LabelLimit, LabelLimitError, RunLimits};

/// The user agent of requests to the API server, which takes the name in it as the field manager.
pub const USER_AGENT: &str = concat!("tf-controller/", env!("CARGO_PKG_VERSION"));
