//! The programs below `--tools-dir`, each at `<directory>/<name>/<version>/<name>`. Controller and runner share this: the
//! first chooses a version, the second runs just that one.

mod wanted;

pub use wanted::{NoVersion, Wanted};

use super::tool::{Tool, is_executable};
use semver::Version;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Most entries of one directory that are looked at.
const MOST_ENTRIES: usize = 1000;
/// Most versions that an error lists.
const MOST_LISTED: usize = 20;

/// What is installed of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    name: String,
    /// `<directory>/<name>`.
    place: PathBuf,
    /// Oldest first.
    versions: Vec<Version>,
    /// Folders of versions in which the program is not, or is none.
    hollow: Vec<Version>,
}

/// Why no installed program can be had.
#[derive(Debug, thiserror::Error)]
pub enum InstalledError {
    /// The directory cannot be read.
    #[error("cannot read the directory of installed programs {path}: {source}")]
    Unreadable {
        /// The directory.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The directory holds more than is looked at.
    #[error("{path} has more than {MOST_ENTRIES} entries; keep only folders of versions in it")]
    TooMany {
        /// The directory.
        path: String,
    },
    /// No version that is asked for is there.
    #[error("{name}{wanted} is not installed: {found}; a version is installed as {place}/<version>/{name}")]
    Missing {
        /// The program.
        name: String,
        /// What is asked for, behind a space; empty: any version.
        wanted: String,
        /// What is there instead.
        found: String,
        /// `<directory>/<name>`.
        place: String,
    },
}

impl Installed {
    /// Reads what is installed of a program. A folder whose name is no version is passed over, as are links that lead nowhere.
    ///
    /// # Errors
    /// When the directory cannot be read, or holds too much.
    pub fn read(tools: &Path, name: &str) -> Result<Self, InstalledError> {
        let place = tools.join(name);
        let unreadable = |path: &Path, source| InstalledError::Unreadable {
            path: path.display().to_string(),
            source,
        };
        let (mut versions, mut hollow) = (Vec::new(), Vec::new());
        let entries = match std::fs::read_dir(&place) {
            Ok(entries) => Some(entries),
            // Nothing of this program is there; the directory itself has to be.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::read_dir(tools).map_err(|source| unreadable(tools, source))?;
                None
            }
            Err(source) => return Err(unreadable(&place, source)),
        };
        for (index, entry) in entries.into_iter().flatten().enumerate() {
            if index == MOST_ENTRIES {
                return Err(InstalledError::TooMany {
                    path: place.display().to_string(),
                });
            }
            let entry = entry.map_err(|source| unreadable(&place, source))?;
            let Some(version) = entry.file_name().to_str().and_then(version_of_folder) else {
                continue;
            };
            if is_executable(&entry.path().join(name)) {
                versions.push(version);
            } else {
                hollow.push(version);
            }
        }
        versions.sort();
        hollow.sort();
        Ok(Self {
            name: name.to_owned(),
            place,
            versions,
            hollow,
        })
    }

    /// The newest version that is asked for.
    ///
    /// # Errors
    /// When there is none; says which are there.
    pub fn choose(&self, wanted: &Wanted) -> Result<&Version, InstalledError> {
        let text = if wanted.is_any() {
            String::new()
        } else {
            format!(" {wanted}")
        };
        wanted
            .newest(&self.versions)
            .ok_or_else(|| self.missing(text, |version| wanted.takes(version)))
    }

    /// The program of exactly this version.
    ///
    /// # Errors
    /// When it is not there; says which versions are.
    pub fn program(&self, version: &str) -> Result<Tool, InstalledError> {
        let found = self.versions.iter().find(|held| held.to_string() == version);
        let found =
            found.ok_or_else(|| self.missing(format!(" {version}"), |held| held.to_string() == version))?;
        Ok(Tool {
            name: self.name.clone(),
            path: self.place.join(found.to_string()).join(&self.name),
        })
    }

    fn missing(&self, wanted: String, is_wanted: impl Fn(&Version) -> bool) -> InstalledError {
        let place = self.place.display().to_string();
        let mut found = if self.versions.is_empty() {
            format!("{place} has no version of it")
        } else {
            format!("{place} has {}", listed(&self.versions))
        };
        let hollow: Vec<Version> = self
            .hollow
            .iter()
            .filter(|held| is_wanted(held))
            .cloned()
            .collect();
        if !hollow.is_empty() {
            let name = &self.name;
            found = format!(
                "{found}, and {} without an executable file {name} in it",
                listed(&hollow)
            );
        }
        InstalledError::Missing {
            name: self.name.clone(),
            wanted,
            found,
            place,
        }
    }
}

/// The version that a folder is named after: just as versions are printed, so that one version has one folder.
fn version_of_folder(name: &str) -> Option<Version> {
    let version: Version = Some(name)
        .filter(|name| name.len() <= wanted::LONGEST)?
        .parse()
        .ok()?;
    (version.to_string() == name).then_some(version)
}

/// The newest ones, oldest of them first.
fn listed(versions: &[Version]) -> String {
    let more = versions.len().saturating_sub(MOST_LISTED);
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
