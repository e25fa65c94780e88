//! The files of runs, which are the process lock of runner and CLI and the runner's log, and the working directories of stacks.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sluice_runtime::schedule::ObjectKey;
use sluice_tf_core::process_lock::{CLI_SUFFIX, ProcessLock};
use sluice_tf_core::workdir::{self, CleanupOutcome};
use tokio::sync::mpsc::UnboundedSender;

use super::{IsGone, LOCK_POLL_INTERVAL, RunRef, directory_error};

/// Suffixes of the files of a run.
const SUFFIXES: [&str; 3] = ["lock", "log", CLI_SUFFIX];

/// Returns the path of a file of a run. Neither a namespace nor a name contains an underscore.
pub(super) fn path(directory: &Path, run: &RunRef, suffix: &str) -> PathBuf {
    directory.join(format!("{}_{}.{suffix}", run.namespace, run.name))
}

/// Returns the runs that have files. Ignores other files.
pub(super) fn list(directory: &Path) -> io::Result<Vec<RunRef>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let parts = name
            .to_str()
            .and_then(|name| name.rsplit_once('.'))
            .filter(|(_, suffix)| SUFFIXES.contains(suffix))
            .and_then(|(run, _)| run.split_once('_'));
        if let Some((namespace, name)) = parts {
            found.insert((namespace.to_owned(), name.to_owned()));
        }
    }
    let run = |(namespace, name)| RunRef { namespace, name };
    Ok(found.into_iter().map(run).collect())
}

/// Removes the files of a run unless a process holds the lock. They may be gone already.
pub(super) fn remove(log: &Path, lock: &Path) -> io::Result<()> {
    let Some(process_lock) = ProcessLock::acquire(lock)? else {
        return Ok(());
    };
    match std::fs::remove_file(log) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => process_lock.remove(lock),
    }
}

/// Opens a file with mode 0600 to append to it.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Returns the stacks that have a working directory.
pub(super) fn list_stacks(work: &Path) -> io::Result<Vec<ObjectKey>> {
    let key = |(namespace, name)| ObjectKey { namespace, name };
    Ok(workdir::list(work)?.into_iter().map(key).collect())
}

/// Removes the working directory of a deleted stack once no process uses it: a run that started before the deletion may still
/// end. Stops if the stack exists again, and when the controller stops.
pub(super) async fn remove_stack(
    work: PathBuf,
    stack: ObjectKey,
    is_gone: IsGone,
    stopped: UnboundedSender<RunRef>,
) {
    while !stopped.is_closed() {
        let (root, key, gone) = (work.clone(), stack.clone(), IsGone::clone(&is_gone));
        let removal = tokio::task::spawn_blocking(move || {
            workdir::remove(&root, (&key.namespace, &key.name), || gone())
        });
        match removal.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(CleanupOutcome::Busy) if is_gone() => tokio::time::sleep(LOCK_POLL_INTERVAL).await,
            Ok(CleanupOutcome::HoldsState(state)) => {
                tracing::warn!(
                    %stack,
                    state = %state.display(),
                    "the stack is deleted, but its directory contains an unwritten state: push it or delete it manually"
                );
                return;
            }
            Ok(_) => return,
            Err(error) => {
                let error = directory_error(&work)(error);
                tracing::warn!(
                    %stack,
                    error = &error as &dyn std::error::Error,
                    "cannot delete the files of a deleted stack yet"
                );
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> RunRef {
        RunRef {
            namespace: "team".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn files_of_a_run_are_deleted_when_its_processes_ended() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, suffix| path(dir.path(), &run(name), suffix);
        for file in [
            at("net-u1-1", "lock"),
            at("net-u1-1", "log"),
            at("a.b-u1-2", "log"),
        ] {
            std::fs::write(file, "x").unwrap();
        }
        std::fs::write(dir.path().join("notes.txt"), "x").unwrap();
        assert_eq!(list(dir.path()).unwrap(), [run("a.b-u1-2"), run("net-u1-1")]);

        let (log, lock) = (at("net-u1-1", "log"), at("net-u1-1", "lock"));
        let process_lock = ProcessLock::acquire(&lock).unwrap();
        assert!(process_lock.is_some());
        remove(&log, &lock).unwrap();
        assert!(log.exists() && lock.exists(), "a process holds the lock");
        drop(process_lock);
        for _ in 0..2 {
            remove(&log, &lock).unwrap();
            assert!(!log.exists() && !lock.exists());
        }
        remove(&at("a.b-u1-2", "log"), &at("a.b-u1-2", "lock")).unwrap();
        assert_eq!(list(dir.path()).unwrap(), []);
    }
}
