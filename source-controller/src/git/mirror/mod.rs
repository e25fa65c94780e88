//! Bare repositories on disk, one for each address, identity of the reader and way to the address, shared by all objects that
//! name them.
//!
//! A mirror holds whole commits without their history: each fetch asks for one commit at depth 1 and says which ones
//! are held, so that only the difference travels. Mirrors are a cache. Losing one costs a fetch and nothing else, so
//! nothing here is synced to disk; what a crash leaves behind is cleaned up when the mirror is opened.

mod disk;
mod generation;
mod record;
mod usage;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;

pub(super) use generation::{Generation, open_objects};
pub(super) use record::Record;
pub use usage::Room;

use super::checkout::Extent;
use super::remote::Remote;
use super::threads::Threads;
use disk::{bytes_below, found};
use usage::DiskUsage;

/// Commits that a mirror may hold before it is made anew. Each adds a pack to look into and two lines to a request.
const MOST_TIPS: usize = 100;
/// A mirror below this size is never made anew for its size.
const SMALL: u64 = 8 << 20;
/// How the name of a directory begins that is being deleted.
const DELETED: &str = ".deleted-";

/// All mirrors below one directory, which one process uses at a time.
#[derive(Debug)]
pub struct Mirrors {
    shared: Arc<Shared>,
    // The lock goes with the file.
    _lock: File,
}

#[derive(Debug)]
struct Shared {
    /// Where fetches block.
    threads: Threads,
    root: PathBuf,
    open: Mutex<Open>,
    deleted: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    /// Mirrors that somebody holds.
    held: HashMap<String, Weak<Mirror>>,
    /// What all of them take on disk.
    usage: DiskUsage,
    /// Names of partial mirrors whose servers do not give files by their hashes.
    unfit: HashSet<String>,
    /// Who was let in by the server of a mirror, since this process began.
    proofs: HashMap<String, HashSet<[u8; 32]>>,
}

impl Open {
    fn is_held(&self, name: &str) -> bool {
        self.held
            .get(name)
            .is_some_and(|mirror| mirror.strong_count() > 0)
    }
}

impl Mirrors {
    /// Takes the directory, which is made if it is not there, without a bound on its size.
    ///
    /// # Errors
    /// The directory cannot be made, or another process uses it.
    pub fn new(root: &Path) -> io::Result<Self> {
        Self::within(root, Room::default())
    }

