//! The installed versions below `--tools-dir`, each at `<directory>/<name>/<version>/<name>`. Where runs are processes, the controller
//! selects a version; in the pod of a run, the runner does.

mod constraint;

use std::io;
use std::path::{Path, PathBuf};

pub use constraint::{InvalidConstraint, VersionConstraint};
use semver::Version;

use super::tool::{Tool, is_executable};

/// Limit of the entries of a directory.
const ENTRY_LIMIT: usize = 1000;
/// Limit of the versions in an error.
const LIST_LIMIT: usize = 20;

/// The installed versions of one CLI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledVersions {
    name: String,
    /// `<directory>/<name>`.
    directory: PathBuf,
    /// Oldest first.
    versions: Vec<Version>,
    /// Versions without an executable.
    without_executable: Vec<Version>,
}

/// No installed version can be selected.
#[derive(Debug, thiserror::Error)]
pub enum InstalledError {
    /// The directory cannot be read.
    #[error("cannot read the directory of installed programs {path}: {source}")]
    Unreadable {
        /// The directory.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The directory has too many entries.
    #[error(
        "{path} has more than {ENTRY_LIMIT} entries; it may contain only directories named after versions"
    )]
    TooMany {
        /// The directory.
        path: String,
    },
    /// No installed version matches.
    #[error(
        "{name}{constraint} is not installed: {found}; a version is installed as {directory}/<version>/{name}"
    )]
    Missing {
        /// The CLI.
        name: String,
        /// The constraint after a space; empty: any version.
        constraint: String,
        /// The installed versions.
        found: String,
        /// `<directory>/<name>`.
        directory: String,
    },
}

impl InstalledVersions {
    /// Lists the installed versions of a CLI. Ignores directories with other names, and broken links.
    ///
    /// # Errors
    /// The directory cannot be read, or has too many entries.
    pub fn read(tools: &Path, name: &str) -> Result<Self, InstalledError> {
        let directory = tools.join(name);
        let unreadable = |path: &Path, source| InstalledError::Unreadable {
            path: path.display().to_string(),
            source,
        };
        let (mut versions, mut without_executable) = (Vec::new(), Vec::new());
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => Some(entries),
            // No version of this CLI is installed, but the directory itself must exist.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::read_dir(tools).map_err(|source| unreadable(tools, source))?;
                None
            }
            Err(source) => return Err(unreadable(&directory, source)),
        };
        for (index, entry) in entries.into_iter().flatten().enumerate() {
            if index == ENTRY_LIMIT {
                return Err(InstalledError::TooMany {
                    path: directory.display().to_string(),
                });
            }
            let entry = entry.map_err(|source| unreadable(&directory, source))?;
            let Some(version) = entry.file_name().to_str().and_then(parse_directory_name) else {
                continue;
            };
            if is_executable(&entry.path().join(name)) {
                versions.push(version);
            } else {
                without_executable.push(version);
            }
        }
        versions.sort();
        without_executable.sort();
        Ok(Self {
            name: name.to_owned(),
            directory,
            versions,
            without_executable,
        })
    }

    /// Returns the newest version that matches.
    ///
    /// # Errors
    /// No version matches.
    pub fn newest_matching(&self, constraint: &VersionConstraint) -> Result<&Version, InstalledError> {
        let text = if constraint.is_any() {
            String::new()
        } else {
            format!(" {constraint}")
        };
        constraint
            .newest(&self.versions)
            .ok_or_else(|| self.missing(text, |version| constraint.matches(version)))
    }

    /// Returns the CLI of this version.
    ///
    /// # Errors
    /// The version is not installed.
    pub fn find(&self, version: &str) -> Result<Tool, InstalledError> {
        let found = self.versions.iter().find(|each| each.to_string() == version);
        let found =
            found.ok_or_else(|| self.missing(format!(" {version}"), |each| each.to_string() == version))?;
        Ok(Tool {
            name: self.name.clone(),
            path: self.directory.join(found.to_string()).join(&self.name),
            version: Some(found.to_string()),
        })
    }

    fn missing(&self, constraint: String, matches: impl Fn(&Version) -> bool) -> InstalledError {
        let directory = self.directory.display().to_string();
        let mut found = if self.versions.is_empty() {
            format!("{directory} contains no version of it")
        } else {
            format!("{directory} has {}", list_newest(&self.versions))
        };
        let without_executable: Vec<Version> = self
            .without_executable
            .iter()
            .filter(|version| matches(version))
            .cloned()
            .collect();
        if !without_executable.is_empty() {
            let name = &self.name;
            found = format!(
                "{found}, and {} without an executable file {name} in it",
                list_newest(&without_executable)
            );
        }
        InstalledError::Missing {
            name: self.name.clone(),
            constraint,
            found,
            directory,
        }
    }
}

/// Parses the name of a directory. Only the canonical form is accepted, so that each version has one directory.
fn parse_directory_name(name: &str) -> Option<Version> {
    let version: Version = Some(name)
        .filter(|name| name.len() <= constraint::LENGTH_LIMIT)?
        .parse()
        .ok()?;
    (version.to_string() == name).then_some(version)
}

/// Lists the newest versions, the oldest of them first.
fn list_newest(versions: &[Version]) -> String {
    let more = versions.len().saturating_sub(LIST_LIMIT);
    let names: Vec<String> = versions.iter().skip(more).map(ToString::to_string).collect();
    let older = if more > 0 {
        format!("{more} older ones, ")
    } else {
        String::new()
    };
    format!("{older}{}", names.join(", "))
}

#[cfg(test)]
mod tests;
