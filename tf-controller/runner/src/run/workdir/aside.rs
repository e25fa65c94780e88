//! Directories on their way out: renamed first, so that they stand in no run's way, and removed when there is time.

use std::path::{Path, PathBuf};

use super::failed;
use crate::removal::remove_tree;
use crate::run::RunError;

/// Removes, beside the run, what an earlier one had not yet removed when it was killed.
pub(super) fn forget_trash(parent: &Path, prefix: &str, unremovable: &Unremovable) {
    let left = beginning_with(parent, prefix).unwrap_or_default();
    let unremovable = unremovable.clone();
    if !left.is_empty() {
        drop(tokio::task::spawn_blocking(move || {
            for path in left {
                if let Err(error) = unremovable.remove(&path) {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "the run before removes it"
                    );
                }
            }
        }));
    }
}

/// Where what cannot be removed is put, so that it stands in no run's way: files of another user that a container left, for instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unremovable {
    parent: PathBuf,
    /// How the names begin.
    pub(super) prefix: String,
}

impl Unremovable {
    pub(super) fn new(parent: &Path, prefix: String) -> Self {
        Self {
            parent: parent.to_owned(),
            prefix,
        }
    }

    /// Removes a directory; puts it aside where that cannot be done.
    pub(super) fn remove(&self, path: &Path) -> Result<(), RunError> {
        let Err(error) = remove_tree(path) else {
            return Ok(());
        };
        let aside = self
            .parent
            .join(format!("{}{}", self.prefix, uuid::Uuid::new_v4().simple()));
        std::fs::rename(path, &aside)
            .map_err(|_| failed(&format!("remove {}", path.display()), error_again(&error)))?;
        tracing::warn!(%error, aside = %aside.display(), "a directory cannot be removed and is put aside");
        Ok(())
    }

    /// What was put aside goes, if it can be removed by now.
    pub(super) fn try_again(&self) {
        for path in beginning_with(&self.parent, &self.prefix).unwrap_or_default() {
            if let Err(error) = remove_tree(&path) {
                tracing::warn!(%error, path = %path.display(), "a directory that was put aside cannot be removed");
            }
        }
    }
}

/// The paths in a directory whose names begin so.
pub(super) fn beginning_with(parent: &Path, prefix: &str) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(parent)?.filter_map(Result::ok);
    let wanted = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    Ok(wanted.map(|entry| entry.path()).collect())
}

/// The same error once more, for its message.
fn error_again(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::super::{Places, take};
    use super::*;

    const SHORT: Duration = Duration::from_millis(150);

    #[test]
    fn what_cannot_be_removed_is_put_aside_and_goes_later() {
        let dir = tempfile::tempdir().unwrap();
        let unremovable = Unremovable::new(dir.path(), ".team_net_aside-".to_owned());
        let root = dir.path().join("team_net");
        // No name is this long: whatever is asked of it fails, as it does for the files of another user.
        assert!(unremovable.remove(&dir.path().join("x".repeat(300))).is_err());
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        unremovable.remove(&root).unwrap();
        let aside = dir.path().join(format!("{}1", unremovable.prefix));
        std::fs::create_dir_all(aside.join("a")).unwrap();
        unremovable.try_again();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_directory_that_is_left_is_empty_and_what_a_kill_interrupts_goes_with_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let (root, stop) = (dir.path().join("work"), CancellationToken::new());
        let places = Places::of(Some(&root), "team", "net");
        let work = take(&places, ("net-1", None), SHORT, &stop).await.unwrap();
        work.clear().unwrap();
        std::fs::write(work.root.join("secret"), "hunter2").unwrap();
        std::fs::write(work.home.make().unwrap().join("secret"), "hunter2").unwrap();
        work.leave().unwrap();
        let names = || {
            let mut names: Vec<_> = std::fs::read_dir(&root)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        let usual = [".team_net.lock", ".team_net.logs", "team_net"];
        assert_eq!(names(), usual);
        assert_eq!(std::fs::read_dir(&places.root).unwrap().count(), 0);
        // A kill between the rename and the removal.
        let trash = root.join(".team_net_trash-1");
        std::fs::create_dir_all(trash.join("a")).unwrap();
        let next = take(&places, ("net-2", None), SHORT, &stop).await.unwrap();
        let gone = async {
            while trash.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
        drop(next);
    }
}
