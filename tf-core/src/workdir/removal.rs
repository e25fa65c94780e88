//! The directories of stacks that are gone: which stacks have some below a work root, and their removal.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::{StackPaths, WorkdirOwner, entries_with_prefix};
use crate::errored_state::FILE;
use crate::place;
use crate::process_lock::{CLI_SUFFIX, ProcessLock};
use crate::removal::remove_tree;

/// What the names of a stack's hidden files end in.
const SUFFIXES: [&str; 7] = [
    "lock",
    CLI_SUFFIX,
    "logs",
    "home",
    "tenant",
    "break-glass",
    "providers",
];
/// What the names of its directories go on with that are in use for a time.
const PASSING: [&str; 3] = ["run-", "aside-", "trash-"];

/// What became of the wish to remove a stack's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// They are gone.
    Done,
    /// A run, or a command that outlived its runner, works in the directory.
    Busy,
    /// The stack is there again.
    Wanted,
    /// The directory holds a state, here, that could neither be written nor kept: nothing is removed.
    HoldsState(PathBuf),
}

/// The stacks, as namespace and name, of which there are files below a work root. Others' files are passed over.
///
/// # Errors
/// The directory is there and cannot be read.
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

/// The stack that a file belongs to. Neither a namespace nor a name has an underscore.
fn stack_of(file: &str) -> Option<(String, String)> {
    let hidden = file.strip_prefix('.');
    let (namespace, rest) = hidden.unwrap_or(file).split_once('_')?;
    let name = match (hidden, rest.split_once('_')) {
        (Some(_), Some((name, more))) if PASSING.iter().any(|passing| more.starts_with(passing)) => name,
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

/// Removes all files of a stack, unless somebody works with them. `is_gone` is asked while no run can begin to use them: its
/// answer must be no for a stack that has, or may soon have, a run.
///
/// # Errors
/// Something could neither be removed nor put aside.
pub fn remove(
    work_root: &Path,
    (namespace, name): (&str, &str),
    is_gone: impl FnOnce() -> bool,
) -> io::Result<Removal> {
    let paths = StackPaths::new(Some(work_root), namespace, name);
    let lock = match ProcessLock::take(&paths.lock) {
        // No run ever worked here.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Removal::Done),
        taken => taken?,
    };
    let Some(lock) = lock else {
        return Ok(Removal::Busy);
    };
    if !is_gone() {
        return Ok(Removal::Wanted);
    }
    if let Some(state) = unwritten_state(&paths) {
        return Ok(Removal::HoldsState(state));
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
    Ok(Removal::Done)
}

/// The state that an earlier run could neither write nor keep, if one lies there.
fn unwritten_state(paths: &StackPaths) -> Option<PathBuf> {
    let owner = WorkdirOwner::read(&paths.owner)?;
    let state = paths.root.join(place::below(&owner.path)).join(FILE);
    state.exists().then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::DirBuilderExt as _;

    const NET: (&str, &str) = ("team", "net");

    fn names(root: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(root).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// The files of two stacks, after runs that left all that they can.
    fn left(root: &Path) -> [StackPaths; 2] {
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
            drop(ProcessLock::take(&paths.lock).unwrap());
            paths
        })
    }

    #[test]
    fn all_files_of_a_stack_go_and_those_of_another_stay() {
        let dir = tempfile::tempdir().unwrap();
        let [net, other] = left(dir.path());
        std::fs::write(dir.path().join(".notes_of.mine"), "x").unwrap();
        let both = [NET, ("team", "net.logs")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(list(dir.path()).unwrap(), BTreeSet::from(both.clone()));
        let before = names(dir.path()).len();

        let works = ProcessLock::take(&net.lock).unwrap();
        assert_eq!(remove(dir.path(), NET, || true).unwrap(), Removal::Busy);
        drop(works);
        assert_eq!(remove(dir.path(), NET, || false).unwrap(), Removal::Wanted);
        assert_eq!(names(dir.path()).len(), before);

        assert_eq!(remove(dir.path(), NET, || true).unwrap(), Removal::Done);
        assert_eq!(list(dir.path()).unwrap(), BTreeSet::from([both[1].clone()]));
        assert!(other.root.is_dir() && other.owner.exists() && other.logs.is_dir());
        let removed = remove(dir.path(), ("team", "net.logs"), || true).unwrap();
        assert_eq!(
            (removed, names(dir.path())),
            (Removal::Done, vec![".notes_of.mine".to_owned()])
        );
        assert_eq!(list(&dir.path().join("none")).unwrap(), BTreeSet::new());
    }

    #[test]
    fn a_state_that_was_neither_written_nor_kept_holds_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let [net, _] = left(dir.path());
        let state = net.root.join("infra").join(FILE);
        std::fs::write(&state, "{}").unwrap();
        let held = Removal::HoldsState(state.clone());
        assert_eq!(remove(dir.path(), NET, || true).unwrap(), held);
        std::fs::remove_file(&state).unwrap();
        assert_eq!(remove(dir.path(), NET, || true).unwrap(), Removal::Done);
    }
}
