//! Bare repositories on disk, one for each address and credentials, shared by all objects that name them.
//!
//! A mirror holds whole commits without their history: each fetch asks for one commit at depth 1 and says which ones
//! are held, so that only the difference travels. Mirrors are a cache. Losing one costs a fetch and nothing else, so
//! nothing here is synced to disk; what a crash leaves behind is cleaned up when the mirror is opened.

mod generation;
mod record;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;

pub(super) use generation::{Generation, open_objects};
pub(super) use record::Record;

use super::checkout::Extent;
use super::remote::Remote;

/// Commits that a mirror may hold before it is made anew. Each adds a pack to look into and two lines to a request.
const MOST_TIPS: usize = 100;
/// A mirror below this size is never made anew for its size.
const SMALL: u64 = 8 << 20;

/// All mirrors below one directory, which one process uses at a time.
#[derive(Debug)]
pub struct Mirrors {
    root: PathBuf,
    open: Mutex<Open>,
    // The lock goes with the file.
    _lock: File,
}

#[derive(Debug, Default)]
struct Open {
    /// Mirrors that somebody holds.
    held: HashMap<String, Weak<Mirror>>,
    /// Names that were opened since the last sweep.
    used: HashSet<String>,
    /// Names of partial mirrors whose servers do not give files by their hashes.
    unfit: HashSet<String>,
}

impl Mirrors {
    /// Takes the directory, which is made if it is not there.
    ///
    /// # Errors
    /// The directory cannot be made, or another process uses it.
    pub fn new(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let lock = File::create(root.join("lock"))?;
        lock.try_lock().map_err(|error| {
            io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("{} is in use by another process: {error}", root.display()),
            )
        })?;
        Ok(Self {
            root: root.to_owned(),
            open: Mutex::default(),
            _lock: lock,
        })
    }

    /// The mirror of a remote. Nothing is read or written yet, so this may be called on every pass.
    #[must_use]
    pub fn open(&self, remote: &Remote) -> Arc<Mirror> {
        self.named(name(remote, Extent::Whole), &mut self.state())
    }

    /// The mirror for commits of which only some files are wanted; none if the server was seen not to give those.
    pub(super) fn open_partial(&self, remote: &Remote) -> Option<Arc<Mirror>> {
        let name = name(remote, Extent::Names);
        let mut open = self.state();
        (!open.unfit.contains(&name)).then(|| self.named(name, &mut open))
    }

    /// Keeps the mirror of partial commits, if there is one, from the next sweep.
    pub fn keep_partial(&self, remote: &Remote) {
        self.state().used.insert(name(remote, Extent::Names));
    }

    /// From now on, whole commits are fetched from this remote, until this process ends.
    pub(super) fn give_up_partial(&self, remote: &Remote) {
        self.state().unfit.insert(name(remote, Extent::Names));
    }

    fn state(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn named(&self, name: String, open: &mut Open) -> Arc<Mirror> {
        open.used.insert(name.clone());
        open.held.retain(|_, mirror| mirror.strong_count() > 0);
        if let Some(mirror) = open.held.get(&name).and_then(Weak::upgrade) {
            return mirror;
        }
        let mirror = Arc::new(Mirror::at(self.root.join(&name)));
        open.held.insert(name, Arc::downgrade(&mirror));
        mirror
    }

    /// Deletes every mirror that was not opened since the previous sweep. To be called seldom: less often than the
    /// longest interval at which an object is looked at. Blocking.
    ///
    /// # Errors
    /// The directory cannot be listed. A mirror that cannot be deleted is tried again by the next sweep.
    pub fn sweep(&self) -> io::Result<usize> {
        let mut open = self.state();
        let used = std::mem::take(&mut open.used);
        open.held.retain(|_, mirror| mirror.strong_count() > 0);
        let mut swept = 0;
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kept = used.contains(&name) || open.held.contains_key(&name) || !entry.file_type()?.is_dir();
            if !kept && fs::remove_dir_all(entry.path()).is_ok() {
                swept += 1;
            }
        }
        Ok(swept)
    }
}

/// Directory name of a mirror: a digest, so that neither address nor credentials can be read from the disk's listing,
/// and that two users of one address share a mirror only if both may read it.
fn name(remote: &Remote, extent: Extent) -> String {
    let url = remote.address.url().as_str().as_bytes();
    let hash = Sha256::new()
        .chain_update(url.len().to_be_bytes())
        .chain_update(url)
        .chain_update(remote.reader());
    let hash = match extent {
        Extent::Whole => hash,
        Extent::Names => hash.chain_update(b"blob:none"),
    };
    hex::encode(hash.finalize())
}

/// One mirror. It is written by one fetch at a time and read by any number of checkouts.
#[derive(Debug)]
pub struct Mirror {
    writer: Arc<tokio::sync::Mutex<Writer>>,
}

impl Mirror {
    fn at(directory: PathBuf) -> Self {
        Self {
            writer: Arc::new(tokio::sync::Mutex::new(Writer {
                directory,
                current: None,
            })),
        }
    }

    /// Waits for the right to write.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<Writer> {
        Arc::clone(&self.writer).lock_owned().await
    }
}

/// The writing side of a mirror. Everything here blocks.
#[derive(Debug)]
pub(super) struct Writer {
    directory: PathBuf,
    current: Option<Opened>,
}

/// A generation with what is known about it.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    /// Its directory.
    pub(super) generation: Arc<Generation>,
    /// The commits it holds.
    pub(super) record: Record,
    /// Those whose objects were all found, by this process.
    pub(super) verified: HashSet<git2::Oid>,
}

impl Opened {
    /// Whether its commits should be left behind: too many of them, too many bytes, or unreadable ones.
    pub(super) fn is_frayed(&self) -> bool {
        let packs = self.generation.pack_sizes().unwrap_or_default();
        let (total, largest) = (
            packs.iter().sum::<u64>(),
            packs.iter().max().copied().unwrap_or_default(),
        );
        let swollen = total > SMALL && total > largest.saturating_mul(2);
        self.generation.is_condemned() || self.record.tips.len() >= MOST_TIPS || swollen
    }
}

impl Writer {
    /// The current generation, read from disk if this is the first look at it.
    pub(super) fn opened(&mut self) -> io::Result<Opened> {
        if let Some(current) = &self.current {
            return Ok(current.clone());
        }
        fs::create_dir_all(&self.directory)?;
        let (generation, record) = match generation::latest(&self.directory)? {
            Some(found) => found,
            None => (Generation::create(&self.directory)?, Record::default()),
        };
        let opened = Opened {
            generation: Arc::new(generation),
            record,
            verified: HashSet::new(),
        };
        self.current = Some(opened.clone());
        Ok(opened)
    }

    /// An empty generation beside the current one, for a fetch from nothing.
    pub(super) fn fresh(&self) -> io::Result<Opened> {
        let generation = Generation::create(&self.directory)?;
        // Until it is kept, it goes away when it is dropped.
        generation.retire();
        Ok(Opened {
            generation: Arc::new(generation),
            record: Record::default(),
            verified: HashSet::new(),
        })
    }

    /// Makes `opened` the current generation. An older one goes away with its last checkout.
    pub(super) fn keep(&mut self, opened: Opened) {
        opened.generation.keep();
        let old = self.current.replace(opened);
        if let (Some(old), Some(new)) = (old, &self.current)
            && !Arc::ptr_eq(&old.generation, &new.generation)
        {
            old.generation.retire();
        }
    }
}
