//! The files of runs that are processes: a lock, held for as long as the runner or its CLI lives, and the runner's log.

use super::RunRef;
use sluice_tf_core::process_lock::{CLI_SUFFIX, ProcessLock};
use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// What the files of a run end in.
const SUFFIXES: [&str; 3] = ["lock", "log", CLI_SUFFIX];

/// A file of a run: neither a namespace nor a name has an underscore.
pub(super) fn of(directory: &Path, run: &RunRef, suffix: &str) -> PathBuf {
    directory.join(format!("{}_{}.{suffix}", run.namespace, run.name))
}

/// The runs of which there are files. Others' files are passed over.
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

/// Removes the files of a run, unless a process holds the lock. They may be gone already.
pub(super) fn remove(log: &Path, lock: &Path) -> io::Result<()> {
    let Some(held) = ProcessLock::take(lock)? else {
        return Ok(());
    };
    match std::fs::remove_file(log) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => held.remove(lock),
    }
}

/// Opens a file that only its owner reads, to write at its end.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
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
    fn files_of_a_run_are_listed_and_go_when_nothing_of_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, suffix| of(dir.path(), &run(name), suffix);
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
        let works = ProcessLock::take(&lock).unwrap();
        assert!(works.is_some());
        remove(&log, &lock).unwrap();
        assert!(log.exists() && lock.exists(), "it is at work");
        drop(works);
        for _ in 0..2 {
            remove(&log, &lock).unwrap();
            assert!(!log.exists() && !lock.exists());
        }
        remove(&at("a.b-u1-2", "log"), &at("a.b-u1-2", "lock")).unwrap();
        assert_eq!(list(dir.path()).unwrap(), []);
    }
}
