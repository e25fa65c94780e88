//! The Terraform or OpenTofu command line: where it is, what is typed, how it is run and what it says.
//!
//! `argv` is the words, `process` runs one command, `answer`, `lock`, `text` and `output` read its answers; `tool` finds the program,
//! `installed` is what a machine keeps of them, `known_version` what they said before. Nothing here knows Kubernetes.

pub mod answer;
pub mod argv;
pub mod environment;
pub mod installed;
pub mod known_version;
pub mod lock;
pub mod output;
pub mod process;
pub mod text;
pub mod tool;
