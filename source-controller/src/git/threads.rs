//! Threads on which fetches block.

use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::error::FetchError;

/// Threads that fetches have at once, to index packs and to look at commits. A pass has one at a time. Where work did not
/// end although it is unwanted, no more than these would be lost to it: other blocking work has threads left.
const THREADS: usize = 64;

/// A bounded number of threads.
#[derive(Clone, Debug)]
pub(super) struct Threads(Arc<Semaphore>);

impl Default for Threads {
    fn default() -> Self {
        Self::new(THREADS)
    }
}

impl Threads {
    fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Does it on one of them. The thread is free for others only when the work has really ended, also if nobody waits
    /// for it any more.
    ///
    /// # Errors
    /// The work panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FetchError> {
        let place = Arc::clone(&self.0).acquire_owned().await;
        let place = place.map_err(|_| FetchError::Stopped)?;
        let job = tokio::task::spawn_blocking(move || {
            let _place = place;
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
    async fn abandoned_work_keeps_its_thread_and_takes_no_other() {
        let threads = Threads::new(1);
        let (begun, has_begun) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let endless = threads.run(move || {
            begun.send(()).unwrap();
            ends.recv().unwrap();
        });
        // Its caller goes away; the work does not.
        assert!(
            tokio::time::timeout(Duration::from_millis(20), endless)
                .await
                .is_err()
        );
        has_begun.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(threads.0.available_permits(), 0);
        end.send(()).unwrap();
        let next = tokio::time::timeout(Duration::from_secs(30), threads.run(|| 7)).await;
        assert_eq!(next.expect("a thread in time").unwrap(), 7);
    }
}
