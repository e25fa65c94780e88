//! Disk usage of mirrors, and the order in which they are deleted. Pure: no I/O.
//!
//! A mirror counts for each namespace whose objects use it. Over a namespace's quota, mirrors that only this namespace
//! uses are deleted; over the total limit, any mirror; the least recently used first. Mirrors in use are never
//! deleted.

use std::collections::HashMap;

/// Minimum size of a mirror in bytes: the disk allocates more than the sum of file sizes.
const MIN_BYTES: u64 = 1 << 20;

/// Limits of the disk usage of mirrors in bytes; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLimits {
    /// All mirrors together, `--git-mirrors-max-bytes`.
    pub total: u64,
    /// The mirrors used by objects of one namespace, `--git-mirrors-max-bytes-per-namespace`.
    pub namespace: u64,
}

/// One mirror on disk.
#[derive(Clone, Debug, Default)]
pub(super) struct MirrorUsage {
    bytes: u64,
    /// Value of the use counter at the last use.
    last_use: u64,
    /// Whether the mirror was used since the last sweep.
    used_since_sweep: bool,
    /// Sorted. Not a set: that takes ten times as much memory for one name, and nearly every mirror has one.
    namespaces: Vec<String>,
}

/// All mirrors on disk.
#[derive(Debug, Default)]
pub(super) struct DiskUsage {
    limits: DiskLimits,
    use_count: u64,
    entries: HashMap<String, MirrorUsage>,
}

impl DiskUsage {
    /// Starts with these mirrors and their bytes, the least recently used first.
    pub(super) fn new(limits: DiskLimits, found: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut usage = Self {
            limits,
            ..Self::default()
        };
        for (name, bytes) in found {
            let last_use = usage.next_use();
            let entry = MirrorUsage {
                bytes,
                last_use,
                ..MirrorUsage::default()
            };
            usage.entries.insert(name, entry);
        }
        usage
    }

    fn next_use(&mut self) -> u64 {
        self.use_count += 1;
        self.use_count
    }

    /// Records a use of the mirror by an object of this namespace.
    pub(super) fn record_use(&mut self, name: &str, namespace: &str) {
        let last_use = self.next_use();
        let entry = self.entries.entry(name.to_owned()).or_default();
        entry.last_use = last_use;
        entry.used_since_sweep = true;
        let found = entry
            .namespaces
            .binary_search_by(|other| other.as_str().cmp(namespace));
        if let Err(at) = found {
            entry.namespaces.reserve_exact(1);
            entry.namespaces.insert(at, namespace.to_owned());
        }
    }

    /// Protects the mirror, if there is one, from the next sweep.
    pub(super) fn touch(&mut self, name: &str) {
        let last_use = self.next_use();
        if let Some(entry) = self.entries.get_mut(name) {
            entry.last_use = last_use;
            entry.used_since_sweep = true;
        }
    }

