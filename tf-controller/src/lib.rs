//! The apply controller: artifact revisions become plans and applies.
//!
//! `reconcile` runs the passes, `decide` is the pure decision, `executor` is where runs are carried out. The runs
//! themselves are `sluice-tf-runner`'s.

pub mod args;
pub mod decide;
pub mod definitions;
pub mod executor;
pub mod inputs;
pub mod reconcile;
pub mod schedule;

mod program;
mod run;
mod runs;
mod sources;

pub use program::run_program;
pub use run::{Options, RunError, run};
