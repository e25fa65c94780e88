//! Harness and suites: real git, real kube-apiserver, real CLI.

pub mod compatibility;
pub mod program;
pub mod story;

use std::path::PathBuf;

/// What ends a demo or a test.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A program of this workspace, which cargo puts beside the other programs and above the tests.
///
/// # Errors
/// When it is not built.
pub fn binary(name: &str) -> Result<PathBuf, Failed> {
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(&own);
    let folder = if beside.ends_with("deps") {
        beside.parent().unwrap_or(beside)
    } else {
        beside
    };
    let program = folder.join(name);
    if program.is_file() {
        return Ok(program);
    }
    let missing = format!(
        "{} is not built: run `cargo build --workspace --bins` first",
        program.display()
    );
    Err(missing.into())
}
