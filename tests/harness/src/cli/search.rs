//! A PATH with one of the two programs in it: folders that hold one of them are replaced by folders of links to everything
//! else that is in them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{CliError, NAMES};

/// `program` and then `rest`, without the two programs. Folders are made below `store`. What is no absolute path or no text
/// is left out: nobody finds a program there.
pub(super) fn with_only(program: &Path, rest: &OsStr, store: &Path) -> Result<String, CliError> {
    let name = program.file_name().unwrap_or_default();
    let mut folders = vec![links(store, &[(name.to_owned(), program.to_owned())].into())?];
    for folder in std::env::split_paths(rest).filter(|folder| folder.is_absolute()) {
        folders.push(without_programs(folder, store)?);
    }
    let texts: Vec<&str> = folders.iter().filter_map(|folder| folder.to_str()).collect();
    Ok(texts.join(":"))
}

/// The folder itself if neither program is in it.
fn without_programs(folder: PathBuf, store: &Path) -> Result<PathBuf, CliError> {
    let has = |name: &&str| folder.join(name).symlink_metadata().is_ok();
    if !NAMES.iter().any(has) {
        return Ok(folder);
    }
    let names = read(&folder).map_err(at(&folder))?;
    let others = names
        .into_iter()
        .filter(|name| NAMES.iter().all(|hidden| name != hidden));
    let wanted = others.map(|name| (name.clone(), folder.join(name))).collect();
    links(store, &wanted)
}

fn read(folder: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect()
}

/// A folder of these links, named after them: what is there is right. It appears as a whole, because other processes may
/// want the same one now.
fn links(store: &Path, wanted: &BTreeSet<(OsString, PathBuf)>) -> Result<PathBuf, CliError> {
    let mut hash = Sha256::new();
    for (name, target) in wanted {
        for text in [name.as_bytes(), target.as_os_str().as_bytes()] {
            hash.update(text);
            hash.update([0]);
        }
    }
    let place = store.join(format!("path-{}", &hex::encode(hash.finalize())[..12]));
    if place.is_dir() {
        return Ok(place);
    }
    fs::create_dir_all(store).map_err(at(store))?;
    let unfinished = tempfile::Builder::new()
        .prefix("path-unfinished-")
        .tempdir_in(store);
    let unfinished = unfinished.map_err(at(store))?;
    let folder = unfinished.path().join("links");
    fs::create_dir(&folder).map_err(at(&folder))?;
    for (name, target) in wanted {
        symlink(target, folder.join(name)).map_err(at(&folder))?;
    }
    match fs::rename(&folder, &place) {
        Err(_) if place.is_dir() => Ok(place),
        renamed => renamed.map_err(at(&place)).map(|()| place),
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    let path = path.to_owned();
    move |source| CliError::Search { path, source }
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

    fn named(folder: &str) -> Vec<OsString> {
        let mut names = read(Path::new(folder)).unwrap();
        names.sort();
        names
    }

    #[test]
    fn both_programs_are_hidden_wherever_they_are_and_the_chosen_one_comes_first() {
        let store = tempfile::tempdir().unwrap();
        let chosen = folder(&["tofu", "beside"]);
        let full = folder(&["git", "terraform", "tofu"]);
        let plain = folder(&["sh"]);
        let rest = std::env::join_paths([full.path(), Path::new("relative"), plain.path()]).unwrap();
        let path = || with_only(&chosen.path().join("tofu"), &rest, store.path()).unwrap();
        let first = path();
        let folders: Vec<&str> = first.split(':').collect();
        assert_eq!(folders.len(), 3, "{first}");
        assert_eq!(named(folders[0]), ["tofu"]);
        assert_eq!(named(folders[1]), ["git"]);
        assert_eq!(
            folders[2],
            plain.path().to_str().unwrap(),
            "nothing is hidden in it"
        );
        assert_eq!(fs::read_to_string(format!("{}/git", folders[1])).unwrap(), "git");
        assert_eq!(path(), first, "what is there is used again");
        assert_eq!(read(store.path()).unwrap().len(), 2, "nothing unfinished is left");
    }

    #[test]
    fn what_is_installed_later_is_found() {
        let store = tempfile::tempdir().unwrap();
        let full = folder(&["terraform"]);
        let path = || {
            let rest = full.path().as_os_str();
            let path = with_only(&full.path().join("terraform"), rest, store.path()).unwrap();
            path.split(':').map(named).collect::<Vec<_>>()
        };
        assert_eq!(path(), [vec![OsString::from("terraform")], vec![]]);
        fs::write(full.path().join("git"), "").unwrap();
        assert_eq!(path(), [vec![OsString::from("terraform")], vec!["git".into()]]);
    }
}
