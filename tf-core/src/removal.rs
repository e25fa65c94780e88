//! Removes directories whatever the modes of their parts are: Go's module cache, for instance, takes the right to write from its
//! directories, and only root may remove what is in such a one.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The right of its owner to list, enter and change a directory.
const OPEN: u32 = 0o700;

/// Removes a file, a link, or a directory with all that is in it. Nothing may be there already. What can be removed goes even
/// where something else cannot.
///
/// # Errors
/// The first that stands in the way.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => fs::remove_file(path),
        // A directory that a process fills meanwhile is tried once more below.
        Err(error) if error.kind() != ErrorKind::NotFound => remove_whatever_mode(path),
        removed => removed,
    };
    removed.or_else(unless_gone)
}

/// The walk holds its own list of directories: a tree may be deeper than a stack of calls.
fn remove_whatever_mode(path: &Path) -> io::Result<()> {
    let (mut open, mut entered): (Vec<PathBuf>, Vec<PathBuf>) = (vec![path.to_owned()], Vec::new());
    let mut first = Ok(());
    while let Some(directory) = open.pop() {
        let listed = fs::set_permissions(&directory, Permissions::from_mode(OPEN))
            .and_then(|()| fs::read_dir(&directory));
        match listed {
            Ok(entries) => {
                for entry in entries.filter_map(Result::ok) {
                    let removed = match entry.file_type() {
                        Ok(kind) if kind.is_dir() => {
                            open.push(entry.path());
                            Ok(())
                        }
                        _ => fs::remove_file(entry.path()).or_else(unless_gone),
                    };
                    first = first.and(removed);
                }
            }
            Err(error) => {
                let removed = unless_gone(error);
                first = first.and(removed);
            }
        }
        entered.push(directory);
    }
    // Each directory comes behind the one that it lies in.
    for directory in entered.iter().rev() {
        // Each is tried, whatever became of the ones before.
        let removed = fs::remove_dir(directory).or_else(unless_gone);
        first = first.and(removed);
    }
    first
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound {
        Ok(())
    } else {
        Err(error)
    }
}
