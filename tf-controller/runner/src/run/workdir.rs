//! The stack's working directory: one fixed absolute path, since a plan remembers it, held by an advisory lock.
//!
//! The lock ([`ProcessLock`]) is held by the runner, and by the CLI even when the runner has been killed: the next run of the stack
//! waits for it. What a provisioner left running holds nothing.

mod aside;
mod removal;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::aside::{Unremovable, beginning_with, forget_trash};
use super::error::RunError;
use crate::process_lock::ProcessLock;
use crate::removal::remove_tree;

pub use removal::{Removal, list, remove};

/// How often a held lock is tried again.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// The home directory in a pod; upstream's.
const POD_HOME: &str = "/home/runner";
/// Log directories kept per stack.
const LOGS_KEPT: usize = 20;

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
    /// What `init` made of the module's lock file at the last run.
    pub(super) predicted_lock: PathBuf,
    /// The locks that its commands hold when the runner is killed: the directory's, and the run's where it has one.
    pub(super) locks: Vec<Arc<ProcessLock>>,
    tenant: PathBuf,
    /// How the names begin of what is being removed.
    trash: PathBuf,
    /// Where what cannot be removed is put.
    unremovable: Unremovable,
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

impl Tenant {
    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
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
    predicted_lock: PathBuf,
    /// How the names of scratch directories begin. `_` is in no name: this is no other stack's.
    scratch: String,
    trash: String,
    unremovable: Unremovable,
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
            predicted_lock: beside("providers"),
            scratch: format!(".{base}_run-"),
            trash: format!(".{base}_trash-"),
            unremovable: Unremovable::new(&parent, format!(".{base}_aside-")),
            parent: parent.clone(),
        }
    }
}

/// Takes the stack's directory, waiting while an earlier CLI still works in it. `alive` is the lock of the run.
pub(super) async fn take(
    places: &Places,
    (run, alive): (&str, Option<Arc<ProcessLock>>),
    wait: Duration,
    stop: &CancellationToken,
) -> Result<WorkDirectory, RunError> {
    private_directory(&places.parent)?;
    let lock = lock(&places.lock, wait, stop).await?;
    places.unremovable.try_again();
    let logs = places.logs.join(run);
    private_directory(&logs)?;
    forget_old_logs(&places.logs);
    forget_scratch(places)?;
    forget_trash(&places.parent, &places.trash, &places.unremovable);
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
        predicted_lock: places.predicted_lock.clone(),
        locks: [lock].into_iter().chain(alive).collect(),
        trash: places.parent.join(&places.trash),
        unremovable: places.unremovable.clone(),
    })
}

impl WorkDirectory {
    /// Whose files lie in the directory, if somebody's do.
    pub(super) fn tenant(&self) -> Option<Tenant> {
        Tenant::read(&self.tenant)
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
            self.unremovable.remove(&self.home.path)?;
        }
        self.unremovable.remove(&self.root)?;
        private_directory(&self.root)
    }

    /// Clears the directory at the end of its run. It is emptied by rename, so that the next run need not wait for the removal.
    pub(super) fn leave(self) -> Result<(), RunError> {
        let mut trash = Vec::new();
        for path in [Some(&self.root), self.home.own.then_some(&self.home.path)]
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
        private_directory(&self.root)?;
        let unremovable = self.unremovable.clone();
        drop(self);
        trash.iter().try_for_each(|path| unremovable.remove(path))
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

/// Waits for the lock of a path.
pub(super) async fn lock(
    path: &Path,
    wait: Duration,
    stop: &CancellationToken,
) -> Result<Arc<ProcessLock>, RunError> {
    let until = Instant::now() + wait;
    loop {
        let taken = ProcessLock::take(path).map_err(|source| failed("take the lock", source))?;
        if let Some(lock) = taken {
            return Ok(Arc::new(lock));
        }
        if Instant::now() >= until || stop.is_cancelled() {
            return Err(RunError::Busy { waited: wait });
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
}

fn private_directory(path: &Path) -> Result<(), RunError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| failed(&format!("make {}", path.display()), source))
}

/// Removes what runs that were killed left: it may hold sensitive values. The lock of the stack tells that none of them lives.
fn forget_scratch(places: &Places) -> Result<(), RunError> {
    let left = beginning_with(&places.parent, &places.scratch);
    for path in left.map_err(|source| failed("look for scratch", source))? {
        places.unremovable.remove(&path)?;
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
    async fn who_waits_for_the_lock_of_a_stack_gives_up_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let (path, stop) = (dir.path().join("net.lock"), CancellationToken::new());
        let held = lock(&path, SHORT, &stop).await.unwrap();
        let second = lock(&path, SHORT, &stop).await;
        assert!(matches!(second, Err(RunError::Busy { .. })), "{second:?}");
        drop(held);
        assert!(lock(&path, SHORT, &stop).await.is_ok());
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
        let places = Places::of(Some(&dir.path().join("work")), "team", "net");
        let stop = CancellationToken::new();
        let work = take(&places, ("net-1", None), SHORT, &stop).await.unwrap();
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
