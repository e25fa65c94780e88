//! The stack's working directory: one fixed absolute path, since a plan remembers it, held by an advisory lock.
//!
//! The lock ([`ProcessLock`]) is held by the runner, and by the CLI even when the runner has been killed: the next run of the stack
//! waits for it. What a provisioner left running holds nothing.

pub(crate) mod lock_file;
pub(crate) mod predicted_lock;
pub(crate) mod prepare;
pub(crate) mod providers;
pub(crate) mod run_environment;

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::run::lifecycle::error::RunError;
use sluice_tf_core::process_lock::ProcessLock;
use sluice_tf_core::workdir::remove_tree;
use sluice_tf_core::workdir::{
    DirectoryError, Home, Quarantine, StackPaths, WorkdirOwner, create_private_directory, entries_with_prefix,
};

/// How often a held lock is tried again.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Log directories kept per stack.
const LOGS_KEPT: usize = 20;

/// The directories of one stack.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    /// The artifact is unpacked here.
    pub(crate) root: PathBuf,
    /// Output of this run's commands.
    pub(crate) logs: PathBuf,
    /// Files of this run that nobody else sees, such as JSON with sensitive values.
    pub(crate) scratch: tempfile::TempDir,
    /// Where files that are mapped to the home directory go.
    pub(crate) home: Home,
    /// The file by which a person gets into a break-the-glass session.
    pub(crate) door: PathBuf,
    /// What `init` made of the module's lock file at the last run.
    pub(crate) predicted_lock: PathBuf,
    /// The locks that its commands hold when the runner is killed: the directory's, and the run's where it has one.
    pub(crate) locks: Vec<Arc<ProcessLock>>,
    tenant: PathBuf,
    /// How the names begin of what is being removed.
    trash: PathBuf,
    /// Where what cannot be removed is put.
    quarantine: Quarantine,
}

/// Takes the stack's directory, waiting while an earlier CLI still works in it. `alive` is the lock of the run.
pub(crate) async fn take(
    paths: &StackPaths,
    (run, alive): (&str, Option<Arc<ProcessLock>>),
    wait: Duration,
    stop: &CancellationToken,
) -> Result<WorkDirectory, RunError> {
    create_private_directory(&paths.parent)?;
    let lock = lock(&paths.lock, wait, stop).await?;
    paths.quarantine.retry();
    let logs = paths.logs.join(run);
    create_private_directory(&logs)?;
    forget_old_logs(&paths.logs);
    forget_scratch(paths)?;
    forget_trash(paths);
    forget_door(paths)?;
    let scratch = tempfile::Builder::new()
        .prefix(&paths.scratch_prefix)
        .tempdir_in(&paths.parent)
        .map_err(|source| failed("make a scratch directory", source))?;
    Ok(WorkDirectory {
        root: paths.root.clone(),
        logs,
        scratch,
        home: paths.home.clone(),
        tenant: paths.owner.clone(),
        door: paths.break_glass.clone(),
        predicted_lock: paths.predicted_lock.clone(),
        locks: [lock].into_iter().chain(alive).collect(),
        trash: paths.parent.join(&paths.trash_prefix),
        quarantine: paths.quarantine.clone(),
    })
}

impl WorkDirectory {
    /// Whose files lie in the directory, if somebody's do.
    pub(crate) fn tenant(&self) -> Option<WorkdirOwner> {
        WorkdirOwner::read(&self.tenant)
    }

    /// Empties the directory for a new tenant.
    pub(crate) fn occupy(&self, tenant: &WorkdirOwner) -> Result<(), RunError> {
        self.clear()?;
        let text = serde_json::to_vec(tenant).map_err(|error| failed("name the tenant", error.into()))?;
        std::fs::write(&self.tenant, text).map_err(|source| failed("name the tenant", source))
    }

    /// Removes what an earlier run left.
    pub(crate) fn clear(&self) -> Result<(), RunError> {
        if self.home.is_of_stack {
            self.quarantine.remove(&self.home.path)?;
        }
        self.quarantine.remove(&self.root)?;
        Ok(create_private_directory(&self.root)?)
    }

    /// Clears the directory at the end of its run. It is emptied by rename, so that the next run need not wait for the removal.
    pub(crate) fn leave(self) -> Result<(), RunError> {
        let mut trash = Vec::new();
        for path in [Some(&self.root), self.home.is_of_stack.then_some(&self.home.path)]
            .into_iter()
            .flatten()
        {
            let mut aside = self.trash.clone().into_os_string();
            aside.push(uuid::Uuid::new_v4().simple().to_string());
            match std::fs::rename(path, &aside) {
                Ok(()) => trash.push(PathBuf::from(aside)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&format!("empty {}", path.display()), error)),
            }
        }
        create_private_directory(&self.root)?;
        let quarantine = self.quarantine.clone();
        drop(self);
        Ok(trash.iter().try_for_each(|path| quarantine.remove(path))?)
    }
}

/// A session that was killed left its door open: what it holds of the environment goes with it.
fn forget_door(paths: &StackPaths) -> Result<(), RunError> {
    match std::fs::remove_file(&paths.break_glass) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("remove the door of an earlier session", error))
        }
        _ => Ok(()),
    }
}

