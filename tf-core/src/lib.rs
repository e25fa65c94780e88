//! Code that the Terraform controller and its runner share: the formats that pass between them or are stored (bundle, plan, last
//! applied record, errored state, state copy, signed record of a run), the scanner of modules, templates, the Terraform
//! CLI, and the layout of working directories.

pub mod artifact_path;
pub mod bundle;
pub mod canonical;
pub mod chunk;
pub mod cli;
pub mod disruption;
pub mod errored_state;
pub mod last_applied;
pub mod plan;
pub mod process_lock;
pub mod record;
pub mod redaction;
pub mod run_input;
pub mod run_log;
pub mod scan;
pub mod seal;
pub mod state_copy;
pub mod state_summary;
pub mod template;
pub mod workdir;
