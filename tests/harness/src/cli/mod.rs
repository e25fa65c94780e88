//! Finds the command-line tools that the suites run and builds the PATH for the processes they start.
//!
//! Only this module reads `SLUICE_CLI`, which selects Terraform or OpenTofu. Processes of the suites find the selected
//! program and never the other one, whatever is installed on the machine.

mod search_path;

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::gobuild::{self, BuildError, Tool};

/// The environment variable that selects the CLI of the suites.
const CLI_VARIABLE: &str = "SLUICE_CLI";
/// The two programs, in the order of the search when none is selected.
const CLI_NAMES: [&str; 2] = ["terraform", "tofu"];

/// Why there is no CLI, or no PATH for it.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// `SLUICE_CLI` has another value than the two programs.
    #[error("SLUICE_CLI={0:?} is unknown: set tofu or terraform, or leave it empty to use the one on PATH")]
    UnknownChoice(String),
    /// `SLUICE_CLI` selects Terraform, which cannot be built here.
    #[error("SLUICE_CLI=terraform, but terraform is not on PATH: install it, or set SLUICE_CLI=tofu")]
    NotInstalled,
    /// OpenTofu cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A folder for the PATH of the suites cannot be created.
    #[error("cannot hide the other CLI from the processes of the suites: {path}: {source}")]
    SearchPath {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The value of `SLUICE_CLI`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Not set.
    Any,
    /// `tofu`.
    Tofu,
    /// `terraform`.
    Terraform,
}

impl Choice {
    fn read(value: Option<&OsStr>) -> Result<Self, CliError> {
        match value.map(OsStr::to_string_lossy).as_deref() {
            None | Some("") => Ok(Self::Any),
            Some("tofu") => Ok(Self::Tofu),
            Some("terraform") => Ok(Self::Terraform),
            Some(other) => Err(CliError::UnknownChoice(other.to_owned())),
        }
    }
}

/// Returns the CLI of the suites. `SLUICE_CLI=tofu`: built from the pinned module if needed (minutes with a cold cache).
/// `SLUICE_CLI=terraform`: from PATH. Not set: `terraform` from PATH, else `tofu` from PATH, else `tofu` of the pinned module.
///
/// # Errors
/// When `SLUICE_CLI` has another value, or no CLI is found and none can be built.
pub fn terraform() -> Result<PathBuf, CliError> {
    match Choice::read(std::env::var_os(CLI_VARIABLE).as_deref())? {
        Choice::Any => CLI_NAMES.into_iter().find_map(on_path).map_or_else(tofu, Ok),
        Choice::Terraform => on_path("terraform").ok_or(CliError::NotInstalled),
        Choice::Tofu => tofu(),
    }
}

/// Returns the PATH for processes of the suites: the CLI of [`terraform`] comes first, and no other folder contains
/// either program. The rest is the PATH of this process.
///
/// # Errors
/// As [`terraform`], and when the link folders that hide a program cannot be created.
pub fn search_path() -> Result<String, CliError> {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    search_path::with_only(&terraform()?, &rest, &gobuild::tools_dir())
}

/// Returns the `tofu` of the pinned module; builds it if needed.
///
/// # Errors
/// When it cannot be built.
pub fn tofu() -> Result<PathBuf, CliError> {
    Ok(gobuild::build(Tool::Tofu, &mut |line| eprintln!("{line}"))?)
}

/// Returns the version that a CLI reports; `None` if it reports none.
#[must_use]
pub fn version(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.args(["version", "-json"]).env("CHECKPOINT_DISABLE", "1");
    let answer = command.output().ok()?.stdout;
    // Warnings about its configuration may surround the JSON.
    let start = answer.iter().position(|byte| *byte == b'{')?;
    let mut answers = serde_json::Deserializer::from_slice(&answer[start..]).into_iter();
    let answer: serde_json::Value = answers.next()?.ok()?;
    Some(answer.get("terraform_version")?.as_str()?.to_owned())
}

/// Returns `kubectl` from PATH, else from the pinned module; builds it if needed.
///
/// # Errors
/// When it is not found and cannot be built.
pub fn kubectl() -> Result<PathBuf, BuildError> {
    match on_path("kubectl") {
        Some(found) => Ok(found),
        None => gobuild::build(Tool::Kubectl, &mut |line| eprintln!("{line}")),
    }
}

/// Returns the `helm` of the pinned module; builds it if needed.
///
/// # Errors
/// When it cannot be built.
pub fn helm() -> Result<PathBuf, BuildError> {
    gobuild::build(Tool::Helm, &mut |line| eprintln!("{line}"))
}

/// Returns the `promtool` of the pinned module; builds it if needed.
///
/// # Errors
/// When it cannot be built.
pub fn promtool() -> Result<PathBuf, BuildError> {
    gobuild::build(Tool::Promtool, &mut |line| eprintln!("{line}"))
}

/// Returns the first executable file with this name on PATH.
#[must_use]
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_selects_tofu_terraform_or_neither() {
        let read = |value: &str| Choice::read(Some(OsStr::new(value)));
        assert_eq!(read("tofu").unwrap(), Choice::Tofu);
        assert_eq!(read("terraform").unwrap(), Choice::Terraform);
        assert_eq!(read("").unwrap(), Choice::Any);
        assert_eq!(Choice::read(None).unwrap(), Choice::Any);
        let error = read("opentofu").unwrap_err().to_string();
        assert_eq!(
            error,
            "SLUICE_CLI=\"opentofu\" is unknown: set tofu or terraform, or leave it empty to use the one on PATH"
        );
    }

    #[test]
    fn the_path_of_the_suites_contains_one_cli_and_all_other_programs() {
        let (chosen, path) = (terraform().unwrap(), search_path().unwrap());
        let found = |name: &str| {
            let mut folders = std::env::split_paths(&path).map(|folder| folder.join(name));
            folders.find(|file| is_executable(file))
        };
        let all: Vec<_> = CLI_NAMES.into_iter().filter_map(found).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0].canonicalize().unwrap(), chosen.canonicalize().unwrap());
        assert_eq!(version(&all[0]), version(&chosen));
        for name in ["sh", "git", "tar"] {
            let [expected, actual] = [on_path(name).unwrap(), found(name).unwrap()];
            assert_eq!(actual.canonicalize().unwrap(), expected.canonicalize().unwrap());
        }
    }

    #[test]
    fn a_tool_is_an_executable_file_on_path() {
        assert!(on_path("sh").is_some());
        assert_eq!(on_path("no-such-tool-anywhere"), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        std::fs::write(&file, "").unwrap();
        assert!(!is_executable(&file) && !is_executable(folder.path()));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_executable(&file));
    }
}
