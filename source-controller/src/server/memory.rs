//! Small files in memory, so that a request for one needs neither the disk nor another thread.
//!
//! A file counts while this process has stored and removed nothing since it was read, and is read again after a second in
//! any case, in case another program has changed the disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_runtime::sync::lock;
use tokio::time::Instant;

use super::file::{Content, ServedFile};

/// Maximum size of all files together, in bytes.
const MAX_BYTES: usize = 8 << 20;
/// What a file takes beside its content: name, headers and entry.
const OVERHEAD: usize = 1024;
/// How long a file counts before it is read from the disk again.
pub(super) const MAX_AGE: Duration = Duration::from_secs(1);

/// Files by the path of their requests.
#[derive(Debug)]
pub(super) struct SmallFiles {
    max_age: Duration,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    entries: HashMap<String, Entry>,
    bytes: usize,
    /// Counter of uses.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    file: Arc<ServedFile>,
    bytes: usize,
    /// The changes of the storage before the file was read.
    changes: u64,
    read_at: Instant,
    last_use: u64,
}

impl SmallFiles {
    /// Creates an empty cache whose files count for at most `max_age`.
    pub(super) fn new(max_age: Duration) -> Self {
        Self {
            max_age,
            cache: Mutex::default(),
        }
    }

    /// Returns the file of a path, if it was read after the last of these changes.
    pub(super) fn get(&self, path: &str, changes: u64) -> Option<Arc<ServedFile>> {
        let mut cache = lock(&self.cache);
        cache.uses += 1;
        let uses = cache.uses;
        let entry = cache.entries.get_mut(path)?;
        if entry.changes != changes || entry.read_at.elapsed() >= self.max_age {
            return None;
        }
        entry.last_use = uses;
        Some(Arc::clone(&entry.file))
    }

    /// Keeps a small file. `changes` are those of the storage before it was read.
    pub(super) fn insert(&self, path: &str, changes: u64, file: &Arc<ServedFile>) {
        let Content::Memory(content) = &file.content else {
            return;
        };
        let bytes = content.len() + path.len() + OVERHEAD;
        let mut cache = lock(&self.cache);
        cache.remove(path);
        if cache.bytes + bytes > MAX_BYTES {
            cache.evict();
        }
        cache.bytes += bytes;
        let entry = Entry {
            file: Arc::clone(file),
            bytes,
            changes,
            read_at: Instant::now(),
            last_use: cache.uses,
        };
        cache.entries.insert(path.to_owned(), entry);
    }

    /// Removes the file of a path.
    pub(super) fn remove(&self, path: &str) {
        lock(&self.cache).remove(path);
    }
}

impl Cache {
    fn remove(&mut self, path: &str) {
        if let Some(entry) = self.entries.remove(path) {
            self.bytes -= entry.bytes;
        }
    }

    /// Removes the half of the files that was used least recently, so that sorting is rare.
    fn evict(&mut self) {
        let mut uses: Vec<u64> = self.entries.values().map(|entry| entry.last_use).collect();
        let middle = uses.len() / 2;
        let (_, middle, _) = uses.select_nth_unstable(middle);
        let middle = *middle;
        self.entries.retain(|_, entry| entry.last_use > middle);
        self.bytes = self.entries.values().map(|entry| entry.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use jiff::Timestamp;

    use super::super::conditional::FileInfo;
    use super::*;

    fn file(size: usize) -> Arc<ServedFile> {
        Arc::new(ServedFile {
            content: Content::Memory(vec![0; size].into()),
            info: FileInfo {
                size: size as u64,
                modified: Timestamp::UNIX_EPOCH,
                tag: None,
            },
            headers: HeaderMap::new(),
        })
    }

    #[test]
    fn a_file_counts_until_the_storage_changes() {
        let files = SmallFiles::new(Duration::from_hours(1));
        files.insert("/a", 7, &file(1));
        assert!(files.get("/a", 7).is_some());
        assert!(files.get("/a", 8).is_none());
        assert!(files.get("/b", 7).is_none());
        files.insert("/a", 8, &file(1));
        assert!(files.get("/a", 8).is_some());
        files.remove("/a");
        assert!(files.get("/a", 8).is_none());
        let aged = SmallFiles::new(Duration::ZERO);
        aged.insert("/a", 7, &file(1));
        assert!(aged.get("/a", 7).is_none());
    }

    #[test]
    fn the_files_used_last_stay_within_the_limit() {
        let files = SmallFiles::new(Duration::from_hours(1));
        let path = |number: usize| format!("/{number}");
        for number in 0..1000 {
            files.insert(&path(number), 0, &file(20_000));
            assert!(files.get("/0", 0).is_some(), "used all the time");
            let cache = lock(&files.cache);
            assert!(cache.bytes <= MAX_BYTES);
            let sum: usize = cache.entries.values().map(|entry| entry.bytes).sum();
            assert_eq!(cache.bytes, sum);
        }
        assert!(files.get(&path(999), 0).is_some() && files.get(&path(1), 0).is_none());
        for _ in 0..3 {
            files.insert("/0", 0, &file(20_000));
        }
        assert_eq!(lock(&files.cache).entries["/0"].bytes, 20_000 + 2 + OVERHEAD);
    }
}