    /// Takes the directory, which is made if it is not there. Blocking.
    ///
    /// # Errors
    /// The directory cannot be made or listed, or another process uses it.
    pub fn within(root: &Path, bounds: Room) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let lock = File::create(root.join("lock"))?;
        lock.try_lock().map_err(|error| {
            io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("{} is in use by another process: {error}", root.display()),
            )
        })?;
        let usage = DiskUsage::new(bounds, found(root)?);
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            open: Mutex::new(Open {
                usage,
                ..Open::default()
            }),
            deleted: AtomicU64::new(0),
            threads: Threads::default(),
        });
        Ok(Self { shared, _lock: lock })
    }

    /// The mirror of a remote. Nothing is read or written yet, so this may be called on every pass.
    #[must_use]
    pub fn open(&self, remote: &Remote) -> Arc<Mirror> {
        self.named(name(remote, Extent::Whole), remote, &mut self.shared.state())
    }

    /// The mirror for commits of which only some files are wanted; none if the server was seen not to give those.
    pub(super) fn open_partial(&self, remote: &Remote) -> Option<Arc<Mirror>> {
        let name = name(remote, Extent::Names);
        let mut open = self.shared.state();
        (!open.unfit.contains(&name)).then(|| self.named(name, remote, &mut open))
    }

    /// Keeps the mirror of partial commits, if there is one, from the next sweep.
    pub fn keep_partial(&self, remote: &Remote) {
        self.shared.state().usage.keep(&name(remote, Extent::Names));
    }

    /// From now on, whole commits are fetched from this remote, until this process ends.
    pub(super) fn give_up_partial(&self, remote: &Remote) {
        self.shared.state().unfit.insert(name(remote, Extent::Names));
    }

    /// The server has just let in whoever asks here, with these very credentials and on this way.
    pub fn prove(&self, remote: &Remote) {
        let mut open = self.shared.state();
        let proofs = open.proofs.entry(name(remote, Extent::Whole)).or_default();
        proofs.insert(remote.way());
    }

    /// Whether the server has let in whoever asks here since this process began. Without that, nothing that a mirror holds
    /// may be given to them: credentials may have been changed or taken back since the mirror was filled.
    #[must_use]
    pub fn is_proved(&self, remote: &Remote) -> bool {
        let open = self.shared.state();
        let proofs = open.proofs.get(&name(remote, Extent::Whole));
        proofs.is_some_and(|proofs| proofs.contains(&remote.way()))
    }

    fn named(&self, name: String, remote: &Remote, open: &mut Open) -> Arc<Mirror> {
        open.usage.uses(&name, &remote.owner.namespace);
        open.held.retain(|_, mirror| mirror.strong_count() > 0);
        if let Some(mirror) = open.held.get(&name).and_then(Weak::upgrade) {
            return mirror;
        }
        let mirror = Arc::new(Mirror::new(
            Arc::downgrade(&self.shared),
            &self.shared.root,
            &name,
            self.shared.threads.clone(),
        ));
        open.held.insert(name, Arc::downgrade(&mirror));
        mirror
    }

    /// Deletes every mirror that was not opened since the previous sweep. To be called seldom: less often than the
    /// longest interval at which an object is looked at. A mirror that cannot be deleted is tried again by the next sweep.
    /// Blocking.
    #[must_use]
    pub fn sweep(&self) -> usize {
        let stale = self.shared.state().usage.stale();
        self.shared.discard(stale)
    }

    /// Deletes mirrors that nobody reads, the least recently used first, since the disk is full. Gives how many. Blocking.
    #[must_use]
    pub fn make_room(&self) -> usize {
        let oldest = {
            let open = self.shared.state();
            open.usage.half(|name| open.is_held(name))
        };
        let removed = self.shared.discard(oldest);
        if removed > 0 {
            tracing::warn!(removed, "the disk is full: the least recently used mirrors went");
        }
        removed
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mirror has so many bytes now; what is too much in all goes.
    fn measured(&self, name: &str, bytes: u64) {
        let surplus = {
            let mut open = self.state();
            open.usage.measured(name, bytes);
            open.usage.surplus(|name| open.is_held(name))
        };
        let removed = self.discard(surplus);
        if removed > 0 {
            tracing::info!(
                removed,
                "the least recently used mirrors went: they take more than --git-mirrors-max-bytes, or those of a \
                 namespace more than --git-mirrors-max-bytes-per-namespace"
            );
        }
    }

    /// Deletes mirrors that nobody reads. A lock that passes need is held for a rename, never for the deletion.
    fn discard(&self, names: Vec<String>) -> usize {
        let aside = names.into_iter().filter_map(|name| self.set_aside(&name));
        aside
            .filter(|directory| {
                let removed = fs::remove_dir_all(directory);
                removed
                    .inspect_err(|error| {
                        tracing::warn!(directory = %directory.display(), %error, "an old mirror stays until the next start");
                    })
                    .is_ok()
            })
            .count()
    }

    fn set_aside(&self, name: &str) -> Option<PathBuf> {
        let number = self.deleted.fetch_add(1, Ordering::Relaxed);
        let aside = self.root.join(format!("{DELETED}{number}"));
        let mut open = self.state();
        if open.is_held(name) {
            return None;
        }
        open.proofs.remove(name);
        match fs::rename(self.root.join(name), &aside) {
            Ok(()) => {
                open.usage.forget(name);
                Some(aside)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                open.usage.forget(name);
                None
            }
            // It counts on, and is tried again.
            Err(_) => None,
        }
    }
}

/// Directory name of a mirror: a digest, so that neither address nor credentials can be read from the disk's listing,
/// and that two users of one address share a mirror only if both may read it, on the same way.
fn name(remote: &Remote, extent: Extent) -> String {
    let url = remote.address.url().as_str().as_bytes();
    let hash = Sha256::new()
        .chain_update(url.len().to_be_bytes())
        .chain_update(url)
        .chain_update(remote.identity())
        .chain_update(remote.route());
    let hash = match extent {
        Extent::Whole => hash,
        Extent::Names => hash.chain_update(b"blob:none"),
    };
    hex::encode(hash.finalize())
}

/// One mirror. It is written by one fetch at a time and read by any number of checkouts.
#[derive(Debug)]
pub struct Mirror {
    threads: Threads,
    writer: Arc<tokio::sync::Mutex<Writer>>,
}

impl Mirror {
    fn new(all: Weak<Shared>, root: &Path, name: &str, threads: Threads) -> Self {
        Self {
            threads,
            writer: Arc::new(tokio::sync::Mutex::new(Writer {
                directory: root.join(name),
                all,
                name: name.to_owned(),
                current: None,
            })),
        }
    }

    /// Where its fetches block.
    pub(super) const fn threads(&self) -> &Threads {
        &self.threads
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
    all: Weak<Shared>,
    name: String,
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
        self.measure();
    }

    /// Says how large the mirror is now. What is not known is not counted.
    fn measure(&self) {
        let (Some(all), Some(current)) = (self.all.upgrade(), &self.current) else {
            return;
        };
        if let Ok(bytes) = bytes_below(current.generation.directory()) {
            all.measured(&self.name, bytes);
        }
    }
}
