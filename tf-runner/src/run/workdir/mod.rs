//! The working directory of a stack. It has one absolute path, because a plan stores it, and a process lock.
//!
//! The runner holds the lock ([`ProcessLock`]), and so does the CLI, even if the runner is killed: the next run of the stack
//! waits for it. A process that a provisioner left running does not hold it.

pub(crate) mod dependency_lock;
pub(crate) mod prepare;
pub(crate) mod providers;
pub(crate) mod run_environment;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::StatVfs;
use sluice_tf_core::process_lock::{Holder, ProcessLock};
use sluice_tf_core::workdir::{
    DirectoryError, Home, Quarantine, StackPaths, WorkdirOwner, create_private_directory,
    entries_with_prefix, remove_tree,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::run::lifecycle::error::RunError;

/// Log directories per stack, one for each run.
const MAX_LOG_DIRECTORIES: usize = 20;
/// Free space of a disk below which it is full, in bytes: commands cannot write their output.
const FULL: u64 = 64 * 1024;
/// Time that a holder holds the lock of the directory before it is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The directories of one stack.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    /// The unpacked artifact.
    pub(crate) root: PathBuf,
    /// Output of this run's commands.
    pub(crate) logs: PathBuf,
    /// Temporary files of this run, such as JSON with sensitive values.
    pub(crate) scratch: tempfile::TempDir,
    /// The directory of files that are mapped to the home directory.
    pub(crate) home: Home,
    /// The file of a break-glass session.
    pub(crate) session_file: PathBuf,
    /// The file of [`dependency_lock::LockPrediction`].
    pub(crate) predicted_lock: PathBuf,
    /// The locks that commands inherit: that of the directory, and that of the run if it has one.
    pub(crate) locks: Vec<Arc<ProcessLock>>,
    owner_file: PathBuf,
    /// Prefix of the paths that are being removed.
    trash_prefix: PathBuf,
    quarantine: Quarantine,
}

impl WorkDirectory {
    /// Opens the directory of a stack. `lock` is its lock, `run_lock` that of the run.
    pub(crate) fn open(
        paths: &StackPaths,
        run: &str,
        lock: ProcessLock,
        run_lock: Option<Arc<ProcessLock>>,
    ) -> Result<Self, RunError> {
        paths.quarantine.retry();
        let logs = paths.logs.join(run);
        create_private_directory(&logs)?;
        remove_old_logs(&paths.logs);
        remove_scratch(paths)?;
        remove_trash(paths);
        remove_session_file(paths)?;
        let scratch = tempfile::Builder::new()
            .prefix(&paths.scratch_prefix)
            .tempdir_in(&paths.parent)
            .map_err(|source| directory_error("create a scratch directory", source))?;
        Ok(Self {
            root: paths.root.clone(),
            logs,
            scratch,
            home: paths.home.clone(),
            owner_file: paths.owner.clone(),
            session_file: paths.break_glass.clone(),
            predicted_lock: paths.predicted_lock.clone(),
            locks: [Arc::new(lock)].into_iter().chain(run_lock).collect(),
            trash_prefix: paths.parent.join(&paths.trash_prefix),
            quarantine: paths.quarantine.clone(),
        })
    }

    /// The module, workspace and state location that the files in the directory belong to.
    pub(crate) fn owner(&self) -> Option<WorkdirOwner> {
        WorkdirOwner::read(&self.owner_file)
    }

    /// Returns whether the disk of the directory is full.
    pub(crate) fn is_full(&self) -> bool {
        rustix::fs::statvfs(&self.root).is_ok_and(|disk| is_full(&disk))
    }

    /// Clears the directory for a new owner.
    pub(crate) fn clear_for(&self, owner: &WorkdirOwner) -> Result<(), RunError> {
        self.clear()?;
        let text = serde_json::to_vec(owner)
            .map_err(|error| directory_error("write the owner of the working directory", error.into()))?;
        std::fs::write(&self.owner_file, text)
            .map_err(|source| directory_error("write the owner of the working directory", source))
    }

    /// Removes the files of earlier runs.
    fn clear(&self) -> Result<(), RunError> {
        if self.home.is_of_stack {
            self.quarantine.remove(&self.home.path)?;
        }
        self.quarantine.remove(&self.root)?;
        Ok(create_private_directory(&self.root)?)
    }

