//! One generation of a mirror: a bare repository in its own directory.
//!
//! A mirror that is too large or corrupt is not repaired but replaced by a new generation in the same directory, so its
//! readers are not disturbed. The last reader of the old generation deletes it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fs, io};

use git2::Odb;
use tokio::runtime::Handle;

use super::record::Record;

const GENERATION_PREFIX: &str = "generation-";
/// Prefix of a generation that is being deleted.
const DELETED_PREFIX: &str = "deleted-";

/// Number of generations deleted by this process, for unique names.
static DELETED_COUNT: AtomicU64 = AtomicU64::new(0);

/// The directory of one generation.
#[derive(Debug)]
pub(in super::super) struct Generation {
    directory: PathBuf,
    retired: AtomicBool,
    corrupt: AtomicBool,
}

impl Generation {
    /// Creates an empty bare repository with the next free number.
    pub(super) fn create(mirror: &Path) -> io::Result<Self> {
        let mut number = numbers(mirror)?
            .into_iter()
            .max()
            .map_or(0, |highest| highest + 1);
        let directory = loop {
            let directory = mirror.join(format!("{GENERATION_PREFIX}{number}"));
            match fs::create_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                other => break other.map(|()| directory)?,
            }
        };
        for name in ["objects/pack", "refs/heads"] {
            fs::create_dir_all(directory.join(name))?;
        }
        // Same files as `git init --bare`, so that Git commands work on it.
        fs::write(directory.join("HEAD"), "ref: refs/heads/main\n")?;
        fs::write(
            directory.join("config"),
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
        )?;
        Ok(Self::new(directory))
    }

    fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            retired: AtomicBool::new(false),
            corrupt: AtomicBool::new(false),
        }
    }

    /// Returns the directory of the repository.
    pub(in super::super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the directory of its packs.
    pub(in super::super) fn packs(&self) -> PathBuf {
        self.directory.join("objects/pack")
    }

    /// Returns the sizes of its packs in bytes.
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

    /// Lets the last owner of `self` delete the directory.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Cancels `retire`.
    pub(super) fn unretire(&self) {
        self.retired.store(false, Ordering::Relaxed);
    }

    /// Records that an object is unreadable: the next fetch, also of another process, uses a new generation.
    pub(in super::super) fn mark_corrupt(&self) {
        self.corrupt.store(true, Ordering::Relaxed);
        if let Err(error) = Record::delete(&self.directory) {
            tracing::warn!(directory = %self.directory.display(), %error, "cannot remove the record of a corrupt mirror");
        }
    }

    pub(in super::super) fn is_corrupt(&self) -> bool {
        self.corrupt.load(Ordering::Relaxed)
    }
}

impl Drop for Generation {
    /// The last reader may be on a thread that must not block: the directory is renamed here and deleted on another
    /// thread.
    fn drop(&mut self) {
        if !*self.retired.get_mut() {
            return;
        }
        let renamed = self.directory.with_file_name(format!(
            "{DELETED_PREFIX}{}",
            DELETED_COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        let directory = match fs::rename(&self.directory, &renamed) {
            Ok(()) => renamed,
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
            tracing::warn!(directory = %directory.display(), %error, "cannot delete an old mirror: retrying at the next start");
        }
        _ => {}
    }
}

/// Opens the newest generation that contains a commit, and removes all others and the leftovers of interrupted fetches.
pub(super) fn open_latest(mirror: &Path) -> io::Result<Option<(Generation, Record)>> {
    let mut found = None;
    remove_deleted(mirror)?;
    let mut numbers = numbers(mirror)?;
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    for number in numbers {
        let directory = mirror.join(format!("{GENERATION_PREFIX}{number}"));
        let record = if found.is_none() {
            Record::read(&directory)?
        } else {
            Record::default()
        };
        if record.tips.is_empty() {
            fs::remove_dir_all(&directory)?;
        } else {
            remove_leftovers(&directory.join("objects/pack"))?;
            found = Some((Generation::new(directory), record));
        }
    }
    Ok(found)
}

/// Removes directories that a crash left half deleted. A concurrent deletion is not an error.
fn remove_deleted(mirror: &Path) -> io::Result<()> {
    for entry in fs::read_dir(mirror)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(DELETED_PREFIX) {
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
                .and_then(|name| name.strip_prefix(GENERATION_PREFIX)?.parse::<u64>().ok()),
        );
    }
    Ok(numbers)
}

/// Removes all files except complete pairs of pack and index.
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

/// Opens the object database of a repository's directory without the repository: the user's configuration is not read,
/// and the owner of the directory is irrelevant.
pub(in super::super) fn open_objects(directory: &Path) -> Result<Odb<'static>, git2::Error> {
    // Each object's hash was verified when its pack was indexed. Another check on each read halves the speed.
    static TRUST: Once = Once::new();
    TRUST.call_once(|| git2::opts::strict_hash_verification(false));
    let odb = Odb::new()?;
    odb.add_disk_alternate(&directory.join("objects").to_string_lossy())?;
    Ok(odb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::protocol::parse_object_id;

    fn with_a_tip(generation: &Generation) -> Record {
        let mut record = Record::default();
        record.add(parse_object_id(&[b'a'; 40]).unwrap());
        record.write(generation.directory()).unwrap();
        record
    }

    #[test]
    fn the_newest_generation_with_a_commit_is_opened_and_others_are_deleted() {
        let mirror = tempfile::tempdir().unwrap();
        assert!(open_latest(mirror.path()).unwrap().is_none());
        let generations: Vec<_> = (0..3)
            .map(|_| Generation::create(mirror.path()).unwrap())
            .collect();
        with_a_tip(&generations[0]);
        let record = with_a_tip(&generations[1]);
        let (found, read) = open_latest(mirror.path()).unwrap().unwrap();
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
        let (found, _) = open_latest(mirror.path()).unwrap().unwrap();
        let mut names: Vec<_> = fs::read_dir(found.packs())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["pack-1.idx", "pack-1.pack"]);
        assert_eq!(found.pack_sizes().unwrap(), [1]);
    }

    #[test]
    fn a_retired_generation_is_deleted_by_its_last_owner() {
        let mirror = tempfile::tempdir().unwrap();
        let generation = Generation::create(mirror.path()).unwrap();
        let directory = generation.directory().to_owned();
        generation.retire();
        assert!(directory.exists());
        drop(generation);
        assert!(!directory.exists());
    }
}
