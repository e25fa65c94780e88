//! Carries out one Terraform run, in a pod or as a child process.
//!
//! The controller resolves the bundle (`sluice_tf_core::bundle`). [`run`] claims the run, prepares a directory, calls the CLI,
//! stores the plan, writes outputs, and reports in the status of its `TerraformRun`.

pub mod args;
mod provider_cache;
pub mod run;

/// The user agent of requests to the API server, which takes the name in it as the field manager.
const USER_AGENT: &str = concat!("tf-runner/", env!("CARGO_PKG_VERSION"));
