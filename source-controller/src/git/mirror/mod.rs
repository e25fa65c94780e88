//! Bare repositories on disk, one for each combination of address, reader and route, shared by all objects with the
//! same combination.
//!
//! A mirror contains complete commits without history: each fetch requests one commit at depth 1 and lists the existing
//! ones, so that only the difference is transferred. Mirrors are a cache: losing one costs a fetch, so nothing is
//! synced to disk. Opening a mirror removes the leftovers of a crash.

mod generation;
mod readers;
mod recovery;
mod usage;
mod writer;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

pub(super) use generation::{Generation, Record, open_objects};
pub(super) use readers::Reader;
use readers::Readers;
use recovery::Recovery;
pub(super) use recovery::RecoveryPoint;
pub(crate) use recovery::{MAX_BYTES as MAX_RECOVERY_BYTES, Pieces, RecoveryStore};
use sluice_runtime::sync::lock;
use tokio::sync::OwnedMutexGuard;
pub use usage::DiskLimits;
use usage::{DiskUsage, MirrorUsage};
use writer::Verified;
pub(super) use writer::{OpenGeneration, Writer};

use super::access::Extent;
use super::remote::Remote;
use super::threads::Threads;

/// Prefix of a directory that is being deleted.
const DELETED_PREFIX: &str = ".deleted-";
/// How often the lock is tried while another process holds it.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// All mirrors below one directory, which one process uses at a time.
#[derive(Debug)]
pub struct Mirrors {
    shared: Arc<Shared>,
    // Dropping the file releases the lock.
    _lock: File,
}

#[derive(Debug)]
struct Shared {
    /// Threads for blocking work.
    threads: Threads,
    /// Readers of checkouts.
    readers: Readers,
    root: PathBuf,
    /// Never held during I/O: reconciliations take it on the thread that serves all of them.
    state: Mutex<State>,
    /// Held while a mirror is renamed for its deletion. Taken on blocking threads only, and before `state`.
    renaming: Mutex<()>,
    deleted: AtomicU64,
    /// Where recovery points are, if they are stored.
    recovery: OnceLock<Recovery>,
}

#[derive(Debug, Default)]
struct State {
    /// Mirrors in use.
    open: HashMap<String, Weak<Mirror>>,
    /// Disk usage of all mirrors.
    usage: DiskUsage,
    /// Names of partial mirrors whose servers do not serve blobs by hash.
    partial_disabled: HashSet<String>,
    /// Access digests that the server of a mirror has accepted since the process started.
    verified_access: HashMap<String, HashSet<[u8; 32]>>,
    /// Commits whose objects were all verified by this process. A mirror is closed between two reconciliations; without
    /// this, each new commit would require a walk of its complete tree.
    verified: HashMap<String, Verified>,
    /// Mirrors whose recovery points were read since they were created.
    restored: HashSet<String>,
}

impl State {
    fn is_open(&self, name: &str) -> bool {
        self.open
            .get(name)
            .is_some_and(|mirror| mirror.strong_count() > 0)
    }
}

/// Takes the lock. Another process may hold it for moments: the predecessor that is ending, or a child process of this one until its `exec`.
fn wait_for_lock(lock: &File, timeout: Duration) -> Result<(), TryLockError> {
    let start = Instant::now();
    loop {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if start.elapsed() < timeout => {
                std::thread::sleep(LOCK_POLL_INTERVAL);
            }
            taken => return taken,
        }
    }
}

impl Mirrors {
    /// Opens the directory without a size limit; creates it if necessary.
    ///
    /// # Errors
    /// The directory cannot be created, or another process uses it.
    pub fn new(root: &Path) -> io::Result<Self> {
        Self::with_limits(root, DiskLimits::default(), Duration::ZERO)
    }

