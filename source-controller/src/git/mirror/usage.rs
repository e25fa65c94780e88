//! How much room mirrors take, and which of them go first. Pure: nothing is read or deleted here.
//!
//! A mirror counts for each namespace whose objects read it. Beyond a namespace's quota the mirrors go that it alone reads,
//! beyond the bound of all any of them, and of those the least recently used first. A mirror that is being read never goes.

use std::collections::{BTreeSet, HashMap};

/// What a mirror counts at least, in bytes: the disk gives out more than its files hold.
const LEAST: u64 = 1 << 20;

/// Bounds on the room that mirrors take, in bytes; 0 is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// All mirrors together, `--git-mirrors-max-bytes`.
    pub total: u64,
    /// The mirrors that objects of one namespace read, `--git-mirrors-max-bytes-per-namespace`.
    pub namespace: u64,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    bytes: u64,
    /// When it was last used, counted in uses.
    used: u64,
    /// Whether it was used since the last sweep.
    is_fresh: bool,
    namespaces: BTreeSet<String>,
}

/// All mirrors on disk.
#[derive(Debug, Default)]
pub(super) struct DiskUsage {
    room: Room,
    uses: u64,
    entries: HashMap<String, Entry>,
}

impl DiskUsage {
    /// With these mirrors and their bytes, the least recently used first.
    pub(super) fn new(room: Room, found: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut usage = Self {
            room,
            ..Self::default()
        };
        for (name, bytes) in found {
            let used = usage.tick();
            let entry = Entry {
                bytes,
                used,
                ..Entry::default()
            };
            usage.entries.insert(name, entry);
        }
        usage
    }

    fn tick(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// An object of this namespace uses the mirror.
    pub(super) fn uses(&mut self, name: &str, namespace: &str) {
        let used = self.tick();
        let entry = self.entries.entry(name.to_owned()).or_default();
        entry.used = used;
        entry.is_fresh = true;
        if !entry.namespaces.contains(namespace) {
            entry.namespaces.insert(namespace.to_owned());
        }
    }

    /// Keeps the mirror, if there is one, from the next sweep.
    pub(super) fn keep(&mut self, name: &str) {
        let used = self.tick();
        if let Some(entry) = self.entries.get_mut(name) {
            entry.used = used;
            entry.is_fresh = true;
        }
    }

    /// The mirror has so many bytes now.
    pub(super) fn measured(&mut self, name: &str, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.bytes = bytes;
        }
    }

    /// The mirror is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.entries.remove(name);
    }

    /// The mirrors that were not used since this was asked last.
    pub(super) fn stale(&mut self) -> Vec<String> {
        let stale = self.entries.iter().filter(|(_, entry)| !entry.is_fresh);
        let stale = stale.map(|(name, _)| name.clone()).collect();
        for entry in self.entries.values_mut() {
            entry.is_fresh = false;
        }
        stale
    }

    /// The mirrors that have to go so that all bounds hold.
    pub(super) fn surplus(&self, is_read: impl Fn(&str) -> bool) -> Vec<String> {
        let mut sums = Sums::default();
        for entry in self.entries.values() {
            sums.add(entry);
        }
        let mut surplus = Vec::new();
        for (name, entry) in self.by_use(is_read) {
            let over_quota = || {
                let mut namespaces = entry.namespaces.iter();
                self.room.namespace > 0
                    && entry.namespaces.len() == 1
                    && namespaces.any(|namespace| sums.of(namespace) > self.room.namespace)
            };
            if (self.room.total > 0 && sums.total > self.room.total) || over_quota() {
                sums.remove(entry);
                surplus.push(name.to_owned());
            }
        }
        surplus
    }

    /// The mirrors that go on a full disk: the least recently used, up to half of what could go.
    pub(super) fn half(&self, is_read: impl Fn(&str) -> bool) -> Vec<String> {
        let all = self.by_use(is_read);
        let half = all
            .iter()
            .map(|(_, entry)| weight(entry))
            .sum::<u64>()
            .div_ceil(2);
        let mut freed = 0;
        let needed = all.into_iter().take_while(|(_, entry)| {
            let is_needed = freed < half;
            freed += weight(entry);
            is_needed
        });
        needed.map(|(name, _)| name.to_owned()).collect()
    }

    fn by_use(&self, is_read: impl Fn(&str) -> bool) -> Vec<(&str, &Entry)> {
        let entries = self.entries.iter().map(|(name, entry)| (name.as_str(), entry));
        let mut idle: Vec<_> = entries.filter(|(name, _)| !is_read(name)).collect();
        idle.sort_by_key(|(_, entry)| entry.used);
        idle
    }
}

