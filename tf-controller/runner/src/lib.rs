//! One Terraform run, start to end, in a pod or as a child process.
//!
//! The controller resolves a [`bundle`]; [`run`] claims the run, prepares a directory, types the [`cli`], keeps the [`plan`],
//! writes outputs and reports by patching the status of its `TerraformRun`. [`template`] is of both sides.

pub mod applied;
pub mod args;
pub mod bundle;
pub mod canonical;
pub mod chunk;
pub mod cli;
pub mod place;
pub mod plan;
pub mod process_lock;
mod providers;
mod removal;
pub mod run;
pub mod scan;
pub mod seal;
pub mod secrets;
pub mod template;
