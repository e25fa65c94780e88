//! Selection of the CLI: the one of `spec.tool`, or `terraform`, or `tofu`.

use std::path::{Path, PathBuf};

use super::installed::{InstalledError, InstalledVersions};
use crate::bundle::SelectedTool;

/// The names of the CLI, in the order of preference.
pub const NAMES: [&str; 2] = ["terraform", "tofu"];

/// An executable CLI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// `terraform` or `tofu`.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
}

/// No CLI can be selected.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// `PATH` has neither name.
    #[error("neither terraform nor tofu is on PATH")]
    NoneFound,
    /// `PATH` does not have the CLI of the last run. It changes only with `spec.tool`.
    #[error("{name} is not on PATH, but the state of this stack belongs to it")]
    RecordedMissing {
        /// Its name.
        name: String,
    },
    /// `PATH` does not have the CLI of `spec.tool`.
    #[error("{name} is not on PATH, but spec.tool requires it")]
    SelectedMissing {
        /// Its name.
        name: String,
    },
    /// The controller selected an installed version, but the runner has no `--tools-dir`.
    #[error("{name} {version} was selected, and this runner was started without --tools-dir")]
    NoDirectory {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    },
    /// The selected version is not installed.
    #[error(transparent)]
    Installed(#[from] InstalledError),
    /// The version of the CLI is not that of its directory.
    #[error("{path} is {name} {actual}: its directory must be named after its version")]
    VersionMismatch {
        /// Its path.
        path: String,
        /// Its name.
        name: String,
        /// Its version.
        actual: String,
    },
    /// The output of `version -json` has no version.
    #[error("`{name} version -json` does not name a version")]
    NoVersion {
        /// Its name.
        name: String,
    },
}

/// Finds the CLI of the last run, or the first of [`NAMES`], on a `PATH`.
///
/// # Errors
/// It does not exist.
pub fn find(search_path: &str, recorded: Option<&str>) -> Result<Tool, ToolError> {
    let on_path = |name: &str| {
        std::env::split_paths(search_path)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(name))
            .find(|path| is_executable(path))
            .map(|path| Tool {
                name: name.to_owned(),
                path,
            })
    };
    match recorded.filter(|name| !name.is_empty()) {
        Some(name) if NAMES.contains(&name) => on_path(name).ok_or_else(|| ToolError::RecordedMissing {
            name: name.to_owned(),
        }),
        Some(name) => Err(ToolError::RecordedMissing {
            name: name.to_owned(),
        }),
        None => NAMES
            .iter()
            .find_map(|name| on_path(name))
            .ok_or(ToolError::NoneFound),
    }
}

/// Finds the CLI of `spec.tool`: an installed version, or the CLI on a `PATH`.
///
/// # Errors
/// It does not exist.
pub fn find_selected(
    search_path: &str,
    tools: Option<&Path>,
    selection: &SelectedTool,
) -> Result<Tool, ToolError> {
    let SelectedTool { name, version } = selection;
    let missing = || ToolError::SelectedMissing { name: name.clone() };
    if !NAMES.contains(&name.as_str()) {
        return Err(missing());
    }
    if version.is_empty() {
        return find(search_path, Some(name)).map_err(|_| missing());
    }
    let tools = tools.ok_or_else(|| ToolError::NoDirectory {
        name: name.clone(),
        version: version.clone(),
    })?;
    Ok(InstalledVersions::read(tools, name)?.find(version)?)
}

/// Verifies that the version of a CLI is the selected one.
///
/// # Errors
/// The version differs.
pub fn verify_version(tool: &Tool, version: &str, selection: &SelectedTool) -> Result<(), ToolError> {
    if selection.version.is_empty() || version == selection.version {
        return Ok(());
    }
    Err(ToolError::VersionMismatch {
        path: tool.path.display().to_string(),
        name: tool.name.clone(),
        actual: version.to_owned(),
    })
}

