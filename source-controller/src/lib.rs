//! The source controller: Git revisions become served artifacts.
//!
//! Read along a push: [`reconcile`] knows the order of a pass; [`git`] looks the head up and fetches the commit;
//! [`identity`] is who asks, [`signature`] who vouches; [`submodule`] says what belongs at its gitlinks; [`tree`] says
//! what a work tree would hold; [`ignore`] says what stays out; [`archive`] packs the rest; [`storage`] keeps the file and
//! [`server`] hands it out.
//! [`run()`] puts them together, for the program of this crate as for others that bring their own client.

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

mod run;
mod sweep;

pub use options::Options;
pub use run::{End, Running, StartError, run, run_with};