    /// Removes the files at the end of a run. They are renamed first, so that the next run does not wait for their removal.
    pub(crate) fn discard_files(self) -> Result<(), RunError> {
        let mut trash = Vec::new();
        for path in [Some(&self.root), self.home.is_of_stack.then_some(&self.home.path)]
            .into_iter()
            .flatten()
        {
            let mut target = self.trash_prefix.clone().into_os_string();
            target.push(uuid::Uuid::new_v4().simple().to_string());
            match std::fs::rename(path, &target) {
                Ok(()) => trash.push(PathBuf::from(target)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(directory_error(&format!("empty {}", path.display()), error)),
            }
        }
        // Not those above it, which a user may have deleted meanwhile.
        match std::fs::DirBuilder::new().mode(0o700).create(&self.root) {
            Err(error) if !matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
                return Err(directory_error(&format!("make {}", self.root.display()), error));
            }
            _ => {}
        }
        let quarantine = self.quarantine.clone();
        drop(self);
        Ok(trash.iter().try_for_each(|path| quarantine.remove(path))?)
    }
}

/// Locks the directory of a stack for a run. Waits while another runner, or the CLI of an earlier run, holds the lock, and calls
/// `on_wait` with each holder that holds it for a while.
pub(crate) async fn lock(
    paths: &StackPaths,
    run: &str,
    timeout: Duration,
    stop: &CancellationToken,
    mut on_wait: impl FnMut(&Holder),
) -> Result<ProcessLock, RunError> {
    create_private_directory(&paths.parent)?;
    let until = Instant::now() + timeout;
    let mut known = None;
    loop {
        let wait = REPORT_INTERVAL.min(until.saturating_duration_since(Instant::now()));
        let locked = ProcessLock::wait(&paths.lock, wait, stop).await;
        if let Some(lock) = locked.map_err(|source| directory_error("take the lock", source))? {
            lock.record_holder(run);
            return Ok(lock);
        }
        if stop.is_cancelled() {
            return Err(RunError::PreparationStopped);
        }
        let holder = Holder::read(&paths.lock);
        if Instant::now() >= until {
            return Err(RunError::Busy {
                holder,
                waited: timeout,
            });
        }
        if known.as_ref() != Some(&holder) {
            on_wait(&holder);
            known = Some(holder);
        }
    }
}

/// Removes the file of a killed break-glass session: it contains the environment.
fn remove_session_file(paths: &StackPaths) -> Result<(), RunError> {
    match std::fs::remove_file(&paths.break_glass) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(directory_error("remove the file of an earlier session", error))
        }
        _ => Ok(()),
    }
}

/// Removes the files that a killed run could not remove, in the background.
fn remove_trash(paths: &StackPaths) {
    let trash = entries_with_prefix(&paths.parent, &paths.trash_prefix).unwrap_or_default();
    let quarantine = paths.quarantine.clone();
    if !trash.is_empty() {
        drop(tokio::task::spawn_blocking(move || {
            for path in trash {
                if let Err(error) = quarantine.remove(&path) {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "the previous run removes it"
                    );
                }
            }
        }));
    }
}

/// Removes the scratch directories of killed runs: they may contain sensitive values. Their runs have ended, because this run
/// holds the lock of the stack.
fn remove_scratch(paths: &StackPaths) -> Result<(), RunError> {
    let scratch = entries_with_prefix(&paths.parent, &paths.scratch_prefix);
    for path in scratch.map_err(|source| directory_error("list scratch directories", source))? {
        paths.quarantine.remove(&path)?;
    }
    Ok(())
}

