//! The writing side of a mirror: its current generation, the ones that follow it, and what is known of their commits.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::Shared;
use super::disk::bytes_below;
use super::generation::{self, Generation};
use super::record::Record;

/// Commits that a mirror may hold before it is made anew. Each adds a pack to look into and two lines to a request.
const MOST_TIPS: usize = 100;
/// A mirror below this size is never made anew for its size.
const SMALL: u64 = 8 << 20;

/// The verified commits of one generation.
#[derive(Debug)]
pub(super) struct Verified {
    directory: PathBuf,
    commits: HashSet<git2::Oid>,
}

/// The writing side of a mirror. Everything here blocks.
#[derive(Debug)]
pub(in super::super) struct Writer {
    directory: PathBuf,
    all: Weak<Shared>,
    name: String,
    current: Option<Opened>,
}

/// A generation with what is known about it.
#[derive(Clone, Debug)]
pub(in super::super) struct Opened {
    /// Its directory.
    pub(in super::super) generation: Arc<Generation>,
    /// The commits it holds.
    pub(in super::super) record: Record,
    /// Those whose objects were all found, by this process.
    pub(in super::super) verified: HashSet<git2::Oid>,
}

impl Opened {
    /// Whether its commits should be left behind: too many of them, too many bytes, or unreadable ones.
    pub(in super::super) fn is_frayed(&self) -> bool {
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
    pub(super) fn new(all: Weak<Shared>, root: &Path, name: &str) -> Self {
        Self {
            directory: root.join(name),
            all,
            name: name.to_owned(),
            current: None,
        }
    }

    /// The current generation, read from disk if this is the first look at it.
    pub(in super::super) fn opened(&mut self) -> io::Result<Opened> {
        if let Some(current) = &self.current {
            return Ok(current.clone());
        }
        fs::create_dir_all(&self.directory)?;
        let opened = match generation::latest(&self.directory)? {
            Some((generation, record)) => Opened {
                verified: self.verified(generation.directory()),
                generation: Arc::new(generation),
                record,
            },
            None => self.create()?,
        };
        self.current = Some(opened.clone());
        Ok(opened)
    }

    /// An empty generation beside the current one, for a fetch from nothing.
    pub(in super::super) fn fresh(&self) -> io::Result<Opened> {
        let opened = self.create()?;
        // Until it is kept, it goes away when it is dropped.
        opened.generation.retire();
        Ok(opened)
    }

    fn create(&self) -> io::Result<Opened> {
        let generation = Generation::create(&self.directory)?;
        // Its directory may have the name of one that is gone.
        if let Some(all) = self.all.upgrade() {
            all.state().verified.remove(&self.name);
        }
        Ok(Opened {
            generation: Arc::new(generation),
            record: Record::default(),
            verified: HashSet::new(),
        })
    }

    /// The commits that this process verified in that generation.
    fn verified(&self, directory: &Path) -> HashSet<git2::Oid> {
        let Some(all) = self.all.upgrade() else {
            return HashSet::new();
        };
        let open = all.state();
        let verified = open.verified.get(&self.name);
        verified
            .filter(|verified| verified.directory == directory)
            .map_or_else(HashSet::new, |verified| verified.commits.clone())
    }

    fn remember_verified(&self, opened: &Opened) {
        let verified = Verified {
            directory: opened.generation.directory().to_owned(),
            commits: opened.verified.clone(),
        };
        if let Some(all) = self.all.upgrade() {
            all.state().verified.insert(self.name.clone(), verified);
        }
    }

    /// Makes `opened` the current generation. An older one goes away with its last checkout.
    pub(in super::super) fn keep(&mut self, opened: Opened) {
        opened.generation.keep();
        self.remember_verified(&opened);
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
