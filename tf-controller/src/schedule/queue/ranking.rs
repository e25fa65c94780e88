//! The order of waiting stacks: by urgency, then by the number of runs in their namespace, then in order of arrival.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Instant;

use sluice_runtime::schedule::ObjectKey;

use super::Waiter;

/// Yields waiting stacks, the first of the queue first. Each run that the caller starts on the way moves the rest of its namespace
/// back ([`Ranking::count_run`]).
pub(super) struct Ranking<'a> {
    /// The waiting stacks of each namespace, the first one last.
    waiting: HashMap<&'a str, Vec<Ranked<'a>>>,
    /// The runs of each namespace.
    runs: HashMap<&'a str, usize>,
    /// The first stack of each namespace. A number of runs that has grown since is corrected when its entry is the first.
    heads: BinaryHeap<Reverse<(u64, usize, u64, &'a str)>>,
}

/// A waiting stack.
#[derive(Clone, Copy)]
pub(super) struct Ranked<'a> {
    pub(super) stack: &'a ObjectKey,
    pub(super) waiter: &'a Waiter,
    urgency: u64,
}

impl<'a> Ranking<'a> {
    /// Returns the order of these stacks. `runs` is the number of runs of a namespace.
    pub(super) fn new(
        waiting: impl Iterator<Item = (&'a ObjectKey, &'a Waiter)>,
        runs: impl Fn(&str) -> usize,
        now: Instant,
    ) -> Self {
        let mut of_namespace: HashMap<&str, Vec<Ranked<'_>>> = HashMap::new();
        for (stack, waiter) in waiting {
            let urgency = waiter.urgency(now);
            of_namespace.entry(&stack.namespace).or_default().push(Ranked {
                stack,
                waiter,
                urgency,
            });
        }
        for stacks in of_namespace.values_mut() {
            stacks.sort_unstable_by_key(|ranked| Reverse((ranked.urgency, ranked.waiter.ticket)));
        }
        let namespaces: Vec<_> = of_namespace.keys().copied().collect();
        let mut ranking = Self {
            runs: namespaces.iter().map(|name| (*name, runs(name))).collect(),
            waiting: of_namespace,
            heads: BinaryHeap::new(),
        };
        for namespace in namespaces {
            ranking.push_head(namespace);
        }
        ranking
    }

    /// Counts a run of the namespace that the caller starts.
    pub(super) fn count_run(&mut self, namespace: &str) {
        if let Some(runs) = self.runs.get_mut(namespace) {
            *runs += 1;
        }
    }

    fn push_head(&mut self, namespace: &'a str) {
        let first = self.waiting.get(namespace).and_then(|stacks| stacks.last());
        if let Some(first) = first {
            let runs = self.runs.get(namespace).copied().unwrap_or(0);
            self.heads
                .push(Reverse((first.urgency, runs, first.waiter.ticket, namespace)));
        }
    }
}

impl<'a> Iterator for Ranking<'a> {
    type Item = Ranked<'a>;

    fn next(&mut self) -> Option<Ranked<'a>> {
        loop {
            let Reverse((_, runs, _, namespace)) = self.heads.pop()?;
            if self.runs.get(namespace).copied().unwrap_or(0) == runs {
                let first = self.waiting.get_mut(namespace)?.pop();
                self.push_head(namespace);
                return first;
            }
            self.push_head(namespace);
        }
    }
}
