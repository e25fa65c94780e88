//! Finds `sshd`: on `PATH`, at its usual path, or in Debian's package, which is unpacked but not installed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::gobuild::tools_dir;

/// The required packages; everything else comes with the client, which `ssh-keygen` requires anyway.
const PACKAGES: [&str; 2] = ["openssh-server", "libwrap0"];

/// sshd is not available.
#[derive(Debug, thiserror::Error)]
#[error(
    "the tests of ssh need OpenSSH's server: install it (Debian: openssh-server) as /usr/sbin/sshd or on PATH; its package could not be downloaded: {0}"
)]
pub struct MissingServer(String);

/// An sshd program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) sshd: PathBuf,
    /// A folder with libraries that the machine may lack.
    pub(super) libraries: Option<PathBuf>,
    /// Lines of configuration with which an unpacked server finds its own programs.
    pub(super) configuration: Vec<String>,
}

/// Finds sshd or downloads it. `progress` receives lines for the terminal.
pub(super) fn find(progress: &mut dyn FnMut(&str)) -> Result<Program, MissingServer> {
    let installed = crate::cli::on_path("sshd").or_else(|| {
        let usual = PathBuf::from("/usr/sbin/sshd");
        usual.is_file().then_some(usual)
    });
    if let Some(sshd) = installed {
        return Ok(Program {
            sshd,
            libraries: None,
            configuration: Vec::new(),
        });
    }
    let root = tools_dir().join("sshd");
    if !root.is_dir() {
        unpack(&root, progress)?;
    }
    let mut configuration = Vec::new();
    for (part, option) in [("sshd-session", "SshdSessionPath"), ("sshd-auth", "SshdAuthPath")] {
        let file = root.join("usr/lib/openssh").join(part);
        if file.is_file() {
            configuration.push(format!("{option} {}", file.display()));
        }
    }
    let libraries = library_folder(&root.join("usr/lib"));
    Ok(Program {
        sshd: root.join("usr/sbin/sshd"),
        libraries,
        configuration,
    })
}

/// Unpacks the package. A lock and a rename protect against concurrent test processes.
fn unpack(root: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), MissingServer> {
    let failed = |error: io::Error| MissingServer(error.to_string());
    fs::create_dir_all(tools_dir()).map_err(failed)?;
    let lock = File::create(tools_dir().join("sshd.lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    if root.is_dir() {
        return Ok(());
    }
    progress("sshd: downloading Debian's package (once)");
    let folder = tempfile::tempdir_in(tools_dir()).map_err(failed)?;
    run(Command::new("apt-get")
        .arg("download")
        .args(PACKAGES)
        .current_dir(folder.path()))?;
    let unpacked = folder.path().join("root");
    for entry in fs::read_dir(folder.path()).map_err(failed)? {
        let package = entry.map_err(failed)?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
        }
    }
    fs::rename(&unpacked, root).map_err(failed)
}

fn run(command: &mut Command) -> Result<(), MissingServer> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| MissingServer(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(MissingServer(format!(
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// Returns the library folder of the machine's architecture, such as `usr/lib/x86_64-linux-gnu`.
fn library_folder(above: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(above)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()));
    folders.filter(|folder| folder.is_dir()).find(|folder| {
        let mut files = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        files.any(|file| file.file_name().to_string_lossy().starts_with("libwrap.so"))
    })
}
