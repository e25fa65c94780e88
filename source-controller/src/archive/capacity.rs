//! Threads and memory that all builds of archives share.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use sluice_runtime::shutdown::Token;
use sluice_runtime::sync::lock;

use super::Stopped;
use super::piece::{BufferPool, PoolUser};

/// Maximum number of threads that compress one archive.
const MAX_THREADS: usize = 8;
/// Interval at which a build that waits for memory checks for cancellation.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of memory of one segment: at most 2 MiB, and as much again while it is compressed.
const SEGMENT_BYTES: u64 = 4 << 20;
/// Number of large archives that [`Capacity::new`] lets be built at once.
const LARGE_BUILDS: usize = 2;

/// How many threads compress one archive, how many segments all archives together hold in memory at once, and how many large archives
/// are built at once. A file that is held in memory as a whole counts as so many segments as it has bytes; one that is larger than the
/// memory takes all of it. A build waits while others use the memory.
#[derive(Clone, Debug)]
pub struct Capacity {
    threads: usize,
    /// Of segments.
    memory: Arc<Shared>,
    large_builds: Arc<Shared>,
    buffers: Arc<BufferPool>,
}

#[derive(Debug)]
struct Shared {
    /// Number of units if none is held.
    total: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    available: usize,
    /// Builds that wait, in the order in which they asked: small segments do not pass a large file for ever.
    waiting: VecDeque<u64>,
    /// Number of the next one that asks.
    next: u64,
}

/// The right to hold segments in memory, or to build a large archive.
pub(super) struct Permit {
    shared: Arc<Shared>,
    units: usize,
}

impl Capacity {
    /// Creates a capacity of `threads` for each archive and `segments` for all, at least one each.
    #[must_use]
    pub fn new(threads: usize, segments: usize) -> Self {
        Self {
            threads: threads.max(1),
            memory: Shared::new(segments.max(1)),
            large_builds: Shared::new(LARGE_BUILDS),
            buffers: Arc::default(),
        }
    }

    /// Creates the capacity of this machine: a thread for each core that the process may use, and two segments for each of them, so
    /// that a thread need not wait until its last segment is written.
    ///
    /// As many large archives are built at once as keep all cores busy: two that share the cores would end no sooner than one after the
    /// other. Besides its segments, each holds what it has compressed and not hashed yet, and libgit2 caches up to 16 MiB of each pack.
    #[must_use]
    pub fn of_machine() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = cores.min(MAX_THREADS);
        Self {
            large_builds: Shared::new((cores / MAX_THREADS).max(1)),
            ..Self::new(threads, 2 * threads + 2)
        }
    }

    /// Returns the number of threads for one archive.
    pub(super) const fn threads(&self) -> usize {
        self.threads
    }

    /// Waits for the right to hold one more segment, and `held` bytes besides. A build must ask in the order in which it writes: then
    /// the first segment that it has not written has the right, and no build waits for another one that waits for it.
    pub(super) fn acquire(&self, held: u64, stop: &Token) -> Result<Permit, Stopped> {
        let more = usize::try_from(held.div_ceil(SEGMENT_BYTES)).unwrap_or(self.memory.total);
        let segments = more.saturating_add(1).min(self.memory.total);
        self.memory.acquire(segments, stop)
    }

    /// Waits for the right to build a large archive. A build that waits must hold no memory that another one waits for.
    pub(super) fn acquire_large_build(&self, stop: &Token) -> Result<Permit, Stopped> {
        self.large_builds.acquire(1, stop)
    }

    /// Returns the buffers that the threads of a build share with those of other builds.
    pub(super) fn buffers(&self) -> PoolUser<'_> {
        self.buffers.enter()
    }

    /// Returns how many builds have the right to build a large archive, and how many wait for it.
    #[cfg(test)]
    pub(super) fn large_builds(&self) -> (usize, usize) {
        let state = lock(&self.large_builds.state);
        (self.large_builds.total - state.available, state.waiting.len())
    }
}

