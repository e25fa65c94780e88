//! What controller and runner of the Terraform side share: the formats that pass between them or are stored (bundle, plan, last
//! apply, errored state), the scanner of modules, templates, the Terraform CLI as a program, and the layout of working directories.

pub mod applied;
pub mod bundle;
pub mod canonical;
pub mod chunk;
pub mod cli;
pub mod errored_state;
pub mod place;
pub mod plan;
pub mod pod;
pub mod process_lock;
pub mod removal;
pub mod run_input;
pub mod scan;
pub mod seal;
pub mod secrets;
pub mod template;
pub mod workdir;
