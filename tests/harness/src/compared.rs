//! Programs that the benchmark compares with: those on the machine, or Debian's packages, unpacked but not installed. An installed
//! nginx would start as a service.

use std::path::PathBuf;

use crate::gobuild::tools_dir;
use crate::packages::{self, PackageError};

/// A program is not available.
#[derive(Debug, thiserror::Error)]
#[error("{name} is not installed, and {source}")]
pub struct MissingProgram {
    name: &'static str,
    source: PackageError,
}

/// Finds pigz or downloads it.
///
/// # Errors
/// When it is not on the machine, and `apt-get` or `dpkg` is missing or fails.
pub fn pigz() -> Result<PathBuf, MissingProgram> {
    find("pigz")
}

/// Finds nginx or downloads it.
///
/// # Errors
/// As [`pigz`].
pub fn nginx() -> Result<PathBuf, MissingProgram> {
    find("nginx")
}

/// Returns a program that is on PATH, in the folder of servers, which is not on the PATH of every user, or already unpacked.
#[must_use]
pub fn installed(name: &str) -> Option<PathBuf> {
    let unpacked = tools_dir().join(name).join("usr");
    let folders = [
        PathBuf::from("/usr/sbin"),
        unpacked.join("bin"),
        unpacked.join("sbin"),
    ];
    let files = folders.map(|folder| folder.join(name));
    crate::cli::on_path(name).or_else(|| files.into_iter().find(|file| file.is_file()))
}

/// Finds a program or downloads the package with its name.
fn find(name: &'static str) -> Result<PathBuf, MissingProgram> {
    if let Some(program) = installed(name) {
        return Ok(program);
    }
    let unpacked = packages::unpack(name, &[name], &mut |line| eprintln!("{line}"));
    let root = unpacked.map_err(|source| MissingProgram { name, source })?;
    Ok(installed(name).unwrap_or_else(|| root.join("usr/bin").join(name)))
}
