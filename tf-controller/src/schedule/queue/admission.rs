//! Whether a waiting stack can start, and the memory that is kept free for stacks that have waited for it long.
//!
//! A run reports its own peak of memory, so an estimate may be forged. A namespace keeps free at most its share, so the estimate of one
//! stack does not hold back other namespaces that need no more than theirs.

use std::collections::BTreeMap;

use crate::schedule::limits::{ReachedLimit, RunLimits, RunUsage, UsageTotals};

/// Whether a waiting stack can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// No limit stops it.
    Fits,
    /// It waits, and others may overtake it.
    Waits,
    /// It has waited long for memory, which is kept free for it.
    KeepsMemory,
}

impl Admission {
    /// Returns whether a run of this namespace can start beside these runs. If it has waited long, it may start as the only run of its
    /// namespace: otherwise other namespaces could overtake it for ever.
    pub(super) fn of(
        namespace: &str,
        usage: &RunUsage,
        is_aged: bool,
        totals: &UsageTotals,
        limits: &RunLimits,
    ) -> Self {
        match totals.reached(namespace, usage, limits) {
            None => Self::Fits,
            Some(ReachedLimit::Memory(_)) if is_aged => {
                if totals.fits_as_only_run(namespace, usage, limits) {
                    Self::Fits
                } else {
                    Self::KeepsMemory
                }
            }
            Some(_) => Self::Waits,
        }
    }
}

/// The stacks that memory is kept free for: the largest estimate in each namespace, in bytes.
#[derive(Debug, Default)]
pub(super) struct KeptMemory<'a>(BTreeMap<&'a str, u64>);

impl<'a> KeptMemory<'a> {
    /// Keeps memory free for a run of this namespace.
    pub(super) fn add(&mut self, namespace: &'a str, usage: &RunUsage) {
        let largest = self.0.entry(namespace).or_default();
        *largest = usage.memory.max(*largest);
    }

    /// Returns whether a run of this namespace takes none of the memory that is kept free. `totals` is what is used with that run. In
    /// its own namespace, a stack that has waited long comes before all others.
    pub(super) fn permits(&self, namespace: &str, totals: &UsageTotals, limits: &RunLimits) -> bool {
        let mut kept = self.0.iter();
        kept.all(|(other, memory)| *other != namespace && totals.leaves_share(other, *memory, limits))
    }
}
