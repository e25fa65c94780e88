//! Finds the command-line tools that the suites drive as a user would.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::gobuild::{self, BuildError, Tool};

/// `terraform` if it is on PATH, else `tofu`, else the `tofu` of the pinned module, which is built when it must be
/// (minutes on a cold cache).
///
/// # Errors
/// When there is none and none can be built.
pub fn terraform() -> Result<PathBuf, BuildError> {
    match on_path("terraform").or_else(|| on_path("tofu")) {
        Some(found) => Ok(found),
        None => tofu(),
    }
}

/// The `tofu` of the pinned module, which is built when it must be.
///
/// # Errors
/// When it cannot be built.
pub fn tofu() -> Result<PathBuf, BuildError> {
    gobuild::build(Tool::Tofu, &mut |line| eprintln!("{line}"))
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
