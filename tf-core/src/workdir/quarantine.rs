//! Directories that cannot be removed.

use std::path::{Path, PathBuf};

use super::DirectoryError;
use crate::removal::remove_tree;

/// Directories that could not be removed are renamed into it, so that they block no run: files of another user that a container
/// left, for instance.
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
    /// Neither works.
    pub fn remove(&self, path: &Path) -> Result<(), DirectoryError> {
        let Err(error) = remove_tree(path) else {
            return Ok(());
        };
        let aside = self
            .parent
            .join(format!("{}{}", self.prefix, uuid::Uuid::new_v4().simple()));
        if std::fs::rename(path, &aside).is_err() {
            return Err(DirectoryError::new(&format!("remove {}", path.display()), error));
        }
        tracing::warn!(%error, aside = %aside.display(), "a directory cannot be removed and is put aside");
        Ok(())
    }

    /// Tries again to remove what is in quarantine.
    pub fn retry(&self) {
        for path in entries_with_prefix(&self.parent, &self.prefix).unwrap_or_default() {
            if let Err(error) = remove_tree(&path) {
                tracing::warn!(%error, path = %path.display(), "a directory that was put aside cannot be removed");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_removed_is_quarantined_and_removed_later() {
        let dir = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::new(dir.path(), ".team_net_aside-".to_owned());
        let root = dir.path().join("team_net");
        // No name is this long: every operation on it fails, as it does on the files of another user.
        assert!(quarantine.remove(&dir.path().join("x".repeat(300))).is_err());
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        quarantine.remove(&root).unwrap();
        let aside = dir.path().join(format!("{}1", quarantine.prefix));
        std::fs::create_dir_all(aside.join("a")).unwrap();
        quarantine.retry();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