    /// Records the size of the mirror.
    pub(super) fn record_size(&mut self, name: &str, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.bytes = bytes;
        }
    }

    /// Removes a mirror that is about to be deleted.
    pub(super) fn take(&mut self, name: &str) -> Option<MirrorUsage> {
        self.entries.remove(name)
    }

    /// Adds a mirror again that could not be deleted. If it was used meanwhile, the later use counts.
    pub(super) fn put_back(&mut self, name: &str, taken: MirrorUsage) {
        let bytes = taken.bytes;
        self.entries.entry(name.to_owned()).or_insert(taken).bytes = bytes;
    }

    /// Returns the mirrors that were not used since the previous call.
    pub(super) fn take_stale(&mut self) -> Vec<String> {
        let stale = self.entries.iter().filter(|(_, entry)| !entry.used_since_sweep);
        let stale = stale.map(|(name, _)| name.clone()).collect();
        for entry in self.entries.values_mut() {
            entry.used_since_sweep = false;
        }
        stale
    }

    /// Returns the mirrors to delete so that all limits hold.
    pub(super) fn over_limit(&self, in_use: impl Fn(&str) -> bool) -> Vec<String> {
        let mut sums = Sums::default();
        for entry in self.entries.values() {
            sums.add(entry);
        }
        if !sums.exceed(self.limits) {
            // Each fetch asks: without this, a new fleet would sort all mirrors for each of its objects.
            return Vec::new();
        }
        let mut over_limit = Vec::new();
        for (name, entry) in self.unused_by_last_use(in_use) {
            let over_quota = || {
                let mut namespaces = entry.namespaces.iter();
                self.limits.namespace > 0
                    && entry.namespaces.len() == 1
                    && namespaces.any(|namespace| sums.of(namespace) > self.limits.namespace)
            };
            if (self.limits.total > 0 && sums.total > self.limits.total) || over_quota() {
                sums.remove(entry);
                over_limit.push(name.to_owned());
            }
        }
        over_limit
    }

    /// Returns the mirrors to delete on a full disk: the least recently used, up to half of the unused bytes.
    pub(super) fn oldest_half(&self, in_use: impl Fn(&str) -> bool) -> Vec<String> {
        let all = self.unused_by_last_use(in_use);
        let half = all
            .iter()
            .map(|(_, entry)| counted_bytes(entry))
            .sum::<u64>()
            .div_ceil(2);
        let mut freed = 0;
        let needed = all.into_iter().take_while(|(_, entry)| {
            let is_needed = freed < half;
            freed += counted_bytes(entry);
            is_needed
        });
        needed.map(|(name, _)| name.to_owned()).collect()
    }

    fn unused_by_last_use(&self, in_use: impl Fn(&str) -> bool) -> Vec<(&str, &MirrorUsage)> {
        let entries = self.entries.iter().map(|(name, entry)| (name.as_str(), entry));
        let mut idle: Vec<_> = entries.filter(|(name, _)| !in_use(name)).collect();
        idle.sort_by_key(|(_, entry)| entry.last_use);
        idle
    }
}

fn counted_bytes(entry: &MirrorUsage) -> u64 {
    entry.bytes.max(MIN_BYTES)
}

