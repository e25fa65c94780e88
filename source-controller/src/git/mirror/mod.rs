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
mod writer;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;

pub(super) use generation::{Generation, open_objects};
pub use usage::Room;
pub(super) use writer::{Opened, Writer};

use super::checkout::Extent;
use super::remote::Remote;
use super::threads::Threads;
use disk::found;
use usage::DiskUsage;
use writer::Verified;

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
    /// Commits whose objects were all found by this process. A mirror is closed between two passes; without this each new
    /// commit would be compared with nothing, and its whole tree walked.
    verified: HashMap<String, Verified>,
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
        open.verified.remove(name);
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
            writer: Arc::new(tokio::sync::Mutex::new(Writer::new(all, root, name))),
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
