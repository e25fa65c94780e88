//! A PATH with only one of the two programs: each folder that contains one of them is replaced by a folder of links to its
//! other files.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use sha2::{Digest, Sha256};

use super::{CLI_NAMES, CliError};

/// Returns `program` followed by `rest`, with both programs hidden in `rest`. Link folders are created below `store`.
/// Relative and non-UTF-8 paths are dropped.
pub(super) fn with_only(program: &Path, rest: &OsStr, store: &Path) -> Result<String, CliError> {
    let name = program.file_name().unwrap_or_default();
    let mut folders = vec![links(store, &[(name.to_owned(), program.to_owned())].into())?];
    for folder in std::env::split_paths(rest).filter(|folder| folder.is_absolute()) {
        folders.push(without_programs(folder, store)?);
    }
    let texts: Vec<&str> = folders.iter().filter_map(|folder| folder.to_str()).collect();
    Ok(texts.join(":"))
}

/// Returns the folder itself if it contains neither program.
fn without_programs(folder: PathBuf, store: &Path) -> Result<PathBuf, CliError> {
    let has = |name: &&str| folder.join(name).symlink_metadata().is_ok();
    if !CLI_NAMES.iter().any(has) {
        return Ok(folder);
    }
    let names = entry_names(&folder).map_err(at(&folder))?;
    let others = names
        .into_iter()
        .filter(|name| CLI_NAMES.iter().all(|hidden| name != hidden));
    let entries = others.map(|name| (name.clone(), folder.join(name))).collect();
    links(store, &entries)
}

fn entry_names(folder: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect()
}

/// Creates a folder of these links, named by their hash, unless it exists. The folder appears by a rename, because other
/// processes may create the same one.
fn links(store: &Path, entries: &BTreeSet<(OsString, PathBuf)>) -> Result<PathBuf, CliError> {
    let mut hash = Sha256::new();
    for (name, target) in entries {
        for text in [name.as_bytes(), target.as_os_str().as_bytes()] {
            hash.update(text);
            hash.update([0]);
        }
    }
    let folder_path = store.join(format!("path-{}", &hex::encode(hash.finalize())[..12]));
    if folder_path.is_dir() {
        return Ok(folder_path);
    }
    fs::create_dir_all(store).map_err(at(store))?;
    let unfinished = tempfile::Builder::new()
        .prefix("path-unfinished-")
        .tempdir_in(store);
    let unfinished = unfinished.map_err(at(store))?;
    let folder = unfinished.path().join("links");
    fs::create_dir(&folder).map_err(at(&folder))?;
    for (name, target) in entries {
        symlink(target, folder.join(name)).map_err(at(&folder))?;
    }
    match fs::rename(&folder, &folder_path) {
        Err(_) if folder_path.is_dir() => Ok(folder_path),
        renamed => renamed.map_err(at(&folder_path)).map(|()| folder_path),
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    let path = path.to_owned();
    move |source| CliError::SearchPath { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(dir.path().join(name), name).unwrap();
        }
        dir
    }

    fn sorted_names(folder: &str) -> Vec<OsString> {
        let mut names = entry_names(Path::new(folder)).unwrap();
        names.sort();
        names
    }

    #[test]
    fn both_clis_are_hidden_and_the_selected_one_is_first_on_path() {
        let store = tempfile::tempdir().unwrap();
        let chosen = folder(&["tofu", "other"]);
        let full = folder(&["git", "terraform", "tofu"]);
        let plain = folder(&["sh"]);
        let rest = std::env::join_paths([full.path(), Path::new("relative"), plain.path()]).unwrap();
        let path = || with_only(&chosen.path().join("tofu"), &rest, store.path()).unwrap();
        let first = path();
        let folders: Vec<&str> = first.split(':').collect();
        assert_eq!(folders.len(), 3, "{first}");
        assert_eq!(sorted_names(folders[0]), ["tofu"]);
        assert_eq!(sorted_names(folders[1]), ["git"]);
        assert_eq!(folders[2], plain.path().to_str().unwrap(), "it hides nothing");
        assert_eq!(fs::read_to_string(format!("{}/git", folders[1])).unwrap(), "git");
        assert_eq!(path(), first, "existing folders are reused");
        assert_eq!(
            entry_names(store.path()).unwrap().len(),
            2,
            "no unfinished folder remains"
        );
    }

    #[test]
    fn a_program_that_is_installed_later_is_found() {
        let store = tempfile::tempdir().unwrap();
        let full = folder(&["terraform"]);
        let path = || {
            let rest = full.path().as_os_str();
            let path = with_only(&full.path().join("terraform"), rest, store.path()).unwrap();
            path.split(':').map(sorted_names).collect::<Vec<_>>()
        };
        assert_eq!(path(), [vec![OsString::from("terraform")], vec![]]);
        fs::write(full.path().join("git"), "").unwrap();
        assert_eq!(path(), [vec![OsString::from("terraform")], vec!["git".into()]]);
    }
}
