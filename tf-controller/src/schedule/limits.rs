//! The limits of concurrent runs, and what the runs in progress use of them. Pure.

use std::collections::BTreeMap;
use std::fmt;

use crate::memory::MemoryQuantity;

/// Limits of runs at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// Runs at once; at least one.
    pub runs: u16,
    /// Runs of one namespace at once; 0: no limit.
    pub per_namespace: u16,
    /// Runs at once of stacks with the same value of a label, by the key of the label; 0: no limit.
    pub per_label: BTreeMap<String, u16>,
    /// Estimated memory of all runs at once; 0: no limit. Against other namespaces, the runs of one namespace count for at most half of
    /// it: a run reports its own peak, so a stack can make its estimate as large as it likes.
    pub memory: MemoryQuantity,
}

impl RunLimits {
    /// Returns the limit of the number of runs alone.
    #[must_use]
    pub const fn of_runs(runs: u16) -> Self {
        Self {
            runs,
            per_namespace: 0,
            per_label: BTreeMap::new(),
            memory: MemoryQuantity::from_bytes(0),
        }
    }

    /// Returns what a run of a stack with these labels uses of the limits. `memory` is its estimate in bytes. It counts for at most the
    /// limit of memory.
    pub(super) fn usage(&self, labels: &BTreeMap<String, String>, memory: u64) -> RunUsage {
        let limited = self.per_label.iter().filter(|(_, limit)| **limit > 0);
        let own = limited.filter_map(|(key, _)| Some((key.clone(), labels.get(key)?.clone())));
        let most = match self.memory.bytes() {
            0 => u64::MAX,
            limit => limit,
        };
        RunUsage {
            labels: own.collect(),
            memory: memory.min(most),
        }
    }

    /// Returns what the runs of one namespace count for at most against the other namespaces, in bytes: half of the memory, so that the
    /// other half is theirs.
    const fn memory_share(&self) -> u64 {
        self.memory.bytes().div_ceil(2)
    }

    /// Returns whether runs are limited by a label of their stack.
    pub(super) fn has_labels(&self) -> bool {
        self.per_label.values().any(|limit| *limit > 0)
    }

    /// The number of slots.
    pub(super) fn slots(&self) -> usize {
        usize::from(self.runs.max(1))
    }
}

/// What one run uses of the limits, besides a slot and one run of its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunUsage {
    /// The limited labels of its stack.
    pub(super) labels: BTreeMap<String, String>,
    /// Its estimated memory in bytes.
    pub(super) memory: u64,
}

/// What several runs use of the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsageTotals {
    runs: usize,
    namespaces: BTreeMap<String, NamespaceTotals>,
    labels: BTreeMap<(String, String), usize>,
}

/// What the runs of one namespace use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NamespaceTotals {
    runs: usize,
    /// Their estimated memory in bytes.
    memory: u64,
}

impl UsageTotals {
    /// Returns the totals of no runs.
    pub(super) const fn new() -> Self {
        Self {
            runs: 0,
            namespaces: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }

    /// Returns the number of runs.
    pub(super) const fn runs(&self) -> usize {
        self.runs
    }

    /// Returns the number of runs in a namespace.
    pub(super) fn runs_of(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).map_or(0, |totals| totals.runs)
    }

    /// Returns the estimated memory of the runs in a namespace, in bytes.
    pub(super) fn memory_of(&self, namespace: &str) -> u64 {
        self.namespaces.get(namespace).map_or(0, |totals| totals.memory)
    }

    /// Returns what the runs of all other namespaces count for, in bytes.
    fn memory_beside(&self, namespace: &str, limits: &RunLimits) -> u64 {
        let share = limits.memory_share();
        let others = self
            .namespaces
            .iter()
            .filter(|(other, _)| other.as_str() != namespace);
        others.fold(0, |sum: u64, (_, totals)| {
            sum.saturating_add(totals.memory.min(share))
        })
    }

    /// Adds a run.
    pub(super) fn add(&mut self, namespace: &str, usage: &RunUsage) {
        self.runs += 1;
        let totals = self.namespaces.entry(namespace.to_owned()).or_default();
        totals.runs += 1;
        totals.memory = totals.memory.saturating_add(usage.memory);
        for (key, value) in &usage.labels {
            *self.labels.entry((key.clone(), value.clone())).or_default() += 1;
        }
    }

