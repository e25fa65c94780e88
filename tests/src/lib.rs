//! The end-to-end suites, the demo and the benchmark: real git, a real kube-apiserver, the real CLI.

pub mod compatibility;
#[cfg(test)]
mod links;
pub mod program;
pub mod scenario;

use std::path::PathBuf;

/// The error of a demo or test.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Returns the path of a program of this workspace; cargo puts programs into one folder, and tests into `deps` below it.
///
/// # Errors
/// When it is not built.
pub fn binary(name: &str) -> Result<PathBuf, BoxError> {
    let own = std::env::current_exe()?;
    let folder_of_program = own.parent().unwrap_or(&own);
    let folder = if folder_of_program.ends_with("deps") {
        folder_of_program.parent().unwrap_or(folder_of_program)
    } else {
        folder_of_program
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
