//! The source controller: fetches Git revisions and serves them as artifacts.
//!
//! The modules, in the order of a reconciliation: [`reconcile`] defines its phases; [`git`] looks up the head and
//! fetches the commit; [`identity`] obtains provider tokens; [`signature`] verifies signatures; [`submodule`] parses
//! `.gitmodules`; [`tree`] describes the files of a checkout; [`ignore`] excludes some of them; [`archive`] packs the
//! others; [`storage`] stores the archive and [`server`] serves it. [`run()`] starts the controller, for the program of
//! this crate and for programs with their own client.

pub mod archive;
pub mod git;
pub mod identity;
pub mod ignore;
pub mod options;
pub mod reconcile;
pub mod server;
pub mod signature;
pub mod storage;
pub mod submodule;
pub mod tree;

mod garbage;
mod run;
mod running;
mod serving;

pub use options::Options;
pub use run::{StartError, run, run_program, run_with};
pub use running::{Running, Stop};

/// The user agent of requests to the API server, which takes the name in it as the field manager.
pub const USER_AGENT: &str = concat!("source-controller/", env!("CARGO_PKG_VERSION"));