fn weight(entry: &Entry) -> u64 {
    entry.bytes.max(LEAST)
}

/// Bytes of all mirrors, and of those that each namespace reads.
#[derive(Default)]
struct Sums<'a> {
    total: u64,
    namespaces: HashMap<&'a str, u64>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, entry: &'a Entry) {
        self.total += weight(entry);
        for namespace in &entry.namespaces {
            *self.namespaces.entry(namespace).or_default() += weight(entry);
        }
    }

    fn remove(&mut self, entry: &'a Entry) {
        self.total = self.total.saturating_sub(weight(entry));
        for namespace in &entry.namespaces {
            let used = self.namespaces.entry(namespace).or_default();
            *used = used.saturating_sub(weight(entry));
        }
    }

    fn of(&self, namespace: &str) -> u64 {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn usage(room: Room, mirrors: &[(&str, &str, u64)]) -> DiskUsage {
        let mut usage = DiskUsage::new(room, []);
        for (name, namespace, mib) in mirrors {
            usage.uses(name, namespace);
            usage.measured(name, mib * MIB);
        }
        usage
    }

    #[test]
    fn beyond_the_bound_the_least_recently_used_go_unless_they_are_read() {
        let room = Room {
            total: 10 * MIB,
            namespace: 0,
        };
        let mut usage = usage(room, &[("a", "x", 4), ("b", "y", 4), ("c", "x", 4)]);
        assert_eq!(usage.surplus(|_| false), ["a"]);
        assert_eq!(usage.surplus(|name| name == "a"), ["b"]);
        usage.uses("a", "x");
        assert_eq!(usage.surplus(|_| false), ["b"]);
        usage.forget("b");
        assert!(usage.surplus(|_| false).is_empty());
    }

    #[test]
    fn a_namespace_beyond_its_quota_loses_only_what_it_alone_reads() {
        let room = Room {
            total: 0,
            namespace: 6 * MIB,
        };
        let mut usage = usage(room, &[("shared", "x", 4), ("other", "y", 5), ("own", "x", 4)]);
        usage.uses("shared", "y");
        assert_eq!(usage.surplus(|_| false), ["other", "own"]);
    }

    #[test]
    fn many_small_mirrors_count_as_what_they_cost_the_disk() {
        let room = Room {
            total: 0,
            namespace: 3 * MIB,
        };
        let names: Vec<_> = (0..5).map(|n| format!("{n}")).collect();
        let mirrors: Vec<_> = names.iter().map(|name| (name.as_str(), "x", 0)).collect();
        assert_eq!(usage(room, &mirrors).surplus(|_| false), ["0", "1"]);
    }

    #[test]
    fn a_full_disk_costs_the_older_half() {
        let usage = usage(Room::default(), &[("a", "x", 4), ("b", "x", 4), ("c", "x", 4)]);
        assert_eq!(usage.half(|_| false), ["a", "b"]);
        assert_eq!(usage.half(|name| name == "a"), ["b"]);
        assert!(usage.half(|_| true).is_empty());
    }

    #[test]
    fn what_was_not_used_between_two_sweeps_is_stale() {
        let mut usage = DiskUsage::new(Room::default(), [("old".to_owned(), 1)]);
        usage.uses("new", "x");
        assert_eq!(usage.stale(), ["old"]);
        usage.keep("old");
        usage.keep("none");
        assert_eq!(usage.stale(), ["new"]);
    }
}
