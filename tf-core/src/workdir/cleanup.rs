//! Removal of the files of deleted stacks below a work root.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::{StackPaths, WorkdirOwner, entries_with_prefix, remove_tree};
use crate::artifact_path;
use crate::errored_state::FILE;
use crate::process_lock::{CLI_SUFFIX, ProcessLock};

/// Suffixes of the hidden files of a stack.
const SUFFIXES: [&str; 7] = [
    "lock",
    CLI_SUFFIX,
    "logs",
    "home",
    "tenant",
    "break-glass",
    "providers",
];
/// Infixes of the temporary directories of a stack.
const TEMPORARY: [&str; 3] = ["run-", "aside-", "trash-"];

/// The outcome of [`remove`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanupOutcome {
    /// The files are removed.
    Done,
    /// A run, or a CLI that outlived its runner, uses the directory.
    Busy,
    /// The stack exists again.
    StackExists,
    /// The directory contains an errored state at this path that was not stored: nothing is removed.
    HoldsState(PathBuf),
}

/// Returns namespace and name of the stacks with files below a work root. Other files are ignored.
///
/// # Errors
/// The directory exists but cannot be read.
pub fn list(work_root: &Path) -> io::Result<BTreeSet<(String, String)>> {
    let entries = match std::fs::read_dir(work_root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        opened => opened?,
    };
    let mut found = BTreeSet::new();
    for entry in entries {
        found.extend(entry?.file_name().to_str().and_then(stack_of));
    }
    Ok(found)
}

/// Returns the stack of a file. Namespaces and names have no underscore.
fn stack_of(file: &str) -> Option<(String, String)> {
    let hidden = file.strip_prefix('.');
    let (namespace, rest) = hidden.unwrap_or(file).split_once('_')?;
    let name = match (hidden, rest.split_once('_')) {
        (Some(_), Some((name, more))) if TEMPORARY.iter().any(|infix| more.starts_with(infix)) => name,
        (Some(_), None) => {
            let (name, end) = rest.rsplit_once('.')?;
            SUFFIXES.contains(&end).then_some(name)?
        }
        (None, None) => rest,
        _ => return None,
    };
    let is_named = !namespace.is_empty() && !name.is_empty();
    is_named.then(|| (namespace.to_owned(), name.to_owned()))
}

/// Removes all files of a stack unless they are in use. `is_gone` is called under the process lock, so no run can start to use
/// the files; it must return `false` for a stack that has, or may soon have, a run.
///
/// # Errors
/// A file can be neither removed nor renamed into the quarantine.
pub fn remove(
    work_root: &Path,
    (namespace, name): (&str, &str),
    is_gone: impl FnOnce() -> bool,
) -> io::Result<CleanupOutcome> {
    let paths = StackPaths::new(Some(work_root), namespace, name);
    let lock = match ProcessLock::acquire(&paths.lock) {
        // The work root does not exist.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(CleanupOutcome::Done),
        acquired => acquired?,
    };
    let Some(lock) = lock else {
        return Ok(CleanupOutcome::Busy);
    };
    if !is_gone() {
        return Ok(CleanupOutcome::StackExists);
    }
    if let Some(state) = errored_state(&paths) {
        return Ok(CleanupOutcome::HoldsState(state));
    }
    paths.quarantine.retry();
    let mut scratch = entries_with_prefix(&paths.parent, &paths.scratch_prefix)?;
    scratch.extend(entries_with_prefix(&paths.parent, &paths.trash_prefix)?);
    let others = [&paths.root, &paths.home.path, &paths.logs];
    for directory in others.into_iter().chain(&scratch) {
        let removed = paths.quarantine.remove(directory);
        removed.map_err(io::Error::other)?;
    }
    for file in [&paths.owner, &paths.break_glass, &paths.predicted_lock] {
        remove_tree(file)?;
    }
    lock.remove(&paths.lock)?;
    Ok(CleanupOutcome::Done)
}

/// Returns the path of an errored state that an earlier run could not store.
fn errored_state(paths: &StackPaths) -> Option<PathBuf> {
    let owner = WorkdirOwner::read(&paths.owner)?;
    let state = paths.root.join(artifact_path::normalize(&owner.path)).join(FILE);
    state.exists().then_some(state)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt as _;

    use super::*;

    const NET: (&str, &str) = ("team", "net");

    fn names(root: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(root).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Creates every kind of file for two stacks.
    fn create_all_files(root: &Path) -> [StackPaths; 2] {
        ["net", "net.logs"].map(|name| {
            let paths = StackPaths::new(Some(root), "team", name);
            for directory in [
                paths.root.join("infra"),
                paths.home.path.join("go"),
                paths.logs.join("net-1"),
                root.join(format!("{}1", paths.scratch_prefix)),
                root.join(format!("{}1", paths.trash_prefix)),
                root.join(format!("{}1", paths.quarantine.prefix)),
            ] {
                std::fs::create_dir_all(directory).unwrap();
            }
            std::fs::DirBuilder::new()
                .mode(0o555)
                .create(paths.home.path.join("go/cache"))
                .unwrap();
            let tenant = serde_json::json!({ "path": "x/../infra", "workspace": "default", "place": "here" });
            std::fs::write(&paths.owner, tenant.to_string()).unwrap();
            std::fs::write(&paths.break_glass, "x").unwrap();
            std::fs::write(&paths.predicted_lock, "x").unwrap();
            drop(ProcessLock::acquire(&paths.lock).unwrap());
            paths
        })
    }

    #[test]
    fn all_files_of_one_stack_are_deleted_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let [net, other] = create_all_files(dir.path());
        std::fs::write(dir.path().join(".notes_of.mine"), "x").unwrap();
        let both = [NET, ("team", "net.logs")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(list(dir.path()).unwrap(), BTreeSet::from(both.clone()));
        let before = names(dir.path()).len();

        let running = ProcessLock::acquire(&net.lock).unwrap();
        assert_eq!(remove(dir.path(), NET, || true).unwrap(), CleanupOutcome::Busy);
        drop(running);
        assert_eq!(
            remove(dir.path(), NET, || false).unwrap(),
            CleanupOutcome::StackExists
        );
        assert_eq!(names(dir.path()).len(), before);

        assert_eq!(remove(dir.path(), NET, || true).unwrap(), CleanupOutcome::Done);
        assert_eq!(list(dir.path()).unwrap(), BTreeSet::from([both[1].clone()]));
        assert!(other.root.is_dir() && other.owner.exists() && other.logs.is_dir());
        let removed = remove(dir.path(), ("team", "net.logs"), || true).unwrap();
        assert_eq!(
            (removed, names(dir.path())),
            (CleanupOutcome::Done, vec![".notes_of.mine".to_owned()])
        );
        assert_eq!(list(&dir.path().join("none")).unwrap(), BTreeSet::new());
    }

    #[test]
    fn an_unsaved_errored_state_keeps_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let [net, _] = create_all_files(dir.path());
        let state = net.root.join("infra").join(FILE);
        std::fs::write(&state, "{}").unwrap();
        let expected = CleanupOutcome::HoldsState(state.clone());
        assert_eq!(remove(dir.path(), NET, || true).unwrap(), expected);
        std::fs::remove_file(&state).unwrap();
        assert_eq!(remove(dir.path(), NET, || true).unwrap(), CleanupOutcome::Done);
    }
}
