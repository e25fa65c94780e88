//! What was learnt about repositories: for a while, and of those that were asked about last.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Repositories that are remembered; beyond it those go that were not asked about for longest.
const MOST: usize = 10_000;
/// How long a server is taken at its word. After it the next poll asks once more, which costs one request.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Values that are remembered.
#[derive(Debug)]
pub(super) struct Remembered<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Counts the uses.
    uses: u64,
    /// How long a value is good for.
    longest: Duration,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// The number of its last use.
    used: u64,
    learnt: Instant,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            uses: 0,
            longest: LONGEST,
        }
    }
}

impl<K: Eq + Hash, V: Clone> Remembered<K, V> {
    /// The value, unless it was learnt too long ago.
    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        if entry.learnt.elapsed() >= self.longest {
            self.entries.remove(key);
            return None;
        }
        entry.used = self.uses;
        Some(entry.value.clone())
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.entries.len() >= MOST {
            self.make_room();
        }
        self.uses += 1;
        let (used, learnt) = (self.uses, Instant::now());
        self.entries.insert(key, Entry { value, used, learnt });
    }

    /// Whether there was something to forget.
    pub(super) fn forget(&mut self, key: &K) -> bool {
        self.entries.remove(key).is_some()
    }

    /// Forgets a tenth, so that the order is looked up once in a while only.
    fn make_room(&mut self) {
        let mut uses: Vec<u64> = self.entries.values().map(|entry| entry.used).collect();
        let (_, last, _) = uses.select_nth_unstable(MOST / 10);
        let last = *last;
        self.entries.retain(|_, entry| entry.used > last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_when_others_go_and_nothing_stays_for_ever() {
        let mut remembered = Remembered::default();
        for key in 0..MOST {
            remembered.insert(key, key);
        }
        assert_eq!(remembered.get(&0), Some(0));
        for key in MOST..2 * MOST {
            remembered.insert(key, key);
            assert_eq!(remembered.get(&0), Some(0), "used all the time");
            assert!(remembered.entries.len() <= MOST);
        }
        // Nearly all places are in use all the time: nothing is forgotten as a whole.
        assert!(remembered.entries.len() > MOST * 8 / 10);
        assert_eq!(remembered.get(&1), None);
        assert!(remembered.forget(&(2 * MOST - 1)) && !remembered.forget(&(2 * MOST - 1)));
        remembered.longest = Duration::ZERO;
        assert_eq!(remembered.get(&0), None);
        assert!(!remembered.forget(&0));
    }
}