    /// Opens the directory; creates it if necessary. Waits this long for another process that uses it. Blocking.
    ///
    /// # Errors
    /// The directory cannot be created or listed, or another process uses it.
    pub(crate) fn with_limits(root: &Path, limits: DiskLimits, timeout: Duration) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let lock = File::create(root.join("lock"))?;
        wait_for_lock(&lock, timeout).map_err(|error| {
            io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("{} is in use by another process: {error}", root.display()),
            )
        })?;
        let usage = DiskUsage::new(limits, list_mirrors(root)?);
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            state: Mutex::new(State {
                usage,
                ..State::default()
            }),
            renaming: Mutex::default(),
            deleted: AtomicU64::new(0),
            recovery: OnceLock::new(),
            threads: Threads::default(),
            readers: Readers::default(),
        });
        Ok(Self { shared, _lock: lock })
    }

    /// Returns the mirror of a remote. Performs no I/O, so every reconciliation may call it.
    #[must_use]
    pub fn open(&self, remote: &Remote) -> Arc<Mirror> {
        let recovery = self.shared.recovery.get();
        self.get_or_open(
            remote.mirror_name(Extent::Full),
            remote,
            recovery.and_then(|recovery| recovery.of(remote)),
            &mut self.shared.lock_state(),
        )
    }

    /// Returns the partial mirror of a remote; `None` if the server does not serve blobs by hash.
    pub(super) fn open_partial(&self, remote: &Remote) -> Option<Arc<Mirror>> {
        let name = remote.mirror_name(Extent::Partial);
        let mut state = self.shared.lock_state();
        (!state.partial_disabled.contains(name)).then(|| self.get_or_open(name, remote, None, &mut state))
    }

    /// Protects the partial mirror, if there is one, from the next sweep.
    pub(crate) fn touch_partial(&self, remote: &Remote) {
        self.shared
            .lock_state()
            .usage
            .touch(remote.mirror_name(Extent::Partial));
    }

    /// Fetches complete commits from this remote until the process ends.
    pub(super) fn disable_partial(&self, remote: &Remote) {
        self.shared
            .lock_state()
            .partial_disabled
            .insert(remote.mirror_name(Extent::Partial).to_owned());
    }

    /// Records that the server has just accepted these credentials on this route.
    pub(crate) fn record_access(&self, remote: &Remote) {
        let mut state = self.shared.lock_state();
        let verified_access = state
            .verified_access
            .entry(remote.mirror_name(Extent::Full).to_owned())
            .or_default();
        verified_access.insert(remote.access_digest());
    }

    /// Whether the server has accepted these credentials since the process started. Otherwise the mirror's content must
    /// not be used: credentials may have changed or expired since it was filled.
    #[must_use]
    pub(crate) fn is_access_verified(&self, remote: &Remote) -> bool {
        let state = self.shared.lock_state();
        let verified_access = state.verified_access.get(remote.mirror_name(Extent::Full));
        verified_access.is_some_and(|verified_access| verified_access.contains(&remote.access_digest()))
    }

    fn get_or_open(
        &self,
        name: &str,
        remote: &Remote,
        recovery: Option<Recovery>,
        state: &mut State,
    ) -> Arc<Mirror> {
        state.usage.record_use(name, &remote.owner.namespace);
        state.open.retain(|_, mirror| mirror.strong_count() > 0);
        if let Some(mirror) = state.open.get(name).and_then(Weak::upgrade) {
            return mirror;
        }
        let mirror = Arc::new(Mirror::new(&self.shared, name, recovery));
        state.open.insert(name.to_owned(), Arc::downgrade(&mirror));
        mirror
    }

    /// Deletes every mirror that was not opened since the previous sweep, and returns their number. The interval of
    /// sweeps must exceed the longest interval of an object. Failed deletions are retried by the next sweep. Blocking.
    #[must_use]
    pub(crate) fn sweep(&self) -> usize {
        let stale = self.shared.lock_state().usage.take_stale();
        self.shared.discard(stale)
    }

    /// Deletes unused mirrors on a full disk, the least recently used first, and returns their number. Blocking.
    #[must_use]
    pub(crate) fn free_space(&self) -> usize {
        let oldest = {
            let state = self.shared.lock_state();
            state.usage.oldest_half(|name| state.is_open(name))
        };
        let removed = self.shared.discard(oldest);
        if removed > 0 {
            tracing::warn!(removed, "disk full: deleted the least recently used mirrors");
        }
        removed
    }
}

