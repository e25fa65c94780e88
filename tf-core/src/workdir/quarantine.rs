//! Removal of directories, and the quarantine of those that cannot be removed.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::DirectoryError;

/// Directories that cannot be removed are renamed into the quarantine so that they do not block runs, for example if a container
/// left files of another user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    parent: PathBuf,
    /// Prefix of the names.
    pub(super) prefix: String,
}

impl Quarantine {
    pub(super) fn new(parent: &Path, prefix: String) -> Self {
        Self {
            parent: parent.to_owned(),
            prefix,
        }
    }

    /// Removes a directory, or renames it into the quarantine if it cannot be removed.
    ///
    /// # Errors
    /// The directory can be neither removed nor renamed.
    pub fn remove(&self, path: &Path) -> Result<(), DirectoryError> {
        let Err(error) = remove_tree(path) else {
            return Ok(());
        };
        let target = self
            .parent
            .join(format!("{}{}", self.prefix, uuid::Uuid::new_v4().simple()));
        if fs::rename(path, &target).is_err() {
            return Err(DirectoryError::new(&format!("remove {}", path.display()), error));
        }
        tracing::warn!(%error, quarantine = %target.display(), "cannot remove a directory, so it is quarantined");
        Ok(())
    }

    /// Retries the removal of the directories in quarantine.
    pub fn retry(&self) {
        for path in entries_with_prefix(&self.parent, &self.prefix).unwrap_or_default() {
            if let Err(error) = remove_tree(&path) {
                tracing::warn!(%error, path = %path.display(), "cannot remove a quarantined directory");
            }
        }
    }
}

/// Returns the paths in a directory whose names begin with `prefix`.
///
/// # Errors
/// The directory cannot be read.
pub fn entries_with_prefix(parent: &Path, prefix: &str) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(parent)?.filter_map(Result::ok);
    let matching = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    Ok(matching.map(|entry| entry.path()).collect())
}

/// Permission of the owner to list, enter and change a directory.
const OWNER_MODE: u32 = 0o700;

/// Removes a file, a link, or a directory with its contents; a missing path is not an error. Directories without write
/// permission are removed as well: Go's module cache has such directories. After an error, removal continues with the rest.
///
/// # Errors
/// The first error of a removal.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => fs::remove_file(path),
        // A process may have added files meanwhile, so every error leads to another attempt.
        Err(error) if error.kind() != ErrorKind::NotFound => remove_with_permissions(path),
        removed => removed,
    };
    removed.or_else(unless_gone)
}

/// Sets the permissions of each directory before it removes the contents. Not recursive: a tree may be deeper than the stack.
fn remove_with_permissions(path: &Path) -> io::Result<()> {
    let (mut open, mut entered): (Vec<PathBuf>, Vec<PathBuf>) = (vec![path.to_owned()], Vec::new());
    let mut first = Ok(());
    while let Some(directory) = open.pop() {
        let listed = fs::set_permissions(&directory, Permissions::from_mode(OWNER_MODE))
            .and_then(|()| fs::read_dir(&directory));
        match listed {
            Ok(entries) => {
                for entry in entries.filter_map(Result::ok) {
                    let removed = match entry.file_type() {
                        Ok(kind) if kind.is_dir() => {
                            open.push(entry.path());
                            Ok(())
                        }
                        _ => fs::remove_file(entry.path()).or_else(unless_gone),
                    };
                    first = first.and(removed);
                }
            }
            Err(error) => {
                let removed = unless_gone(error);
                first = first.and(removed);
            }
        }
        entered.push(directory);
    }
    // Parents come before their children in the list.
    for directory in entered.iter().rev() {
        let removed = fs::remove_dir(directory).or_else(unless_gone);
        first = first.and(removed);
    }
    first
}

/// Ignores the error if the file does not exist.
fn unless_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound {
        Ok(())
    } else {
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undeletable_directories_are_quarantined_and_removed_later() {
        let dir = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::new(dir.path(), ".team_net_aside-".to_owned());
        let root = dir.path().join("team_net");
        // No name is this long: every operation on it fails, as it does on the files of another user.
        assert!(quarantine.remove(&dir.path().join("x".repeat(300))).is_err());
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        quarantine.remove(&root).unwrap();
        let quarantined = dir.path().join(format!("{}1", quarantine.prefix));
        std::fs::create_dir_all(quarantined.join("a")).unwrap();
        quarantine.retry();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