impl Shared {
    fn new(total: usize) -> Arc<Self> {
        let state = State {
            available: total,
            waiting: VecDeque::new(),
            next: 0,
        };
        Arc::new(Self {
            total,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// Waits for `units`, of which there must be so many.
    fn acquire(self: &Arc<Self>, units: usize, stop: &Token) -> Result<Permit, Stopped> {
        let mut state = lock(&self.state);
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(number);
        while state.waiting.front() != Some(&number) || state.available < units {
            if stop.is_cancelled() {
                state.waiting.retain(|waiting| *waiting != number);
                self.changed.notify_all();
                return Err(Stopped);
            }
            let waited = self.changed.wait_timeout(state, CHECK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting.pop_front();
        state.available -= units;
        // There may be enough for the next one, too.
        self.changed.notify_all();
        drop(state);
        Ok(Permit {
            shared: Arc::clone(self),
            units,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.shared.state).available += self.units;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn a_permit_is_available_when_another_one_is_returned() {
        let (capacity, stop) = (Capacity::new(1, 1), Token::new());
        let first = capacity.acquire(0, &stop).unwrap();
        std::thread::scope(|scope| {
            let (acquired, seen) = mpsc::channel();
            let (capacity, stop) = (&capacity, &stop);
            scope.spawn(move || acquired.send(capacity.acquire(0, stop).is_ok()));
            drop(first);
            assert_eq!(seen.recv_timeout(LIMIT), Ok(true));
        });
        assert_eq!(lock(&capacity.memory.state).available, 1);
    }

    /// Returns when so many builds wait.
    fn wait_for_waiting(capacity: &Capacity, count: usize) {
        let begun = std::time::Instant::now();
        while lock(&capacity.memory.state).waiting.len() != count {
            assert!(begun.elapsed() < LIMIT);
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_large_file_takes_memory_of_many_segments_and_is_not_passed_by_small_ones() {
        let (capacity, stop) = (Capacity::new(1, 4), Token::new());
        let first = capacity.acquire(0, &stop).unwrap();
        std::thread::scope(|scope| {
            let (acquired, seen) = mpsc::channel();
            let (capacity, stop) = (&capacity, &stop);
            let large = acquired.clone();
            // More than there is: it gets everything.
            scope.spawn(move || {
                let permit = capacity.acquire(1 << 40, stop).unwrap();
                large.send(("large", permit.units))
            });
            wait_for_waiting(capacity, 1);
            scope.spawn(move || {
                let permit = capacity.acquire(0, stop).unwrap();
                acquired.send(("small", permit.units))
            });
            wait_for_waiting(capacity, 2);
            assert!(seen.try_recv().is_err());
            drop(first);
            assert_eq!(seen.recv_timeout(LIMIT), Ok(("large", 4)));
            assert_eq!(seen.recv_timeout(LIMIT), Ok(("small", 1)));
        });
        assert_eq!(lock(&capacity.memory.state).available, 4);
        let permit = capacity.acquire(SEGMENT_BYTES + 1, &stop).unwrap();
        assert_eq!(permit.units, 3);
    }

    #[test]
    fn who_gives_up_waiting_stops_nobody() {
        let (capacity, stop) = (Capacity::new(1, 2), Token::new());
        let first = capacity.acquire(0, &stop).unwrap();
        std::thread::scope(|scope| {
            let (cancelled, capacity) = (Token::new(), &capacity);
            let token = cancelled.clone();
            let large = scope.spawn(move || capacity.acquire(SEGMENT_BYTES, &token).err());
            wait_for_waiting(capacity, 1);
            cancelled.cancel();
            assert_eq!(large.join().unwrap(), Some(Stopped));
            assert!(capacity.acquire(0, &stop).is_ok());
        });
        drop(first);
    }

    #[test]
    fn a_wait_ends_when_it_is_cancelled() {
        let (capacity, stop) = (Capacity::new(1, 1), Token::new());
        let _first = capacity.acquire(0, &stop).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| capacity.acquire(0, &stop).err());
            stop.cancel();
            assert_eq!(waiting.join().unwrap(), Some(Stopped));
        });
    }
}
