//! Bounded thread pool for the blocking work of fetches.

use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::error::FetchError;

/// Maximum number of threads for indexing packs and reading commits. A reconciliation uses one at a time. Work that
/// does not end after cancellation can block only these threads, not other blocking work.
const MAX_THREADS: usize = 64;

/// A bounded number of threads.
#[derive(Clone, Debug)]
pub(super) struct Threads(Arc<Semaphore>);

impl Default for Threads {
    fn default() -> Self {
        Self::new(MAX_THREADS)
    }
}

impl Threads {
    fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Runs `work` on one of the threads. The thread becomes free only when the work has really ended, even if the
    /// caller was dropped.
    ///
    /// # Errors
    /// The work panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FetchError> {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        let permit = permit.map_err(|_| FetchError::Stopped)?;
        let job = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        job.await
            .map_err(|error| FetchError::Storage(io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn abandoned_work_occupies_only_its_own_thread() {
        let threads = Threads::new(1);
        let (started, has_started) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        let blocked = threads.run(move || {
            started.send(()).unwrap();
            finished.recv().unwrap();
        });
        // The caller is dropped; the work continues.
        assert!(
            tokio::time::timeout(Duration::from_millis(20), blocked)
                .await
                .is_err()
        );
        has_started.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(threads.0.available_permits(), 0);
        finish.send(()).unwrap();
        let next = tokio::time::timeout(Duration::from_secs(30), threads.run(|| 7)).await;
        assert_eq!(next.expect("a thread in time").unwrap(), 7);
    }
}
