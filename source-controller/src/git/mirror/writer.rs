//! The write side of a mirror: its current generation, new generations, and verified commits.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::Shared;
use super::generation::{self, Generation, Record};
use super::recovery::{self, Recovery, RecoveryPoint};

/// Commits after which a mirror is replaced. Each adds a pack to search and two lines to a request.
const MAX_TIPS: usize = 100;
/// Size in bytes below which a mirror is never replaced for its size.
const MIN_REPLACE_BYTES: u64 = 8 << 20;

/// The verified commits of one generation.
#[derive(Debug)]
pub(super) struct Verified {
    /// The name of its directory in that of the mirror.
    generation: OsString,
    /// A list, because nearly every mirror has one, and keeps it between reconciliations.
    commits: Box<[git2::Oid]>,
}

/// The write side of a mirror. All methods block.
#[derive(Debug)]
pub(in super::super) struct Writer {
    directory: PathBuf,
    shared: Weak<Shared>,
    name: String,
    /// Where its recovery points are; `None` if it has none.
    recovery: Option<Recovery>,
    current: Option<OpenGeneration>,
}

/// A generation with its commits.
#[derive(Clone, Debug)]
pub(in super::super) struct OpenGeneration {
    /// The generation's directory.
    pub(in super::super) generation: Arc<Generation>,
    /// The commits that it contains.
    pub(in super::super) record: Record,
    /// The commits whose objects were all verified by this process.
    pub(in super::super) verified: HashSet<git2::Oid>,
}

impl OpenGeneration {
    /// Whether the generation should be replaced: too many commits, too many bytes, or unreadable objects.
    pub(in super::super) fn needs_replacement(&self) -> bool {
        let packs = self.generation.pack_sizes().unwrap_or_default();
        let (total, largest) = (
            packs.iter().sum::<u64>(),
            packs.iter().max().copied().unwrap_or_default(),
        );
        let is_fragmented = total > MIN_REPLACE_BYTES && total > largest.saturating_mul(2);
        self.generation.is_corrupt() || self.record.tips.len() >= MAX_TIPS || is_fragmented
    }
}

impl Writer {
    pub(super) fn new(shared: Weak<Shared>, root: &Path, name: &str, recovery: Option<Recovery>) -> Self {
        Self {
            directory: root.join(name),
            shared,
            name: name.to_owned(),
            recovery,
            current: None,
        }
    }

    /// Opens the recovery point of the mirror at its first call in a process: one that cannot be used is not read again.
    pub(in super::super) fn recovery_point(&self, deadline: Instant) -> Option<RecoveryPoint> {
        let (recovery, shared) = (self.recovery.as_ref()?, self.shared.upgrade()?);
        let is_first = shared.lock_state().restored.insert(self.name.clone());
        if !is_first {
            return None;
        }
        let opened = recovery.store.open(&self.name, deadline);
        let point = opened.and_then(|pieces| pieces.map(RecoveryPoint::read).transpose());
        point.unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "cannot read the recovery point of a mirror: everything is fetched"
            );
            None
        })
    }

    /// Stores a recovery point if the generation has what one fetch from nothing has brought: one commit in one pack. Later packs depend
    /// on it. Does not wait.
    pub(in super::super) fn store_recovery_point(&self, opened: &OpenGeneration) {
        let Some(recovery) = self.recovery.as_ref().filter(|_| opened.record.tips.len() == 1) else {
            return;
        };
        // Without the directory there is nothing to store.
        let pack = opened.generation.only_pack().ok().flatten();
        if let (Some(pack), Some(header)) = (pack, recovery::header(&opened.record)) {
            recovery.store_later(self.name.clone(), header, pack, Arc::clone(&opened.generation));
        }
    }

    /// Returns the current generation; reads it from disk on the first call.
    pub(in super::super) fn open_current(&mut self) -> io::Result<OpenGeneration> {
        if let Some(current) = &self.current {
            return Ok(current.clone());
        }
        if let Some(shared) = self.shared.upgrade() {
            // The directory may be that of the deleted predecessor.
            shared.wait_for_rename();
        }
        let opened = match generation::open_latest(&self.directory)? {
            Some((generation, record)) => OpenGeneration {
                verified: self.verified(generation.directory()),
                generation: Arc::new(generation),
                record,
            },
            None => self.opened(Generation::create_first(&self.directory)?),
        };
        self.current = Some(opened.clone());
        Ok(opened)
    }

    /// Creates an empty generation next to the current one, for a fetch from nothing.
    pub(in super::super) fn create_next(&self) -> io::Result<OpenGeneration> {
        let opened = self.opened(Generation::create(&self.directory)?);
        // Deleted on drop unless it is installed.
        opened.generation.retire();
        Ok(opened)
    }

    /// Opens a generation that was just created.
    fn opened(&self, generation: Generation) -> OpenGeneration {
        // The directory may have the name of a deleted one.
        if let Some(shared) = self.shared.upgrade() {
            shared.lock_state().verified.remove(&self.name);
        }
        OpenGeneration {
            generation: Arc::new(generation),
            record: Record::default(),
            verified: HashSet::new(),
        }
    }

    /// Returns the commits of that generation that this process verified.
    fn verified(&self, directory: &Path) -> HashSet<git2::Oid> {
        let Some(shared) = self.shared.upgrade() else {
            return HashSet::new();
        };
        let state = shared.lock_state();
        let verified = state.verified.get(&self.name);
        verified
            .filter(|verified| directory.file_name() == Some(verified.generation.as_os_str()))
            .map_or_else(HashSet::new, |verified| {
                verified.commits.iter().copied().collect()
            })
    }

    fn store_verified(&self, opened: &OpenGeneration) {
        let verified = Verified {
            generation: opened
                .generation
                .directory()
                .file_name()
                .unwrap_or_default()
                .to_owned(),
            commits: opened.verified.iter().copied().collect(),
        };
        if let Some(shared) = self.shared.upgrade() {
            shared.lock_state().verified.insert(self.name.clone(), verified);
        }
    }

    /// Makes `opened` the current generation. The last checkout of an older one deletes it.
    pub(in super::super) fn install(&mut self, opened: OpenGeneration) {
        opened.generation.unretire();
        self.store_verified(&opened);
        let old = self.current.replace(opened);
        if let (Some(old), Some(new)) = (old, &self.current)
            && !Arc::ptr_eq(&old.generation, &new.generation)
        {
            old.generation.retire();
        }
        self.report_size();
    }

    /// Reports the size of the mirror. A failure is ignored.
    fn report_size(&self) {
        let (Some(shared), Some(current)) = (self.shared.upgrade(), &self.current) else {
            return;
        };
        if let Ok(bytes) = current.generation.bytes(&current.record) {
            shared.record_size(&self.name, bytes);
        }
    }
}
