//! Which program runs: the one that `spec.tool` selects, or `terraform` first, then `tofu`; and which version it says it is.

use super::installed::{Installed, InstalledError};
use crate::bundle::SelectedTool;
use std::path::{Path, PathBuf};

/// The two programs, in the order in which they are looked for.
pub const NAMES: [&str; 2] = ["terraform", "tofu"];

/// A program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// `terraform` or `tofu`.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// Why no program can be run.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// None of the names is on the path.
    #[error("neither terraform nor tofu is on PATH")]
    NoneFound,
    /// The stack was planned with a program that is not there any more; another one is never taken silently.
    #[error("{name} is not on PATH, and this stack's state belongs to it")]
    RecordedMissing {
        /// The recorded program.
        name: String,
    },
    /// `spec.tool` names a program that is not there, and no directory of installed ones was given.
    #[error("{name} is not on PATH, and spec.tool asks for it")]
    SelectedMissing {
        /// The program.
        name: String,
    },
    /// `spec.tool` was resolved to an installed version by a controller that has a directory of them.
    #[error("{name} {version} was selected, and this runner was started without --tools-dir")]
    NoDirectory {
        /// The program.
        name: String,
        /// Its version.
        version: String,
    },
    /// The selected version cannot be had.
    #[error(transparent)]
    Installed(#[from] InstalledError),
    /// A program says that it is another version than its folder.
    #[error("{path} says that it is {name} {said}: a folder is named after the version in it")]
    OtherVersion {
        /// Where the program is.
        path: String,
        /// Its name.
        name: String,
        /// The version that it says.
        said: String,
    },
    /// `version -json` says something else.
    #[error("`{name} version -json` does not name a version")]
    NoVersion {
        /// The program asked.
        name: String,
    },
}

/// Looks through `search` (the text of `PATH`) for the recorded program, or for the first of [`NAMES`].
///
/// # Errors
/// When there is none.
pub fn find(search: &str, recorded: Option<&str>) -> Result<Tool, ToolError> {
    let candidates = |name: &str| {
        std::env::split_paths(search)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(name))
            .find(|path| is_executable(path))
            .map(|path| Tool {
                name: name.to_owned(),
                path,
            })
    };
    match recorded.filter(|name| !name.is_empty()) {
        Some(name) if NAMES.contains(&name) => candidates(name).ok_or_else(|| ToolError::RecordedMissing {
            name: name.to_owned(),
        }),
        Some(name) => Err(ToolError::RecordedMissing {
            name: name.to_owned(),
        }),
        None => NAMES
            .iter()
            .find_map(|name| candidates(name))
            .ok_or(ToolError::NoneFound),
    }
}

/// The program of a stack with `spec.tool`: of a version in the directory of installed programs, or from `search`.
///
/// # Errors
/// When it is not there.
pub fn selected(search: &str, tools: Option<&Path>, wanted: &SelectedTool) -> Result<Tool, ToolError> {
    let SelectedTool { name, version } = wanted;
    let missing = || ToolError::SelectedMissing { name: name.clone() };
    if !NAMES.contains(&name.as_str()) {
        return Err(missing());
    }
    if version.is_empty() {
        return find(search, Some(name)).map_err(|_| missing());
    }
    let tools = tools.ok_or_else(|| ToolError::NoDirectory {
        name: name.clone(),
        version: version.clone(),
    })?;
    Ok(Installed::read(tools, name)?.program(version)?)
}

/// Refuses a program that is not the version that its folder promises.
///
/// # Errors
/// When it says another one.
pub fn prove(tool: &Tool, said: &str, wanted: &SelectedTool) -> Result<(), ToolError> {
    if wanted.version.is_empty() || said == wanted.version {
        return Ok(());
    }
    Err(ToolError::OtherVersion {
        path: tool.path.display().to_string(),
        name: tool.name.clone(),
        said: said.to_owned(),
    })
}

pub(super) fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Reads the version out of the answer of `version -json`. Both programs use the same member name.
///
/// # Errors
/// When the answer holds none.
pub fn version(tool: &Tool, answer: &[u8]) -> Result<String, ToolError> {
    #[derive(serde::Deserialize)]
    struct Answer {
        terraform_version: String,
    }
    let unknown = || ToolError::NoVersion {
        name: tool.name.clone(),
    };
    let start = answer.iter().position(|byte| *byte == b'{').ok_or_else(unknown)?;
    let answer: Answer = serde_json::Deserializer::from_slice(&answer[start..])
        .into_iter()
        .next()
        .and_then(Result::ok)
        .ok_or_else(unknown)?;
    Ok(answer.terraform_version.chars().take(64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
        let of = |name: &str, version: &str| selected(search, Some(tools.path()), &select(name, version));
        assert_eq!(of("tofu", "").unwrap().path, dir.path().join("tofu"));
        assert_eq!(of("tofu", "1.8.3").unwrap().path, folder.join("tofu"));
        assert!(matches!(of("tofu", "1.8.4"), Err(ToolError::Installed(_))));
        assert!(matches!(of("sh", ""), Err(ToolError::SelectedMissing { .. })));
        assert!(matches!(
            of("../tofu", "1.8.3"),
            Err(ToolError::SelectedMissing { .. })
        ));
        let without = selected(search, None, &select("tofu", "1.8.3"));
        assert!(matches!(without, Err(ToolError::NoDirectory { .. })));
        let nowhere = selected("", None, &select("tofu", ""));
        assert!(matches!(nowhere, Err(ToolError::SelectedMissing { .. })));
        let tool = of("tofu", "1.8.3").unwrap();
        prove(&tool, "1.8.3", &select("tofu", "1.8.3")).unwrap();
        prove(&tool, "1.9.0", &select("tofu", "")).unwrap();
        let other = prove(&tool, "1.9.0", &select("tofu", "1.8.3"))
            .unwrap_err()
            .to_string();
        assert!(
            other.ends_with(
                "1.8.3/tofu says that it is tofu 1.9.0: a folder is named after the version in it"
            ),
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
            version(&tool, br#"{"terraform_version":"1.11.4","platform":"x"}"#).unwrap(),
            "1.11.4"
        );
        assert!(version(&tool, b"Terraform v1.11.4").is_err());
    }
}
