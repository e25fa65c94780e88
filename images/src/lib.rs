//! The images of the controllers and of runs: their contents, packed as archives without a container engine, and their SBOMs.
//!
//! The same inputs give the same bytes: entries are sorted, times are constant, and nothing is compressed, because the output of a
//! compressor depends on its version and on the processor.

pub mod archive;
#[cfg(test)]
mod build_script_tests;
pub mod contents;
pub mod crates;
pub mod debian;
pub mod layer;
mod links;
mod loader;
pub mod pack;
pub mod spdx;
