//! One Terraform run, start to end, in a pod or as a child process.
//!
//! The controller resolves a bundle (`sluice_tf_core::bundle`); [`run`] claims the run, prepares a directory, calls the CLI, stores
//! the plan, writes outputs and reports by patching the status of its `TerraformRun`.

pub mod args;
mod providers;
pub mod run;
