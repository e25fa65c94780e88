//! The status of the run: its writer and its size limit.

pub(crate) mod size_limit;
pub(crate) mod writer;
