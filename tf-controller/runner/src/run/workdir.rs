//! The stack's working directory: one fixed absolute path, since a plan remembers it, held by an advisory lock.
//!
//! The lock is handed down to the CLI, which therefore holds it even when the runner has been killed: the next run of the
//! stack waits for it. At its own end the runner opens it for all, so that what a provisioner left running holds nothing.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::{Errno, FdFlags};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::RunError;

/// How often a held lock is tried again.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// The home directory in a pod; upstream's.
const POD_HOME: &str = "/home/runner";
/// Log directories kept per stack.
const LOGS_KEPT: usize = 20;

/// A lock on a file, inherited by children.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// The directories of one stack.
#[derive(Debug)]
pub(super) struct WorkDirectory {
    /// The artifact is unpacked here.
    pub(super) root: PathBuf,
    /// Output of this run's commands.
    pub(super) logs: PathBuf,
    /// Files of this run that nobody else sees, such as JSON with sensitive values.
    pub(super) scratch: tempfile::TempDir,
    /// Where files that are mapped to the home directory go.
    pub(super) home: Home,
    /// The file by which a person gets into a break-the-glass session.
    pub(super) door: PathBuf,
    tenant: PathBuf,
    _lock: Lock,
}

/// The home directory of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Home {
    /// Its path.
    pub(super) path: PathBuf,
    /// It is the stack's alone, made for mapped files. A pod's is the pod's.
    own: bool,
}

impl Home {
    /// Its path, once it is there.
    pub(super) fn make(&self) -> Result<&Path, RunError> {
        private_directory(&self.path)?;
        Ok(&self.path)
    }
}

/// What the directory is used for now: where the CLI of an earlier run may have left a state, and of which workspace.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tenant {
    /// Module directory inside the artifact.
    pub(super) path: String,
    /// Workspace of the CLI.
    pub(super) workspace: String,
    /// The place of the state, as the bundle tells it.
    #[serde(default)]
    pub(super) place: String,
}

/// Where a stack's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The working directory.
    pub(super) root: PathBuf,
    lock: PathBuf,
    logs: PathBuf,
    home: Home,
    tenant: PathBuf,
    door: PathBuf,
    /// How the names of scratch directories begin. `_` is in no name: this is no other stack's.
    scratch: String,
    parent: PathBuf,
}

impl Places {
    /// Below `work_root`; in a pod, upstream's `/tmp/<namespace>-<name>`. `_` is in no name, so no two stacks meet.
    pub(super) fn of(work_root: Option<&Path>, namespace: &str, name: &str) -> Self {
        let (parent, base) = match work_root {
            Some(root) => (root.to_owned(), format!("{namespace}_{name}")),
            None => (PathBuf::from("/tmp"), format!("{namespace}-{name}")),
        };
        let beside = |suffix: &str| parent.join(format!(".{base}.{suffix}"));
        Self {
            root: parent.join(&base),
            lock: beside("lock"),
            logs: beside("logs"),
            home: Home {
                path: work_root.map_or_else(|| PathBuf::from(POD_HOME), |_| beside("home")),
                own: work_root.is_some(),
            },
            tenant: beside("tenant"),
            // In a pod there is one stack, and upstream's tools know this name.
            door: match work_root {
                Some(_) => beside("break-glass"),
                None => parent.join(".break-glass"),
            },
            scratch: format!(".{base}_run-"),
            parent: parent.clone(),
        }
    }
}

/// Takes the stack's directory, empty, waiting while an earlier CLI still works in it.
pub(super) async fn take(
    places: &Places,
    run: &str,
    wait: Duration,
    stop: &CancellationToken,
) -> Result<WorkDirectory, RunError> {
    private_directory(&places.parent)?;
    let lock = lock(&places.lock, wait, stop).await?;
    let logs = places.logs.join(run);
    private_directory(&logs)?;
    forget_old_logs(&places.logs);
    forget_scratch(places)?;
    forget_door(places)?;
    let scratch = tempfile::Builder::new()
        .prefix(&places.scratch)
        .tempdir_in(&places.parent)
        .map_err(|source| failed("make a scratch directory", source))?;
    Ok(WorkDirectory {
        root: places.root.clone(),
        logs,
        scratch,
        home: places.home.clone(),
        tenant: places.tenant.clone(),
        door: places.door.clone(),
        _lock: lock,
    })
}

impl WorkDirectory {
    /// Whose files lie in the directory, if somebody's do.
    pub(super) fn tenant(&self) -> Option<Tenant> {
        std::fs::read(&self.tenant)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
    }

