//! One life of a mirror: a bare repository in a directory of its own.
//!
//! A mirror that frays or breaks is not repaired but followed by a new generation beside it, so that whoever reads the
//! old one is not disturbed. The old one's directory goes with its last reader.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use git2::Odb;
use tokio::runtime::Handle;

use super::record::Record;

const PREFIX: &str = "generation-";
/// How the name of a generation begins that is being deleted.
const DELETED: &str = "deleted-";

/// Generations that were deleted by this process: each gets a name of its own.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The directory of one generation.
#[derive(Debug)]
pub(in super::super) struct Generation {
    directory: PathBuf,
    retired: AtomicBool,
    condemned: AtomicBool,
}

impl Generation {
    /// Makes an empty bare repository with the next free number.
    pub(super) fn create(mirror: &Path) -> io::Result<Self> {
        let mut number = numbers(mirror)?
            .into_iter()
            .max()
            .map_or(0, |highest| highest + 1);
        let directory = loop {
            let directory = mirror.join(format!("{PREFIX}{number}"));
            match fs::create_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                other => break other.map(|()| directory)?,
            }
        };
        for name in ["objects/pack", "refs/heads"] {
            fs::create_dir_all(directory.join(name))?;
        }
        // What `git init --bare` writes, so that people can look into it with Git.
        fs::write(directory.join("HEAD"), "ref: refs/heads/main\n")?;
        fs::write(
            directory.join("config"),
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
        )?;
        Ok(Self::at(directory))
    }

    fn at(directory: PathBuf) -> Self {
        Self {
            directory,
            retired: AtomicBool::new(false),
            condemned: AtomicBool::new(false),
        }
    }

    /// Where the repository is.
    pub(in super::super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where its packs are.
    pub(in super::super) fn packs(&self) -> PathBuf {
        self.directory.join("objects/pack")
    }

    /// Sizes of its packs in bytes.
    pub(super) fn pack_sizes(&self) -> io::Result<Vec<u64>> {
        let mut sizes = Vec::new();
        for entry in fs::read_dir(self.packs())? {
            let entry = entry?;
            if entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "pack")
            {
                sizes.push(entry.metadata()?.len());
            }
        }
        Ok(sizes)
    }

    /// The directory is to go away with the last owner of `self`.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// The directory is to stay.
    pub(super) fn keep(&self) {
        self.retired.store(false, Ordering::Relaxed);
    }

    /// Something in it could not be read: the next fetch is to begin anew, also if it is another process's.
    pub(in super::super) fn condemn(&self) {
        self.condemned.store(true, Ordering::Relaxed);
        if let Err(error) = Record::forget(&self.directory) {
            tracing::warn!(directory = %self.directory.display(), %error, "a broken mirror is forgotten only in memory");
        }
    }

    pub(in super::super) fn is_condemned(&self) -> bool {
        self.condemned.load(Ordering::Relaxed)
    }
}

impl Drop for Generation {
    /// Whoever reads last may be on a thread that must not block: there the directory gets another name, and is deleted
    /// elsewhere.
    fn drop(&mut self) {
        if !*self.retired.get_mut() {
            return;
        }
        let aside = self
            .directory
            .with_file_name(format!("{DELETED}{}", DROPPED.fetch_add(1, Ordering::Relaxed)));
        let directory = match fs::rename(&self.directory, &aside) {
            Ok(()) => aside,
            Err(_) => self.directory.clone(),
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || remove(&directory))),
            Err(_) => remove(&directory),
        }
    }
}

fn remove(directory: &Path) {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(directory = %directory.display(), %error, "an old mirror stays until the next start");
        }
        _ => {}
    }
}

/// Finds the newest generation that holds a commit, and removes all others and what interrupted fetches left.
pub(super) fn latest(mirror: &Path) -> io::Result<Option<(Generation, Record)>> {
    let mut found = None;
    remove_deleted(mirror)?;
    let mut numbers = numbers(mirror)?;
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    for number in numbers {
        let directory = mirror.join(format!("{PREFIX}{number}"));
        let record = if found.is_none() {
            Record::read(&directory)?
        } else {
            Record::default()
        };
        if record.tips.is_empty() {
            fs::remove_dir_all(&directory)?;
        } else {
            remove_leftovers(&directory.join("objects/pack"))?;
            found = Some((Generation::at(directory), record));
        }
    }
    Ok(found)
}