pub(super) fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Parses the output of `version -json`. Both CLIs use the same member.
///
/// # Errors
/// The output has no version.
pub fn parse_version(tool: &Tool, output: &[u8]) -> Result<String, ToolError> {
    #[derive(serde::Deserialize)]
    struct VersionOutput {
        terraform_version: String,
    }
    let unknown = || ToolError::NoVersion {
        name: tool.name.clone(),
    };
    let start = output.iter().position(|byte| *byte == b'{').ok_or_else(unknown)?;
    let parsed: VersionOutput = serde_json::Deserializer::from_slice(&output[start..])
        .into_iter()
        .next()
        .and_then(Result::ok)
        .ok_or_else(unknown)?;
    Ok(parsed.terraform_version.chars().take(64).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn directory(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        dir
    }

    #[test]
    fn terraform_wins_unless_the_stack_recorded_tofu() {
        let dir = directory(&NAMES);
        let search = dir.path().to_str().unwrap();
        assert_eq!(find(search, None).unwrap().name, "terraform");
        assert_eq!(find(search, Some("tofu")).unwrap().name, "tofu");
        let only = directory(&["tofu"]);
        let search = only.path().to_str().unwrap();
        assert_eq!(find(search, None).unwrap().name, "tofu");
        assert!(matches!(
            find(search, Some("terraform")),
            Err(ToolError::RecordedMissing { .. })
        ));
        assert!(matches!(find("", None), Err(ToolError::NoneFound)));
        assert!(matches!(
            find(search, Some("../../bin/sh")),
            Err(ToolError::RecordedMissing { .. })
        ));
    }

    #[test]
    fn a_selected_program_is_of_that_version_or_the_one_on_path() {
        let dir = directory(&["terraform", "tofu"]);
        let search = dir.path().to_str().unwrap();
        let tools = tempfile::tempdir().unwrap();
        let folder = tools.path().join("tofu/1.8.3");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(dir.path().join("tofu"), folder.join("tofu")).unwrap();
        let select = |name: &str, version: &str| SelectedTool {
            name: name.into(),
            version: version.into(),
        };
        let of =
            |name: &str, version: &str| find_selected(search, Some(tools.path()), &select(name, version));
        assert_eq!(of("tofu", "").unwrap().path, dir.path().join("tofu"));
        assert_eq!(of("tofu", "1.8.3").unwrap().path, folder.join("tofu"));
        assert!(matches!(of("tofu", "1.8.4"), Err(ToolError::Installed(_))));
        assert!(matches!(of("sh", ""), Err(ToolError::SelectedMissing { .. })));
        assert!(matches!(
            of("../tofu", "1.8.3"),
            Err(ToolError::SelectedMissing { .. })
        ));
        let without = find_selected(search, None, &select("tofu", "1.8.3"));
        assert!(matches!(without, Err(ToolError::NoDirectory { .. })));
        let nowhere = find_selected("", None, &select("tofu", ""));
        assert!(matches!(nowhere, Err(ToolError::SelectedMissing { .. })));
        let tool = of("tofu", "1.8.3").unwrap();
        verify_version(&tool, "1.8.3", &select("tofu", "1.8.3")).unwrap();
        verify_version(&tool, "1.9.0", &select("tofu", "")).unwrap();
        let other = verify_version(&tool, "1.9.0", &select("tofu", "1.8.3"))
            .unwrap_err()
            .to_string();
        assert!(
            other.ends_with("1.8.3/tofu is tofu 1.9.0: its directory must be named after its version"),
            "{other}"
        );
    }

    #[test]
    fn the_version_is_read() {
        let tool = Tool {
            name: "terraform".into(),
            path: "/x".into(),
        };
        assert_eq!(
            parse_version(&tool, br#"{"terraform_version":"1.11.4","platform":"x"}"#).unwrap(),
            "1.11.4"
        );
        assert!(parse_version(&tool, b"Terraform v1.11.4").is_err());
    }
}