/// Removes all but the newest log directories, by modification time.
fn remove_old_logs(logs: &Path) {
    let Ok(entries) = std::fs::read_dir(logs) else {
        return;
    };
    let mut by_age: Vec<_> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    by_age.sort();
    for (_, path) in by_age.iter().rev().skip(MAX_LOG_DIRECTORIES) {
        let _ = remove_tree(path);
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    let written = open.and_then(|mut file| file.write_all(bytes));
    written.map_err(|source| directory_error(&format!("write {}", path.display()), source))
}

/// The error of a file operation in the working directory, named by what it does.
pub(crate) fn directory_error(doing: &str, source: std::io::Error) -> RunError {
    DirectoryError::new(doing, source).into()
}

/// Returns whether a file system is full. One without blocks has no size.
const fn is_full(disk: &StatVfs) -> bool {
    disk.f_blocks > 0 && disk.f_bavail.saturating_mul(disk.f_frsize) < FULL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_before_it_has_no_byte_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = rustix::fs::statvfs(dir.path()).unwrap();
        (disk.f_frsize, disk.f_blocks, disk.f_bavail) = (4096, 1000, 16);
        assert!(!is_full(&disk));
        disk.f_bavail = 15;
        assert!(is_full(&disk));
        disk.f_blocks = 0;
        assert!(!is_full(&disk));
    }

    fn open(paths: &StackPaths, run: &str) -> WorkDirectory {
        create_private_directory(&paths.parent).unwrap();
        let lock = ProcessLock::acquire(&paths.lock).unwrap().unwrap();
        WorkDirectory::open(paths, run, lock, None).unwrap()
    }

    #[tokio::test]
    async fn leftovers_of_a_killed_run_are_deleted_by_the_next_run_of_the_stack() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        let of = |name: &str| StackPaths::new(Some(&root), "team", name);
        let other = open(&of("net.x"), "net.x-1");
        let killed = open(&of("net"), "net-1");
        std::fs::write(killed.scratch.path().join("1.out"), "hunter2").unwrap();
        let session_file = killed.session_file.clone();
        std::fs::write(&session_file, "export TOKEN='hunter2'").unwrap();
        let WorkDirectory { scratch, locks, .. } = killed;
        let left = scratch.keep();
        drop(locks);
        let next = open(&of("net"), "net-2");
        assert!(
            !left.exists()
                && !session_file.exists()
                && next.scratch.path().is_dir()
                && other.scratch.path().is_dir()
        );
    }

    #[tokio::test]
    async fn the_directory_is_private_and_empty() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let paths = StackPaths::new(Some(&dir.path().join("work")), "team", "net");
        let work = open(&paths, "net-1");
        work.clear().unwrap();
        std::fs::write(work.root.join("left"), "over").unwrap();
        work.clear().unwrap();
        assert_eq!(std::fs::read_dir(&work.root).unwrap().count(), 0);
        assert_eq!(
            std::fs::metadata(&work.root).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert!(work.logs.is_dir());
    }

    #[tokio::test]
    async fn directories_are_emptied_at_the_end_or_by_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        let paths = StackPaths::new(Some(&root), "team", "net");
        let work = open(&paths, "net-1");
        work.clear().unwrap();
        std::fs::write(work.root.join("secret"), "hunter2").unwrap();
        std::fs::write(work.home.create().unwrap().join("secret"), "hunter2").unwrap();
        work.discard_files().unwrap();
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
        assert_eq!(std::fs::read_dir(&paths.root).unwrap().count(), 0);
        // A kill between the rename and the removal.
        let trash = root.join(".team_net_trash-1");
        std::fs::create_dir_all(trash.join("a")).unwrap();
        let next = open(&paths, "net-2");
        let gone = async {
            while trash.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), gone).await.unwrap();
        drop(next);
    }

    #[tokio::test]
    async fn a_deleted_work_root_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        let work = open(&StackPaths::new(Some(&root), "team", "net"), "net-1");
        work.clear().unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        work.discard_files().unwrap();
        assert!(!root.exists());
    }

    #[tokio::test]
    async fn a_run_that_waits_for_the_directory_names_its_holder_once() {
        let dir = tempfile::tempdir().unwrap();
        let (paths, stop) = (
            StackPaths::new(Some(&dir.path().join("work")), "team", "net"),
            CancellationToken::new(),
        );
        // Two reports would fit.
        let wait = REPORT_INTERVAL * 5 / 2;
        let held = lock(&paths, "net-1", wait, &stop, |_| panic!("it is free"))
            .await
            .unwrap();
        let mut holders = Vec::new();
        let next = lock(&paths, "net-2", wait, &stop, |holder| {
            holders.push(holder.to_string());
        })
        .await;
        let expected = format!("run net-1 (process {})", std::process::id());
        assert_eq!(holders, [&*expected]);
        assert_eq!(
            next.unwrap_err().to_string(),
            format!("{expected} still works on this stack (waited 2.5s)")
        );
        stop.cancel();
        let stopped = lock(&paths, "net-2", Duration::from_hours(1), &stop, |_| ()).await;
        assert!(matches!(stopped, Err(RunError::PreparationStopped)));
        drop(held);
        assert!(lock(&paths, "net-2", wait, &stop, |_| ()).await.is_ok());
    }
}