/// Removes what a crash left half deleted. What is being deleted at this moment may be gone by then.
fn remove_deleted(mirror: &Path) -> io::Result<()> {
    for entry in fs::read_dir(mirror)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(DELETED) {
            remove(&entry.path());
        }
    }
    Ok(())
}

fn numbers(mirror: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(mirror)? {
        let name = entry?.file_name();
        numbers.extend(
            name.to_str()
                .and_then(|name| name.strip_prefix(PREFIX)?.parse::<u64>().ok()),
        );
    }
    Ok(numbers)
}

/// Removes everything that is not one half of a complete pair of pack and index.
fn remove_leftovers(packs: &Path) -> io::Result<()> {
    let names = fs::read_dir(packs)?
        .map(|entry| Ok(PathBuf::from(entry?.file_name())))
        .collect::<io::Result<HashSet<_>>>()?;
    for name in &names {
        let other = match name.extension().and_then(|extension| extension.to_str()) {
            Some("pack") => name.with_extension("idx"),
            Some("idx") => name.with_extension("pack"),
            _ => PathBuf::new(),
        };
        if !names.contains(&other) {
            fs::remove_file(packs.join(name))?;
        }
    }
    Ok(())
}

/// Opens the object database of a repository's directory, without the rest of the repository: no configuration of
/// the user is read, and it does not matter who owns the directory.
pub(in super::super) fn open_objects(directory: &Path) -> Result<Odb<'static>, git2::Error> {
    // Each object's hash was checked when its pack was indexed. Checking again on every read halves the speed.
    static TRUST: Once = Once::new();
    TRUST.call_once(|| git2::opts::strict_hash_verification(false));
    let odb = Odb::new()?;
    odb.add_disk_alternate(&directory.join("objects").to_string_lossy())?;
    Ok(odb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::protocol::object_id;

    fn with_a_tip(generation: &Generation) -> Record {
        let mut record = Record::default();
        record.add(object_id(&[b'a'; 40]).unwrap());
        record.write(generation.directory()).unwrap();
        record
    }

    #[test]
    fn the_newest_generation_with_a_commit_is_found_and_the_others_go() {
        let mirror = tempfile::tempdir().unwrap();
        assert!(latest(mirror.path()).unwrap().is_none());
        let generations: Vec<_> = (0..3)
            .map(|_| Generation::create(mirror.path()).unwrap())
            .collect();
        with_a_tip(&generations[0]);
        let record = with_a_tip(&generations[1]);
        let (found, read) = latest(mirror.path()).unwrap().unwrap();
        assert_eq!((found.directory(), read), (generations[1].directory(), record));
        assert_eq!(fs::read_dir(mirror.path()).unwrap().count(), 1);
    }

    #[test]
    fn leftovers_of_an_interrupted_fetch_are_removed() {
        let mirror = tempfile::tempdir().unwrap();
        let generation = Generation::create(mirror.path()).unwrap();
        with_a_tip(&generation);
        for name in [
            "pack_git2_a1b2c3",
            "pack-1.pack",
            "pack-1.idx",
            "pack-2.idx",
            "pack-3.pack",
            "tmp_idx",
        ] {
            fs::write(generation.packs().join(name), "x").unwrap();
        }
        let (found, _) = latest(mirror.path()).unwrap().unwrap();
        let mut names: Vec<_> = fs::read_dir(found.packs())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["pack-1.idx", "pack-1.pack"]);
        assert_eq!(found.pack_sizes().unwrap(), [1]);
    }

    #[test]
    fn a_retired_generation_goes_with_its_last_owner() {
        let mirror = tempfile::tempdir().unwrap();
        let generation = Generation::create(mirror.path()).unwrap();
        let directory = generation.directory().to_owned();
        generation.retire();
        assert!(directory.exists());
        drop(generation);
        assert!(!directory.exists());
    }
}