/// Waits for the lock of a path.
pub(crate) async fn lock(
    path: &Path,
    wait: Duration,
    stop: &CancellationToken,
) -> Result<Arc<ProcessLock>, RunError> {
    let until = Instant::now() + wait;
    loop {
        let taken = ProcessLock::acquire(path).map_err(|source| failed("take the lock", source))?;
        if let Some(lock) = taken {
            return Ok(Arc::new(lock));
        }
        if Instant::now() >= until || stop.is_cancelled() {
            return Err(RunError::Busy { waited: wait });
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// Removes, in the background, what an earlier run was killed before it had removed.
fn forget_trash(paths: &StackPaths) {
    let left = entries_with_prefix(&paths.parent, &paths.trash_prefix).unwrap_or_default();
    let quarantine = paths.quarantine.clone();
    if !left.is_empty() {
        drop(tokio::task::spawn_blocking(move || {
            for path in left {
                if let Err(error) = quarantine.remove(&path) {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "the run before removes it"
                    );
                }
            }
        }));
    }
}

/// Removes what runs that were killed left: it may hold sensitive values. The lock of the stack tells that none of them lives.
fn forget_scratch(paths: &StackPaths) -> Result<(), RunError> {
    let left = entries_with_prefix(&paths.parent, &paths.scratch_prefix);
    for path in left.map_err(|source| failed("look for scratch", source))? {
        paths.quarantine.remove(&path)?;
    }
    Ok(())
}

/// Keeps the newest few. Names of runs end in their sequence, so order by time of change.
fn forget_old_logs(logs: &Path) {
    let Ok(entries) = std::fs::read_dir(logs) else {
        return;
    };
    let mut aged: Vec<_> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    aged.sort();
    for (_, path) in aged.iter().rev().skip(LOGS_KEPT) {
        let _ = remove_tree(path);
    }
}

/// Reads a whole file. The size is checked first, so a larger file is never read.
///
/// # Errors
/// It cannot be read, or is larger than the limit.
pub(crate) fn read_limited(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    if size <= limit {
        file.take(limit + 1).read_to_end(&mut bytes)?;
    }
    let size = size.max(bytes.len() as u64);
    if size <= limit {
        return Ok(bytes);
    }
    let name = path.file_name().unwrap_or_default().display();
    let text = format!("{name} has {size} bytes, more than the {limit} that are read");
    Err(Error::new(ErrorKind::FileTooLarge, text))
}

pub(crate) fn failed(doing: &str, source: std::io::Error) -> RunError {
    DirectoryError::new(doing, source).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(150);

    #[tokio::test]
    async fn who_waits_for_the_lock_of_a_stack_gives_up_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let (path, stop) = (dir.path().join("net.lock"), CancellationToken::new());
        let held = lock(&path, SHORT, &stop).await.unwrap();
        let second = lock(&path, SHORT, &stop).await;
        assert!(matches!(second, Err(RunError::Busy { .. })), "{second:?}");
        drop(held);
        assert!(lock(&path, SHORT, &stop).await.is_ok());
    }

    #[tokio::test]
    async fn what_a_killed_run_left_aside_goes_with_the_next_and_another_stacks_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        let stop = CancellationToken::new();
        let of = |name: &str| StackPaths::new(Some(&root), "team", name);
        let other = take(&of("net.x"), ("net.x-1", None), SHORT, &stop).await.unwrap();
        let killed = take(&of("net"), ("net-1", None), SHORT, &stop).await.unwrap();
        std::fs::write(killed.scratch.path().join("1.out"), "hunter2").unwrap();
        let door = killed.door.clone();
        std::fs::write(&door, "export TOKEN='hunter2'").unwrap();
        let WorkDirectory { scratch, locks, .. } = killed;
        let left = scratch.keep();
        drop(locks);
        let next = take(&of("net"), ("net-2", None), SHORT, &stop).await.unwrap();
        assert!(
            !left.exists() && !door.exists() && next.scratch.path().is_dir() && other.scratch.path().is_dir()
        );
    }

    #[tokio::test]
    async fn the_directory_is_private_and_empty() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let paths = StackPaths::new(Some(&dir.path().join("work")), "team", "net");
        let stop = CancellationToken::new();
        let work = take(&paths, ("net-1", None), SHORT, &stop).await.unwrap();
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
    async fn a_directory_that_is_left_is_empty_and_what_a_kill_interrupts_goes_with_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let (root, stop) = (dir.path().join("work"), CancellationToken::new());
        let paths = StackPaths::new(Some(&root), "team", "net");
        let work = take(&paths, ("net-1", None), SHORT, &stop).await.unwrap();
        work.clear().unwrap();
        std::fs::write(work.root.join("secret"), "hunter2").unwrap();
        std::fs::write(work.home.create().unwrap().join("secret"), "hunter2").unwrap();
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
        assert_eq!(std::fs::read_dir(&paths.root).unwrap().count(), 0);
        // A kill between the rename and the removal.
        let trash = root.join(".team_net_trash-1");
        std::fs::create_dir_all(trash.join("a")).unwrap();
        let next = take(&paths, ("net-2", None), SHORT, &stop).await.unwrap();
        let gone = async {
            while trash.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
        drop(next);
    }

    #[test]
    fn a_file_above_its_limit_is_refused_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read_limited(&path, 4).unwrap(), b"four");
        let error = read_limited(&path, 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(
            error.to_string(),
            "file has 4 bytes, more than the 3 that are read"
        );
        // As large as no memory is.
        let sparse = dir.path().join("sparse");
        File::create(&sparse).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(
            read_limited(&sparse, 9).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
        assert_eq!(
            read_limited(&dir.path().join("none"), 9).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}
