//! Programs from Debian's packages, unpacked into cargo's target folder but not installed.
//!
//! The archive holds one version of each package, so these programs are not pinned.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::gobuild::tools_dir;

/// Packages are not available.
#[derive(Debug, thiserror::Error)]
#[error("Debian's packages {packages} could not be downloaded: {why}")]
pub struct PackageError {
    packages: String,
    why: String,
}

/// Unpacks `packages` into `<target>/tools/<name>`, once. `progress` receives lines for the terminal.
///
/// # Errors
/// When `apt-get` or `dpkg` is missing or fails.
pub(crate) fn unpack(
    name: &str,
    packages: &[&str],
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, PackageError> {
    let root = tools_dir().join(name);
    let failed = |why: String| PackageError {
        packages: packages.join(" "),
        why,
    };
    if !root.is_dir() {
        unpack_locked(&root, name, packages, progress).map_err(|error| failed(error.to_string()))?;
    }
    Ok(root)
}

/// A lock and a rename protect against concurrent test processes.
fn unpack_locked(
    root: &Path,
    name: &str,
    packages: &[&str],
    progress: &mut dyn FnMut(&str),
) -> io::Result<()> {
    fs::create_dir_all(tools_dir())?;
    let lock = File::create(tools_dir().join(format!("{name}.lock")))?;
    lock.lock()?;
    if root.is_dir() {
        return Ok(());
    }
    progress(&format!("{name}: downloading Debian's packages (once)"));
    let folder = tempfile::tempdir_in(tools_dir())?;
    sluice_images::debian::download(packages, folder.path())?;
    let unpacked = folder.path().join("root");
    for entry in fs::read_dir(folder.path())? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
        }
    }
    fs::rename(&unpacked, root)
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| io::Error::other(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name}: {}", text.trim())))
}

/// Returns the library folder of the machine's architecture below `root`, such as `usr/lib/x86_64-linux-gnu`. `library` is the
/// beginning of the name of a file in it.
pub(crate) fn library_folder(root: &Path, library: &str) -> Option<PathBuf> {
    let folders = ["usr/lib", "lib"].map(|folder| root.join(folder));
    let folders = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    let mut folders = folders.filter_map(|entry| Some(entry.ok()?.path()));
    folders.find(|folder| {
        let mut files = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        files.any(|file| file.file_name().to_string_lossy().starts_with(library))
    })
}
