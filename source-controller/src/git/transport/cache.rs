//! Cache for discovered repositories with a maximum age and least-recently-used eviction.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of entries; beyond it the least recently used ones are evicted.
const CAPACITY: usize = 10_000;
/// Maximum age of an entry. Afterwards the next poll repeats the discovery, which costs one request.
const MAX_AGE: Duration = Duration::from_hours(1);

/// A cache with a maximum age.
#[derive(Debug)]
pub(super) struct ExpiringCache<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Counter of uses.
    use_count: u64,
    /// Maximum age of a value.
    max_age: Duration,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// Value of the counter at the last use.
    last_use: u64,
    inserted: Instant,
}

impl<K, V> Default for ExpiringCache<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            use_count: 0,
            max_age: MAX_AGE,
        }
    }
}

impl<K: Eq + Hash, V: Clone> ExpiringCache<K, V> {
    /// Returns the value unless it is too old.
    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        self.use_count += 1;
        let entry = self.entries.get_mut(key)?;
        if entry.inserted.elapsed() >= self.max_age {
            self.entries.remove(key);
            return None;
        }
        entry.last_use = self.use_count;
        Some(entry.value.clone())
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.entries.len() >= CAPACITY {
            self.evict();
        }
        self.use_count += 1;
        let (last_use, inserted) = (self.use_count, Instant::now());
        let entry = Entry {
            value,
            last_use,
            inserted,
        };
        self.entries.insert(key, entry);
    }

    /// Removes the value; returns whether it existed.
    pub(super) fn remove(&mut self, key: &K) -> bool {
        self.entries.remove(key).is_some()
    }

    /// Evicts a tenth of the entries, so that sorting is rare.
    fn evict(&mut self) {
        let mut use_count: Vec<u64> = self.entries.values().map(|entry| entry.last_use).collect();
        let (_, last, _) = use_count.select_nth_unstable(CAPACITY / 10);
        let last = *last;
        self.entries.retain(|_, entry| entry.last_use > last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_used_entries_survive_eviction_until_their_maximum_age() {
        let mut cache = ExpiringCache::default();
        for key in 0..CAPACITY {
            cache.insert(key, key);
        }
        assert_eq!(cache.get(&0), Some(0));
        for key in CAPACITY..2 * CAPACITY {
            cache.insert(key, key);
            assert_eq!(cache.get(&0), Some(0), "used all the time");
            assert!(cache.entries.len() <= CAPACITY);
        }
        // Nearly all entries are always in use: eviction never clears the whole cache.
        assert!(cache.entries.len() > CAPACITY * 8 / 10);
        assert_eq!(cache.get(&1), None);
        assert!(cache.remove(&(2 * CAPACITY - 1)) && !cache.remove(&(2 * CAPACITY - 1)));
        cache.max_age = Duration::ZERO;
        assert_eq!(cache.get(&0), None);
        assert!(!cache.remove(&0));
    }
}
