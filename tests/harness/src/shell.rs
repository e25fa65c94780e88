//! The shells of users: those on PATH, or Debian's packages, unpacked but not installed. Like all such programs they are not pinned:
//! their libraries are those of the machine's distribution, whose archive holds one version.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{self, PackageError};

/// Packages of both shells, with libraries that a machine may lack. One download: two at once would fight for the lock of apt's lists.
const PACKAGES: [&str; 6] = [
    "zsh",
    "zsh-common",
    "libcap2",
    "fish",
    "fish-common",
    "libpcre2-32-0",
];

/// A shell is not available.
#[derive(Debug, thiserror::Error)]
#[error("{name} is not on PATH, and {source}")]
pub struct MissingShell {
    name: &'static str,
    source: PackageError,
}

/// A shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shell {
    /// The program.
    pub program: PathBuf,
    /// Lines by which an unpacked shell finds its own files. It must read them first. Empty for an installed one.
    pub setup: String,
    /// The folder of the libraries of an unpacked shell.
    libraries: Option<PathBuf>,
}

impl Shell {
    /// Finds a shell on PATH.
    #[must_use]
    pub fn installed(name: &str) -> Option<Self> {
        Some(Self {
            program: crate::cli::on_path(name)?,
            setup: String::new(),
            libraries: None,
        })
    }

    /// Finds zsh or downloads it.
    ///
    /// # Errors
    /// When it is not on PATH, and `apt-get` or `dpkg` is missing or fails.
    pub fn zsh() -> Result<Self, MissingShell> {
        if let Some(shell) = Self::installed("zsh") {
            return Ok(shell);
        }
        let root = unpack("zsh")?;
        let quoted = quote(&root);
        Ok(Self {
            program: program(&root, "zsh"),
            setup: format!(
                "module_path=({quoted}/usr/lib/*/zsh/*(/))\nfpath=({quoted}/usr/share/zsh/functions/**/*(/))\n"
            ),
            libraries: packages::library_folder(&root, "libcap.so"),
        })
    }

    /// Finds fish or downloads it.
    ///
    /// # Errors
    /// As [`Shell::zsh`].
    pub fn fish() -> Result<Self, MissingShell> {
        if let Some(shell) = Self::installed("fish") {
            return Ok(shell);
        }
        let root = unpack("fish")?;
        Ok(Self {
            program: program(&root, "fish"),
            setup: format!(
                "set --prepend fish_function_path {}/usr/share/fish/functions\n",
                quote(&root)
            ),
            libraries: packages::library_folder(&root, "libpcre2-32.so"),
        })
    }

    /// Returns the command that starts it, without arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

fn unpack(name: &'static str) -> Result<PathBuf, MissingShell> {
    let unpacked = packages::unpack("shells", &PACKAGES, &mut |line| eprintln!("{line}"));
    unpacked.map_err(|source| MissingShell { name, source })
}

/// Returns the path of a program; `bin` is a folder of its own in older packages.
fn program(root: &Path, name: &str) -> PathBuf {
    let folders = ["bin", "usr/bin"].map(|folder| root.join(folder).join(name));
    let [_, usual] = &folders;
    let found = folders.iter().find(|file| file.is_file());
    found.unwrap_or(usual).clone()
}

/// Quotes a path for zsh and fish.
fn quote(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
