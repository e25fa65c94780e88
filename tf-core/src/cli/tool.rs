//! Selection of the CLI: the one of `spec.tool`, or `terraform`, or `tofu`.

use std::io;
use std::path::{Path, PathBuf};

use super::installed::{InstalledError, InstalledVersions, InvalidConstraint, VersionConstraint};
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
    /// The version that its directory names; `None`: the CLI on `PATH`.
    pub version: Option<String>,
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
    /// A version is selected, but the runner has no `--tools-dir`.
    #[error("{name} {version} was selected, and this runner was started without --tools-dir")]
    NoDirectory {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    },
    /// The text of the selection is not a version.
    #[error("spec.tool.version: {0}")]
    InvalidConstraint(#[from] InvalidConstraint),
    /// The selected version is not installed.
    #[error("spec.tool: {0}")]
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
                version: None,
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

/// Finds the CLI of `spec.tool`: the newest installed version that matches. Without a version, the CLI on a `PATH` replaces one that
/// is not installed: the image of a run may have no directory of versions.
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
        let newest = tools.map(|tools| find_newest(tools, name)).transpose()?.flatten();
        let on_path = || find(search_path, Some(name)).map_err(|_| missing());
        return newest.map_or_else(on_path, Ok);
    }
    let tools = tools.ok_or_else(|| ToolError::NoDirectory {
        name: name.clone(),
        version: version.clone(),
    })?;
    let installed = InstalledVersions::read(tools, name)?;
    // The name of a directory need not be a constraint.
    if let Ok(exact) = installed.find(version) {
        return Ok(exact);
    }
    let constraint: VersionConstraint = version.parse()?;
    let newest = installed.newest_matching(&constraint)?;
    Ok(installed.find(&newest.to_string())?)
}

/// Whether exactly this version is installed.
#[must_use]
pub fn is_installed(tools: &Path, name: &str, version: &str) -> bool {
    InstalledVersions::read(tools, name).is_ok_and(|installed| installed.find(version).is_ok())
}

/// Finds the newest installed version; `None`: there is none, or no directory of versions.
fn find_newest(tools: &Path, name: &str) -> Result<Option<Tool>, ToolError> {
    let installed = match InstalledVersions::read(tools, name) {
        Err(InstalledError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        installed => installed?,
    };
    let newest = installed.newest_matching(&VersionConstraint::default());
    Ok(newest
        .ok()
        .and_then(|version| installed.find(&version.to_string()).ok()))
}

/// Verifies that the version of a CLI is that of its directory.
///
/// # Errors
/// The version differs.
pub fn verify_version(tool: &Tool, version: &str) -> Result<(), ToolError> {
    if tool.version.as_deref().is_none_or(|named| named == version) {
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

    /// Installs a copy of `tofu` under these versions.
    fn install(versions: &[&str]) -> tempfile::TempDir {
        let (tools, source) = (tempfile::tempdir().unwrap(), directory(&["tofu"]));
        for version in versions {
            let folder = tools.path().join("tofu").join(version);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::copy(source.path().join("tofu"), folder.join("tofu")).unwrap();
        }
        tools
    }

    fn select(name: &str, version: &str) -> SelectedTool {
        SelectedTool {
            name: name.into(),
            version: version.into(),
        }
    }

    #[test]
    fn a_selected_version_is_the_newest_installed_one_that_matches() {
        let on_path = directory(&NAMES);
        let search = on_path.path().to_str().unwrap();
        let tools = install(&["1.8.3", "1.9.0"]);
        let of =
            |name: &str, version: &str| find_selected(search, Some(tools.path()), &select(name, version));
        let installed = |version: &str| tools.path().join("tofu").join(version).join("tofu");
        for (text, version) in [
            ("", "1.9.0"),
            ("1.8.3", "1.8.3"),
            ("~> 1.8.0", "1.8.3"),
            ("1", "1.9.0"),
        ] {
            let found = of("tofu", text).unwrap();
            assert_eq!(found.path, installed(version), "{text:?}");
            assert_eq!(found.version.as_deref(), Some(version), "{text:?}");
        }
        let error = of("tofu", "~> 1.10").unwrap_err().to_string();
        assert!(
            error.starts_with("spec.tool: tofu ~> 1.10 is not installed: ")
                && error.contains("has 1.8.3, 1.9.0;"),
            "{error}"
        );
        assert!(matches!(
            of("tofu", "latest"),
            Err(ToolError::InvalidConstraint(_))
        ));
        assert!(matches!(of("sh", ""), Err(ToolError::SelectedMissing { .. })));
        assert!(matches!(
            of("../tofu", "1.8.3"),
            Err(ToolError::SelectedMissing { .. })
        ));
    }

    #[test]
    fn without_a_version_the_cli_on_path_replaces_one_that_is_not_installed() {
        let on_path = directory(&NAMES);
        let search = on_path.path().to_str().unwrap();
        let tools = install(&["1.8.3"]);
        let absent = tools.path().join("absent");
        let terraform = on_path.path().join("terraform");
        for directory in [None, Some(tools.path()), Some(absent.as_path())] {
            let found = find_selected(search, directory, &select("terraform", "")).unwrap();
            assert_eq!((&found.path, found.version), (&terraform, None), "{directory:?}");
        }
        let pinned = find_selected(search, None, &select("tofu", "1.8.3"));
        assert!(matches!(pinned, Err(ToolError::NoDirectory { .. })));
        let pinned = find_selected(search, Some(&absent), &select("tofu", "1.8.3"));
        assert!(matches!(pinned, Err(ToolError::Installed(_))));
        let nowhere = find_selected("", None, &select("tofu", ""));
        assert!(matches!(nowhere, Err(ToolError::SelectedMissing { .. })));
    }

    #[test]
    fn a_program_of_another_version_than_its_directory_is_refused() {
        let tools = install(&["1.8.3"]);
        let tool = find_selected("", Some(tools.path()), &select("tofu", "1.8")).unwrap();
        verify_version(&tool, "1.8.3").unwrap();
        let other = verify_version(&tool, "1.9.0").unwrap_err().to_string();
        assert!(
            other.ends_with("1.8.3/tofu is tofu 1.9.0: its directory must be named after its version"),
            "{other}"
        );
        let on_path = Tool {
            version: None,
            ..tool
        };
        verify_version(&on_path, "1.9.0").unwrap();
    }

    #[test]
    fn the_version_is_read() {
        let tool = Tool {
            name: "terraform".into(),
            path: "/x".into(),
            version: None,
        };
        assert_eq!(
            parse_version(&tool, br#"{"terraform_version":"1.11.4","platform":"x"}"#).unwrap(),
            "1.11.4"
        );
        assert!(parse_version(&tool, b"Terraform v1.11.4").is_err());
    }
}
