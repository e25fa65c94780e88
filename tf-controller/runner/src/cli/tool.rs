//! Which program runs: `terraform` first, then `tofu`, and which version it says it is.

use std::path::PathBuf;

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

fn is_executable(path: &std::path::Path) -> bool {
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