    /// Empties the directory for a new tenant.
    pub(super) fn occupy(&self, tenant: &Tenant) -> Result<(), RunError> {
        self.clear()?;
        let text = serde_json::to_vec(tenant).map_err(|error| failed("name the tenant", error.into()))?;
        std::fs::write(&self.tenant, text).map_err(|source| failed("name the tenant", source))
    }

    /// Removes what an earlier run left.
    pub(super) fn clear(&self) -> Result<(), RunError> {
        if self.home.own {
            remove(&self.home.path)?;
        }
        remove(&self.root)?;
        private_directory(&self.root)
    }
}

/// A session that was killed left its door open: what it holds of the environment goes with it.
fn forget_door(places: &Places) -> Result<(), RunError> {
    match std::fs::remove_file(&places.door) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("remove the door of an earlier session", error))
        }
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), RunError> {
    let removed = match std::fs::remove_dir_all(path) {
        // A provisioner may have put something else in its place.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => std::fs::remove_file(path),
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("empty the working directory", error))
        }
        _ => Ok(()),
    }
}

/// Waits for a file's lock.
pub(super) async fn lock(path: &Path, wait: Duration, stop: &CancellationToken) -> Result<Lock, RunError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| failed("open the lock file", source))?;
    let until = Instant::now() + wait;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if Instant::now() < until && !stop.is_cancelled() => {
                tokio::time::sleep(TRY_EVERY).await;
            }
            Err(Errno::WOULDBLOCK) => return Err(RunError::Busy { waited: wait }),
            Err(error) => return Err(failed("lock the lock file", error.into())),
        }
    }
    rustix::io::fcntl_setfd(&file, FdFlags::empty())
        .map_err(|error| failed("hand down the lock", error.into()))?;
    Ok(Lock(file))
}

/// Whether a living process holds the lock of a file.
///
/// # Errors
/// When the file is there and cannot be opened.
pub fn is_locked(path: &Path) -> std::io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn private_directory(path: &Path) -> Result<(), RunError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| failed(&format!("make {}", path.display()), source))
}

/// Removes what runs that were killed left: it may hold sensitive values. The lock of the stack tells that none of them lives.
fn forget_scratch(places: &Places) -> Result<(), RunError> {
    let entries = std::fs::read_dir(&places.parent).map_err(|source| failed("look for scratch", source))?;
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(&places.scratch) {
            remove(&entry.path())?;
        }
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
        let _ = std::fs::remove_dir_all(path);
    }
}

pub(super) fn failed(doing: &str, source: std::io::Error) -> RunError {
    RunError::Directory {
        doing: doing.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(150);

    #[tokio::test]
    async fn a_child_holds_the_lock_until_it_ends_or_the_runner_opens_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let stop = CancellationToken::new();
        let held = lock(&path, SHORT, &stop).await.unwrap();
        assert!(is_locked(&path).unwrap());
        assert!(matches!(
            lock(&path, SHORT, &stop).await,
            Err(RunError::Busy { .. })
        ));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        drop(held);
        assert!(
            !is_locked(&path).unwrap(),
            "the end of a run opens the lock even for what it left running"
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn no_two_stacks_share_a_directory() {
        let root = Path::new("/work");
        assert_ne!(
            Places::of(Some(root), "a", "b-c").root,
            Places::of(Some(root), "a-b", "c").root
        );
        assert_eq!(Places::of(None, "team", "net").root, Path::new("/tmp/team-net"));
    }

    #[tokio::test]
    async fn what_a_killed_run_left_aside_goes_with_the_next_and_another_stacks_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        let stop = CancellationToken::new();
        let of = |name: &str| Places::of(Some(&root), "team", name);
        let other = take(&of("net.x"), "net.x-1", SHORT, &stop).await.unwrap();
        let killed = take(&of("net"), "net-1", SHORT, &stop).await.unwrap();
        std::fs::write(killed.scratch.path().join("1.out"), "hunter2").unwrap();
        let door = killed.door.clone();
        std::fs::write(&door, "export TOKEN='hunter2'").unwrap();
        let WorkDirectory {
            scratch, _lock: lock, ..
        } = killed;
        let left = scratch.keep();
        drop(lock);
        let next = take(&of("net"), "net-2", SHORT, &stop).await.unwrap();
        assert!(
            !left.exists() && !door.exists() && next.scratch.path().is_dir() && other.scratch.path().is_dir()
        );
    }

    #[tokio::test]
    async fn the_directory_is_private_and_empty() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let places = Places::of(Some(&dir.path().join("work")), "team", "net");
        let stop = CancellationToken::new();
        let work = take(&places, "net-1", SHORT, &stop).await.unwrap();
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
}