/// Bytes of all mirrors, and of those of each namespace.
#[derive(Default)]
struct Sums<'a> {
    total: u64,
    namespaces: HashMap<&'a str, u64>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, entry: &'a MirrorUsage) {
        self.total += counted_bytes(entry);
        for namespace in &entry.namespaces {
            *self.namespaces.entry(namespace).or_default() += counted_bytes(entry);
        }
    }

    fn remove(&mut self, entry: &'a MirrorUsage) {
        self.total = self.total.saturating_sub(counted_bytes(entry));
        for namespace in &entry.namespaces {
            let bytes = self.namespaces.entry(namespace).or_default();
            *bytes = bytes.saturating_sub(counted_bytes(entry));
        }
    }

    /// Whether any limit is exceeded.
    fn exceed(&self, limits: DiskLimits) -> bool {
        let exceeds = |bytes: u64, limit: u64| limit > 0 && bytes > limit;
        let mut namespaces = self.namespaces.values();
        exceeds(self.total, limits.total) || namespaces.any(|bytes| exceeds(*bytes, limits.namespace))
    }

    fn of(&self, namespace: &str) -> u64 {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn usage(limits: DiskLimits, mirrors: &[(&str, &str, u64)]) -> DiskUsage {
        let mut usage = DiskUsage::new(limits, []);
        for (name, namespace, mib) in mirrors {
            usage.record_use(name, namespace);
            usage.record_size(name, mib * MIB);
        }
        usage
    }

    #[test]
    fn over_limit_the_least_recently_used_unused_mirrors_are_deleted() {
        let limits = DiskLimits {
            total: 10 * MIB,
            namespace: 0,
        };
        let mut usage = usage(limits, &[("a", "x", 4), ("b", "y", 4), ("c", "x", 4)]);
        assert_eq!(usage.over_limit(|_| false), ["a"]);
        assert_eq!(usage.over_limit(|name| name == "a"), ["b"]);
        usage.record_use("a", "x");
        assert_eq!(usage.over_limit(|_| false), ["b"]);
        usage.take("b").unwrap();
        assert!(usage.over_limit(|_| false).is_empty());
    }

    #[test]
    fn a_mirror_that_could_not_be_deleted_counts_again() {
        let limits = DiskLimits {
            total: 7 * MIB,
            namespace: 0,
        };
        let mut usage = usage(limits, &[("a", "x", 4), ("b", "y", 4)]);
        for (is_used_meanwhile, next) in [(false, "a"), (true, "b")] {
            let taken = usage.take("a").unwrap();
            assert!(usage.take("a").is_none());
            assert!(usage.over_limit(|_| false).is_empty());
            if is_used_meanwhile {
                usage.record_use("a", "x");
            }
            usage.put_back("a", taken);
            assert_eq!(usage.over_limit(|_| false), [next]);
        }
    }

    #[test]
    fn within_the_limits_no_mirror_is_examined() {
        let mirrors = [("a", "x", 4), ("b", "y", 5)];
        for (total, namespace, is_examined) in [(0, 0, false), (9, 5, false), (8, 5, true), (9, 4, true)] {
            let limits = DiskLimits {
                total: total * MIB,
                namespace: namespace * MIB,
            };
            let examined = Cell::new(false);
            let over_limit = usage(limits, &mirrors).over_limit(|_| {
                examined.set(true);
                true
            });
            assert_eq!(
                (over_limit, examined.get()),
                (Vec::new(), is_examined),
                "{limits:?}"
            );
        }
    }

    #[test]
    fn a_namespace_over_its_quota_loses_only_its_exclusive_mirrors() {
        let limits = DiskLimits {
            total: 0,
            namespace: 6 * MIB,
        };
        let mut usage = usage(limits, &[("shared", "x", 4), ("other", "y", 5), ("own", "x", 4)]);
        usage.record_use("shared", "y");
        assert_eq!(usage.over_limit(|_| false), ["other", "own"]);
    }

    #[test]
    fn a_namespace_counts_once_for_a_mirror() {
        let mut usage = usage(DiskLimits::default(), &[("a", "y", 4)]);
        for namespace in ["x", "z", "y", "x"] {
            usage.record_use("a", namespace);
        }
        assert_eq!(usage.entries["a"].namespaces, ["x", "y", "z"]);
    }

    #[test]
    fn small_mirrors_count_with_a_minimum_size() {
        let limits = DiskLimits {
            total: 0,
            namespace: 3 * MIB,
        };
        let names: Vec<_> = (0..5).map(|n| format!("{n}")).collect();
        let mirrors: Vec<_> = names.iter().map(|name| (name.as_str(), "x", 0)).collect();
        assert_eq!(usage(limits, &mirrors).over_limit(|_| false), ["0", "1"]);
    }

    #[test]
    fn a_full_disk_deletes_the_less_recently_used_half() {
        let usage = usage(
            DiskLimits::default(),
            &[("a", "x", 4), ("b", "x", 4), ("c", "x", 4)],
        );
        assert_eq!(usage.oldest_half(|_| false), ["a", "b"]);
        assert_eq!(usage.oldest_half(|name| name == "a"), ["b"]);
        assert!(usage.oldest_half(|_| true).is_empty());
    }

    #[test]
    fn mirrors_unused_between_two_sweeps_are_stale() {
        let mut usage = DiskUsage::new(DiskLimits::default(), [("old".to_owned(), 1)]);
        usage.record_use("new", "x");
        assert_eq!(usage.take_stale(), ["old"]);
        usage.touch("old");
        usage.touch("none");
        assert_eq!(usage.take_stale(), ["new"]);
    }
}
