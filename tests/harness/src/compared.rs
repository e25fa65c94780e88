//! Programs that the benchmark compares with: those on the machine, or Debian's packages, unpacked but not installed. An installed
//! nginx would start as a service.

use std::path::{Path, PathBuf};

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

/// Returns the program on PATH or in the folder of servers, which is not on the PATH of every user; else that of the package with
/// its name.
fn find(name: &'static str) -> Result<PathBuf, MissingProgram> {
    let installed = Path::new("/usr/sbin").join(name);
    if let Some(program) = crate::cli::on_path(name) {
        return Ok(program);
    }
    if installed.is_file() {
        return Ok(installed);
    }
    let unpacked = packages::unpack(name, &[name], &mut |line| eprintln!("{line}"));
    let root = unpacked.map_err(|source| MissingProgram { name, source })?;
    let folders = ["usr/bin", "usr/sbin"].map(|folder| root.join(folder).join(name));
    let [usual, of_servers] = folders;
    Ok(if usual.is_file() { usual } else { of_servers })
}
