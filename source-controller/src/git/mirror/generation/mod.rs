//! One generation of a mirror: a bare repository in its own directory, and the record of its commits.
//!
//! A mirror that is too large or corrupt is not repaired but replaced by a new generation in the same directory, so its
//! readers are not disturbed. The last reader of the old generation deletes it.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fs, io};

use git2::{Odb, Oid};
use tokio::runtime::Handle;

use super::super::protocol::parse_object_id;
use super::directory_bytes;

const GENERATION_PREFIX: &str = "generation-";
/// Prefix of a generation that is being deleted.
const DELETED_PREFIX: &str = "deleted-";
/// Maximum size of a file of a record; a mirror is replaced long before.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Prefix of each commit's ref, followed by an increasing number.
const TIP_PREFIX: &str = "refs/tips/";
/// Digits of that number.
const TIP_DIGITS: usize = 6;
/// First line of `packed-refs`.
const REFS_HEADER: &str = "# pack-refs with: sorted\n";
/// Bytes of each other line of `packed-refs`: an object name, a space, the ref, and the line break.
const TIP_LINE_BYTES: usize = 40 + 1 + TIP_PREFIX.len() + TIP_DIGITS + 1;
/// Bytes of a line of `shallow`.
const SHALLOW_LINE_BYTES: usize = 40 + 1;
/// Content of `HEAD`.
const HEAD: &str = "ref: refs/heads/main\n";

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
        let mut next = 0;
        for entry in fs::read_dir(mirror)? {
            let number = number(&entry?.file_name());
            next = number.map_or(next, |number| next.max(number + 1));
        }
        Self::create_numbered(mirror, next)
    }

    /// As [`Generation::create`], for a mirror in which [`open_latest`] has found no generation.
    pub(super) fn create_first(mirror: &Path) -> io::Result<Self> {
        Self::create_numbered(mirror, 0)
    }

    /// Creates an empty bare repository with this number, or the next free one.
    fn create_numbered(mirror: &Path, mut number: u64) -> io::Result<Self> {
        let directory = loop {
            let directory = mirror.join(format!("{GENERATION_PREFIX}{number}"));
            match fs::create_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                other => break other.map(|()| directory)?,
            }
        };
        // What Git requires of a bare repository, so that its commands work on it. `git init --bare` creates more, and on many disks
        // each file takes some hundred microseconds.
        for name in ["objects", "objects/pack", "refs"] {
            fs::create_dir(directory.join(name))?;
        }
        fs::write(directory.join("HEAD"), HEAD)?;
        Ok(Self::new(directory))
    }

    const fn new(directory: PathBuf) -> Self {
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

    /// Returns the bytes of its files if it has this record. Only its packs are listed.
    pub(super) fn bytes(&self, record: &Record) -> io::Result<u64> {
        let tips = REFS_HEADER.len() + record.tips.len() * TIP_LINE_BYTES;
        let shallow = record.shallow.len() * SHALLOW_LINE_BYTES;
        Ok(directory_bytes(&self.packs())? + (HEAD.len() + tips + shallow) as u64)
    }

    /// Returns its pack, if it has exactly one.
    pub(super) fn only_pack(&self) -> io::Result<Option<PathBuf>> {
        let mut found = None;
        for entry in fs::read_dir(self.packs())? {
            let path = entry?.path();
            let is_pack = path.extension().is_some_and(|extension| extension == "pack");
            if is_pack && found.replace(path).is_some() {
                return Ok(None);
            }
        }
        Ok(found)
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

/// Opens the newest generation that contains a commit, and removes all others and the leftovers of interrupted fetches. Creates the
/// directory if there is none.
pub(super) fn open_latest(mirror: &Path) -> io::Result<Option<(Generation, Record)>> {
    if fs::create_dir(mirror).is_ok() {
        // Nothing is in it.
        return Ok(None);
    }
    fs::create_dir_all(mirror)?;
    let mut found = None;
    let mut numbers = list_generations(mirror)?;
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

/// Returns the numbers of the generations. Removes directories that a crash left half deleted; a concurrent deletion is not an error.
fn list_generations(mirror: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(mirror)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with(DELETED_PREFIX) {
            remove(&entry.path());
        }
        numbers.extend(number(&name));
    }
    Ok(numbers)
}

/// Returns the number of a generation by the name of its directory.
fn number(name: &OsStr) -> Option<u64> {
    name.to_str()?.strip_prefix(GENERATION_PREFIX)?.parse().ok()
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

/// The commits of a generation, stored in two files of Git's own formats: `packed-refs` and `shallow`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Record {
    /// Commits with complete trees, oldest fetch first.
    pub(in super::super) tips: Vec<Oid>,
    /// Commits without parents.
    pub(in super::super) shallow: BTreeSet<Oid>,
}

impl Record {
    /// Reads the files in a repository's directory. Invalid lines are ignored: those commits are fetched again.
    pub(super) fn read(directory: &Path) -> io::Result<Self> {
        let tips = read_file(&directory.join("packed-refs"))?;
        let tips = tips.lines().filter_map(|line| {
            let (id, name) = line.split_once(' ')?;
            name.starts_with(TIP_PREFIX)
                .then(|| parse_object_id(id.as_bytes()))?
        });
        let shallow = read_file(&directory.join("shallow"))?;
        let shallow = shallow
            .lines()
            .filter_map(|line| parse_object_id(line.as_bytes()));
        Ok(Self {
            tips: tips.collect(),
            shallow: shallow.collect(),
        })
    }

    /// Writes both files. `shallow` comes first: a crash in between leaves an unused shallow entry, but never a commit
    /// that is not shallow.
    pub(in super::super) fn write(&self, directory: &Path) -> io::Result<()> {
        let mut shallow = String::new();
        for id in &self.shallow {
            let _ = writeln!(shallow, "{id}");
        }
        write_file(&directory.join("shallow"), &shallow)?;
        let mut refs = REFS_HEADER.to_owned();
        for (number, id) in self.tips.iter().enumerate() {
            let _ = writeln!(refs, "{id} {TIP_PREFIX}{number:0TIP_DIGITS$}");
        }
        write_file(&directory.join("packed-refs"), &refs)
    }

    /// Removes the record of all commits.
    pub(super) fn delete(directory: &Path) -> io::Result<()> {
        match fs::remove_file(directory.join("packed-refs")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Adds a fetched commit.
    pub(in super::super) fn add(&mut self, tip: Oid) {
        if !self.tips.contains(&tip) {
            self.tips.push(tip);
        }
    }

    /// Updates the shallow commits.
    pub(in super::super) fn update_shallow(&mut self, shallow: &[Oid], unshallow: &[Oid]) {
        self.shallow.extend(shallow);
        for id in unshallow {
            self.shallow.remove(id);
        }
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    match fs::metadata(path) {
        Ok(file) if file.len() > MAX_FILE_BYTES => Ok(String::new()),
        Ok(_) => Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, text)?;
    fs::rename(temporary, path)
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
mod tests;
