//! The source controller: Git revisions become served artifacts.

pub mod git;
pub mod ignore;
