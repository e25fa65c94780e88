//! The repo-controller: serves the kind of a pull controller of 2019. It turns each `Repo` into a GitRepository and a Terraform
//! object of the same name, and reports their commit and its run in the status of the `Repo`.
//!
//! `reconcile` reads and writes objects, and `decide` is its pure decision. Source-controller and tf-controller do the work.

mod decide;
pub mod definition;
mod program;
mod reconcile;
mod run;

pub use program::{Args, run_program};
pub use run::{CONTROLLER, run};

/// The user agent of requests to the API server, which takes the name in it as the field manager.
pub const USER_AGENT: &str = concat!("repo-controller/", env!("CARGO_PKG_VERSION"));
