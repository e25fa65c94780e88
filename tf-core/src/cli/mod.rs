//! The Terraform or OpenTofu CLI, without Kubernetes.
//!
//! `tool` finds the CLI, `installed` lists the installed versions, `version_cache` remembers their versions, and `process` runs one
//! command. `preamble`, `lock`, `text` and `output` parse its output.

pub mod installed;
pub mod lock;
pub mod output;
pub mod preamble;
pub mod process;
pub mod text;
pub mod tool;
pub mod version_cache;
