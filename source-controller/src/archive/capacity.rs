//! Threads and memory that all builds of archives share.

use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use sluice_runtime::shutdown::Token;
use sluice_runtime::sync::lock;

use super::Stopped;

/// Maximum number of threads that compress one archive.
const MAX_THREADS: usize = 8;
/// Interval at which a build that waits for memory checks for cancellation.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How many threads compress one archive, and how many segments all archives together hold in memory at once. A segment takes at
/// most 2 MiB, and as much again while it is compressed. A build waits while others use the memory.
#[derive(Clone, Debug)]
pub struct Capacity {
    threads: usize,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    available: Mutex<usize>,
    returned: Condvar,
}

/// The right to hold one segment in memory.
pub(super) struct Permit(Arc<Shared>);

impl Capacity {
    /// Creates a capacity of `threads` for each archive and `segments` for all, at least one each.
    #[must_use]
    pub fn new(threads: usize, segments: usize) -> Self {
        Self {
            threads: threads.max(1),
            shared: Arc::new(Shared {
                available: Mutex::new(segments.max(1)),
                returned: Condvar::new(),
            }),
        }
    }

    /// Creates the capacity of this machine: a thread for each core that the process may use, and two segments for each of them, so
    /// that a thread need not wait until its last segment is written.
    #[must_use]
    pub fn of_machine() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = cores.min(MAX_THREADS);
        Self::new(threads, 2 * threads + 2)
    }

    /// Returns the number of threads for one archive.
    pub(super) const fn threads(&self) -> usize {
        self.threads
    }

    /// Waits for the right to hold one more segment. A build must ask in the order in which it writes: then the first segment that it
    /// has not written has the right, and no build waits for another one that waits for it.
    pub(super) fn acquire(&self, stop: &Token) -> Result<Permit, Stopped> {
        let mut available = lock(&self.shared.available);
        while *available == 0 {
            if stop.is_cancelled() {
                return Err(Stopped);
            }
            let waited = self.shared.returned.wait_timeout(available, CHECK_INTERVAL);
            available = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *available -= 1;
        Ok(Permit(Arc::clone(&self.shared)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *lock(&self.0.available) += 1;
        self.0.returned.notify_one();
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
        let first = capacity.acquire(&stop).unwrap();
        std::thread::scope(|scope| {
            let (acquired, seen) = mpsc::channel();
            let (capacity, stop) = (&capacity, &stop);
            scope.spawn(move || acquired.send(capacity.acquire(stop).is_ok()));
            drop(first);
            assert_eq!(seen.recv_timeout(LIMIT), Ok(true));
        });
        assert_eq!(*lock(&capacity.shared.available), 1);
    }

    #[test]
    fn a_wait_ends_when_it_is_cancelled() {
        let (capacity, stop) = (Capacity::new(1, 1), Token::new());
        let _first = capacity.acquire(&stop).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| capacity.acquire(&stop).err());
            stop.cancel();
            assert_eq!(waiting.join().unwrap(), Some(Stopped));
        });
    }
}