    /// Removes a run that was added with the same usage.
    pub(super) fn remove(&mut self, namespace: &str, usage: &RunUsage) {
        self.runs = self.runs.saturating_sub(1);
        if let Some(totals) = self.namespaces.get_mut(namespace) {
            totals.runs = totals.runs.saturating_sub(1);
            totals.memory = totals.memory.saturating_sub(usage.memory);
            if totals.runs == 0 {
                self.namespaces.remove(namespace);
            }
        }
        for (key, value) in &usage.labels {
            decrement(&mut self.labels, &(key.clone(), value.clone()));
        }
    }

    /// Returns the limit that one more run would exceed, if there is one. A limit that concerns few runs is named before one that
    /// concerns all. Memory never stops the only run: its estimate may be wrong, and it would never start.
    pub(super) fn reached(
        &self,
        namespace: &str,
        usage: &RunUsage,
        limits: &RunLimits,
    ) -> Option<ReachedLimit> {
        let per_namespace = limits.per_namespace;
        if per_namespace > 0 && self.runs_of(namespace) >= usize::from(per_namespace) {
            return Some(ReachedLimit::Namespace(per_namespace));
        }
        for (key, value) in &usage.labels {
            let limit = limits.per_label.get(key).copied().unwrap_or(0);
            let running = self.labels.get(&(key.clone(), value.clone())).copied();
            if limit > 0 && running.unwrap_or(0) >= usize::from(limit) {
                return Some(ReachedLimit::Label {
                    key: key.clone(),
                    value: value.clone(),
                    limit,
                });
            }
        }
        if self.runs >= limits.slots() {
            return Some(ReachedLimit::Runs(limits.runs));
        }
        let is_limited = limits.memory.bytes() > 0 && self.runs > 0;
        let own = self.memory_of(namespace).saturating_add(usage.memory);
        let exceeds = own.saturating_add(self.memory_beside(namespace, limits)) > limits.memory.bytes();
        (is_limited && exceeds).then_some(ReachedLimit::Memory(limits.memory))
    }

    /// Returns whether a run that exceeds the limit of memory fits as the only run of its namespace, which counts for its share.
    pub(super) fn fits_as_only_run(&self, namespace: &str, usage: &RunUsage, limits: &RunLimits) -> bool {
        self.runs_of(namespace) == 0 && self.leaves_share(namespace, usage.memory, limits)
    }

    /// Returns whether the other namespaces leave this one the memory of one more run, in bytes, or its share if that is less.
    pub(super) fn leaves_share(&self, namespace: &str, memory: u64, limits: &RunLimits) -> bool {
        let own = self.memory_of(namespace).saturating_add(memory);
        let counted = own.min(limits.memory_share());
        counted.saturating_add(self.memory_beside(namespace, limits)) <= limits.memory.bytes()
    }
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// The kinds of limits that a stack waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitReason {
    /// As many runs as allowed are in progress.
    Slots,
    /// As many runs of its namespace as allowed are in progress.
    NamespaceSlots,
    /// As many runs of stacks with a label of the same value as allowed are in progress.
    LabelSlots,
    /// The estimated memory of the runs in progress leaves too little.
    Memory,
}

impl WaitReason {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Slots, Self::NamespaceSlots, Self::LabelSlots, Self::Memory];
}

/// The limit that a stack waits for, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReachedLimit {
    /// That of all runs.
    Runs(u16),
    /// That of its namespace.
    Namespace(u16),
    /// That of a label.
    Label {
        /// The key of the label.
        key: String,
        /// Its value.
        value: String,
        /// The limit.
        limit: u16,
    },
    /// That of memory.
    Memory(MemoryQuantity),
}

