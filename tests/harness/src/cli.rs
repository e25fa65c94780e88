//! Finds the command-line tools that the suites drive as a user would, and makes the PATH of what they start.
//!
//! Which of the two programs that is, `SLUICE_CLI` says, which is read here and nowhere else. What the suites start finds
//! that program and never the other one, whatever this machine has installed.

mod search;

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::gobuild::{self, BuildError, Tool};

/// The environment's word for the program with which the suites run.
const CHOICE: &str = "SLUICE_CLI";
/// The two programs, in the order in which they are looked for when nothing is said.
const NAMES: [&str; 2] = ["terraform", "tofu"];

/// Why there is no program to run, or no PATH for it.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The environment asks for something else than one of the two.
    #[error("SLUICE_CLI={0:?} is not known: say tofu, terraform, or nothing for whichever is on PATH")]
    UnknownChoice(String),
    /// The environment asks for Terraform, which cannot be built here.
    #[error("SLUICE_CLI=terraform, and no terraform is on PATH: install it, or say SLUICE_CLI=tofu")]
    NotInstalled,
    /// OpenTofu cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A folder of the PATH for what the suites start cannot be made.
    #[error("cannot keep the other program from what the suites start: {path}: {source}")]
    Search {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What `SLUICE_CLI` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Nothing.
    Whichever,
    /// `tofu`.
    Tofu,
    /// `terraform`.
    Terraform,
}

impl Choice {
    fn read(said: Option<&OsStr>) -> Result<Self, CliError> {
        match said.map(OsStr::to_string_lossy).as_deref() {
            None | Some("") => Ok(Self::Whichever),
            Some("tofu") => Ok(Self::Tofu),
            Some("terraform") => Ok(Self::Terraform),
            Some(other) => Err(CliError::UnknownChoice(other.to_owned())),
        }
    }
}

/// The program with which the suites run. `SLUICE_CLI=tofu`: that of the pinned module, which is built when it must be
/// (minutes on a cold cache). `SLUICE_CLI=terraform`: that on PATH. Otherwise `terraform` if it is on PATH, else `tofu`, else
/// that of the pinned module.
///
/// # Errors
/// When `SLUICE_CLI` says something else, or there is none and none can be built.
pub fn terraform() -> Result<PathBuf, CliError> {
    match Choice::read(std::env::var_os(CHOICE).as_deref())? {
        Choice::Whichever => NAMES.into_iter().find_map(on_path).map_or_else(tofu, Ok),
        Choice::Terraform => on_path("terraform").ok_or(CliError::NotInstalled),
        Choice::Tofu => tofu(),
    }
}

/// The PATH of what the suites start: the program that [`terraform`] gives comes first, and neither it nor the other one is
/// anywhere else. The rest is this process's PATH.
///
/// # Errors
/// As [`terraform`], and when the folders of links that hide a program cannot be made.
pub fn search_path() -> Result<String, CliError> {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    search::with_only(&terraform()?, &rest, &gobuild::tools())
}

/// The `tofu` of the pinned module, which is built when it must be.
///
/// # Errors
/// When it cannot be built.
pub fn tofu() -> Result<PathBuf, CliError> {
    Ok(gobuild::build(Tool::Tofu, &mut |line| eprintln!("{line}"))?)
}
/// The version that a CLI says it is; `None` if it does not say.
#[must_use]
pub fn version(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.args(["version", "-json"]).env("CHECKPOINT_DISABLE", "1");
    let answer = command.output().ok()?.stdout;
    // A warning about its configuration may stand before and behind.
    let start = answer.iter().position(|byte| *byte == b'{')?;
    let mut answers = serde_json::Deserializer::from_slice(&answer[start..]).into_iter();
    let answer: serde_json::Value = answers.next()?.ok()?;
    Some(answer.get("terraform_version")?.as_str()?.to_owned())
}

/// `kubectl` if it is on PATH, else the one of the pinned module, which is built when it must be.
///
/// # Errors
/// When there is none and none can be built.
pub fn kubectl() -> Result<PathBuf, BuildError> {
    match on_path("kubectl") {
        Some(found) => Ok(found),
        None => gobuild::build(Tool::Kubectl, &mut |line| eprintln!("{line}")),
    }
}

/// The first executable file of this name in PATH.
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
    fn the_environment_says_tofu_or_terraform_or_nothing() {
        let read = |said: &str| Choice::read(Some(OsStr::new(said)));
        assert_eq!(read("tofu").unwrap(), Choice::Tofu);
        assert_eq!(read("terraform").unwrap(), Choice::Terraform);
        assert_eq!(read("").unwrap(), Choice::Whichever);
        assert_eq!(Choice::read(None).unwrap(), Choice::Whichever);
        let error = read("opentofu").unwrap_err().to_string();
        assert_eq!(
            error,
            "SLUICE_CLI=\"opentofu\" is not known: say tofu, terraform, or nothing for whichever is on PATH"
        );
    }

    #[test]
    fn what_the_suites_start_finds_one_program_and_the_rest_of_path() {
        let (chosen, path) = (terraform().unwrap(), search_path().unwrap());
        let found = |name: &str| {
            let mut folders = std::env::split_paths(&path).map(|folder| folder.join(name));
            folders.find(|file| is_executable(file))
        };
        let all: Vec<_> = NAMES.into_iter().filter_map(found).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0].canonicalize().unwrap(), chosen.canonicalize().unwrap());
        assert_eq!(version(&all[0]), version(&chosen));
        for name in ["sh", "git", "tar"] {
            let [here, there] = [on_path(name).unwrap(), found(name).unwrap()];
            assert_eq!(there.canonicalize().unwrap(), here.canonicalize().unwrap());
        }
    }

    #[test]
    fn a_tool_is_an_executable_file_in_path() {
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