impl Shared {
    fn lock_state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Records the size of a mirror and deletes mirrors over the limits.
    fn record_size(&self, name: &str, bytes: u64) {
        let over_limit = {
            let mut state = self.lock_state();
            state.usage.record_size(name, bytes);
            state.usage.over_limit(|name| state.is_open(name))
        };
        let removed = self.discard(over_limit);
        if removed > 0 {
            tracing::info!(
                removed,
                "deleted the least recently used mirrors: all together exceed --git-mirrors-max-bytes, or those of one \
                 namespace exceed --git-mirrors-max-bytes-per-namespace"
            );
        }
    }

    /// Waits for the mirror that is being renamed, if there is one. The caller has opened its own mirror: it is not renamed later. Blocking.
    fn wait_for_rename(&self) {
        drop(lock(&self.renaming));
    }

    /// Deletes unused mirrors, and returns their number. Each is renamed first, so that it can be opened again during the deletion.
    fn discard(&self, names: Vec<String>) -> usize {
        let renamed = names
            .into_iter()
            .filter_map(|name| self.rename_for_deletion(&name));
        renamed
            .filter(|directory| {
                let removed = fs::remove_dir_all(directory);
                removed
                    .inspect_err(|error| {
                        tracing::warn!(directory = %directory.display(), %error, "cannot delete an old mirror: retrying at the next start");
                    })
                    .is_ok()
            })
            .count()
    }

    fn rename_for_deletion(&self, name: &str) -> Option<PathBuf> {
        let number = self.deleted.fetch_add(1, Ordering::Relaxed);
        let renamed = self.root.join(format!("{DELETED_PREFIX}{number}"));
        // Held from the check on: who opens the mirror after the check waits for the rename before it uses the directory.
        let _renaming = lock(&self.renaming);
        let usage = self.forget_unused(name)?;
        match fs::rename(self.root.join(name), &renamed) {
            Ok(()) => Some(renamed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => {
                // The mirror still counts, and the deletion is retried.
                self.lock_state().usage.put_back(name, usage);
                None
            }
        }
    }

    /// Forgets a mirror, and returns its usage; `None` if it is in use, or another thread is deleting it.
    fn forget_unused(&self, name: &str) -> Option<MirrorUsage> {
        let mut state = self.lock_state();
        if state.is_open(name) {
            return None;
        }
        state.verified_access.remove(name);
        state.verified.remove(name);
        state.restored.remove(name);
        state.usage.take(name)
    }
}

/// Lists the mirrors on disk with their bytes, the least recently written first. Removes directories that a crash left
/// half deleted.
fn list_mirrors(root: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(DELETED_PREFIX) {
            fs::remove_dir_all(entry.path())?;
            continue;
        }
        found.push((
            entry.metadata()?.modified()?,
            name,
            directory_bytes(&entry.path())?,
        ));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, name, bytes)| (name, bytes)).collect())
}

/// Returns the bytes of all files below a directory.
fn directory_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            directory_bytes(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}

/// One mirror. One fetch at a time writes it, any number of checkouts read it.
#[derive(Debug)]
pub struct Mirror {
    threads: Threads,
    readers: Readers,
    writer: Arc<tokio::sync::Mutex<Writer>>,
}

impl Mirror {
    fn new(shared: &Arc<Shared>, name: &str, recovery: Option<Recovery>) -> Self {
        let writer = Writer::new(Arc::downgrade(shared), &shared.root, name, recovery);
        Self {
            threads: shared.threads.clone(),
            readers: shared.readers.clone(),
            writer: Arc::new(tokio::sync::Mutex::new(writer)),
        }
    }

    /// Returns the threads for its fetches.
    pub(super) const fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Opens the packs of a directory for a checkout, unless too many are open for others.
    pub(super) fn open_reader(&self, packs: &Path) -> Option<Reader> {
        self.readers.open(packs)
    }

    /// Waits for the write lock.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<Writer> {
        Arc::clone(&self.writer).lock_owned().await
    }
}

#[cfg(test)]
mod tests;