impl ReachedLimit {
    /// Returns the kind of the limit.
    pub(super) const fn reason(&self) -> WaitReason {
        match self {
            Self::Runs(_) => WaitReason::Slots,
            Self::Namespace(_) => WaitReason::NamespaceSlots,
            Self::Label { .. } => WaitReason::LabelSlots,
            Self::Memory(_) => WaitReason::Memory,
        }
    }
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs(limit) => write!(f, "all run slots are occupied (--concurrent={limit})"),
            Self::Namespace(limit) => write!(
                f,
                "the limit of its namespace is reached (--concurrent-per-namespace={limit})"
            ),
            Self::Label { key, value, limit } => write!(
                f,
                "the limit of stacks with the label {key}={value} is reached (--concurrent-per-label={key}={limit})"
            ),
            Self::Memory(limit) => write!(
                f,
                "its estimated memory and that of the runs before it exceed --run-memory-limit={limit}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn only_labels_with_a_limit_count() {
        let limits = RunLimits {
            per_label: [("account".to_owned(), 3), ("team".to_owned(), 0)].into(),
            ..RunLimits::of_runs(4)
        };
        let usage = limits.usage(&labels(&[("account", "prod"), ("team", "net"), ("app", "x")]), 7);
        assert_eq!(usage.labels, labels(&[("account", "prod")]));
        assert_eq!(usage.memory, 7);
        let limited = RunLimits {
            memory: MemoryQuantity::from_bytes(100),
            ..RunLimits::of_runs(4)
        };
        assert_eq!(limited.usage(&labels(&[]), u64::MAX).memory, 100);
        assert!(limits.has_labels() && !RunLimits::of_runs(4).has_labels());
        assert!(limits.usage(&labels(&[]), 0).labels.is_empty());
    }

    #[test]
    fn the_narrowest_limit_is_named() {
        let limits = RunLimits {
            runs: 4,
            per_namespace: 1,
            per_label: [("account".to_owned(), 2)].into(),
            memory: MemoryQuantity::from_bytes(100),
        };
        let prod = limits.usage(&labels(&[("account", "prod")]), 40);
        let other = limits.usage(&labels(&[]), 40);
        let (mut totals, namespaces) = (UsageTotals::new(), ["a", "b", "c", "d"]);
        let reason = |totals: &UsageTotals, namespace, usage: &RunUsage| {
            totals
                .reached(namespace, usage, &limits)
                .map(|limit| limit.reason())
        };
        totals.add("a", &prod);
        assert_eq!(reason(&totals, "a", &other), Some(WaitReason::NamespaceSlots));
        assert_eq!(reason(&totals, "b", &prod), None);
        totals.add("b", &prod);
        assert_eq!(reason(&totals, "c", &prod), Some(WaitReason::LabelSlots));
        assert_eq!(reason(&totals, "c", &other), Some(WaitReason::Memory));
        totals.add("c", &other);
        totals.add("d", &other);
        assert_eq!(reason(&totals, "e", &other), Some(WaitReason::Slots));
        for (namespace, usage) in namespaces.iter().zip([&prod, &prod, &other, &other]) {
            totals.remove(namespace, usage);
        }
        assert_eq!(totals, UsageTotals::new());
    }

    #[test]
    fn the_only_run_starts_whatever_its_estimate() {
        let limits = RunLimits {
            memory: MemoryQuantity::from_bytes(100),
            ..RunLimits::of_runs(4)
        };
        let mut totals = UsageTotals::new();
        let large = limits.usage(&labels(&[]), 500);
        assert_eq!(totals.reached("a", &large, &limits), None);
        totals.add("a", &large);
        let usage = |bytes| limits.usage(&labels(&[]), bytes);
        let memory = ReachedLimit::Memory(limits.memory);
        assert_eq!(totals.reached("a", &usage(1), &limits), Some(memory.clone()));
        // Against another namespace it counts for half.
        assert_eq!(totals.reached("b", &usage(50), &limits), None);
        assert_eq!(totals.reached("b", &usage(51), &limits), Some(memory));
        assert!(totals.fits_as_only_run("b", &usage(100), &limits));
        assert!(!totals.fits_as_only_run("a", &usage(1), &limits));
    }

    #[test]
    fn a_reached_limit_names_its_flag() {
        let account = ReachedLimit::Label {
            key: "account".into(),
            value: "prod".into(),
            limit: 3,
        };
        let texts = [
            ReachedLimit::Runs(4),
            ReachedLimit::Namespace(2),
            account,
            ReachedLimit::Memory(MemoryQuantity::from_bytes(4 << 30)),
        ]
        .map(|limit| limit.to_string());
        insta::assert_snapshot!(texts.join("\n"), @r"
        all run slots are occupied (--concurrent=4)
        the limit of its namespace is reached (--concurrent-per-namespace=2)
        the limit of stacks with the label account=prod is reached (--concurrent-per-label=account=3)
        its estimated memory and that of the runs before it exceed --run-memory-limit=4Gi
        ");
    }
}
