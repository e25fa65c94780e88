//! Finds `sshd`: on `PATH`, at its usual path, or in Debian's package, which is unpacked but not installed.

use std::path::PathBuf;

use crate::packages::{self, PackageError};

/// The required packages; everything else comes with the client, which `ssh-keygen` requires anyway.
const PACKAGES: [&str; 2] = ["openssh-server", "libwrap0"];

/// sshd is not available.
#[derive(Debug, thiserror::Error)]
#[error(
    "the tests of ssh need OpenSSH's server: install it (Debian: openssh-server) as /usr/sbin/sshd or on PATH; {0}"
)]
pub struct MissingServer(#[from] PackageError);

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
    let root = packages::unpack("sshd", &PACKAGES, progress)?;
    let mut configuration = Vec::new();
    for (part, option) in [("sshd-session", "SshdSessionPath"), ("sshd-auth", "SshdAuthPath")] {
        let file = root.join("usr/lib/openssh").join(part);
        if file.is_file() {
            configuration.push(format!("{option} {}", file.display()));
        }
    }
    Ok(Program {
        sshd: root.join("usr/sbin/sshd"),
        libraries: packages::library_folder(&root, "libwrap.so"),
        configuration,
    })
}
