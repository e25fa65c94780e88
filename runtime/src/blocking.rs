//! Blocking jobs on threads, with limits on concurrency and time, and cancellation.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// A job returned no result.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The job exceeded its time limit and was cancelled.
    #[error("not completed within {0:?}")]
    TimedOut(Duration),
    /// The caller's stop token was cancelled.
    #[error("stopped")]
    Stopped,
    /// The job panicked.
    #[error("the job panicked: {0}")]
    Panicked(String),
}

/// A bounded pool of threads for blocking work.
#[derive(Clone, Debug)]
pub struct Pool {
    permits: Arc<Semaphore>,
}

impl Pool {
    /// Creates a pool for at most `jobs` concurrent jobs, at least one.
    #[must_use]
    pub fn new(jobs: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(jobs.max(1))),
        }
    }

    /// Runs `work` on a thread when a slot is free. `work` must check its token, because a thread cannot be stopped from
    /// outside; the token is cancelled after `limit`, when `stop` is cancelled, or when the caller drops the future. The
    /// slot becomes free when `work` returns. Waiting for a slot counts towards `limit`.
    ///
    /// # Errors
    /// The time limit was exceeded, `stop` was cancelled, or the job panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        stop: &CancellationToken,
        work: impl FnOnce(&CancellationToken) -> T + Send + 'static,
    ) -> Result<T, JobError> {
        let token = stop.child_token();
        let seen = token.clone();
        let _told_on_drop = token.drop_guard();
        let permits = Arc::clone(&self.permits);
        let job = async move {
            let Ok(permit) = permits.acquire_owned().await else {
                return Err(JobError::Stopped);
            };
            let job = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                work(&seen)
            });
            job.await.map_err(|error| JobError::Panicked(panic_text(error)))
        };
        tokio::select! {
            done = tokio::time::timeout(limit, job) => done.map_err(|_| JobError::TimedOut(limit))?,
            () = stop.cancelled() => Err(JobError::Stopped),
        }
    }
}

/// Returns the message of a panicked task.
pub(crate) fn panic_text(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no text".to_owned()),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_job_returns_its_result() {
        let pool = Pool::new(1);
        assert_eq!(
            pool.run(LONG, &CancellationToken::new(), |_| 6 * 7)
                .await
                .unwrap(),
            42
        );
    }

    #[tokio::test]
    async fn a_late_job_is_cancelled_and_keeps_its_slot_until_it_returns() {
        let pool = Pool::new(1);
        let (told, was_told) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let stop = CancellationToken::new();
        let late = pool.run(Duration::from_millis(20), &stop, move |stop| {
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            told.send(()).unwrap();
            gone.recv().unwrap();
        });
        assert!(matches!(late.await, Err(JobError::TimedOut(_))));
        was_told.recv_timeout(LONG).unwrap();
        assert_eq!(pool.permits.available_permits(), 0);
        go.send(()).unwrap();
        assert_eq!(pool.run(LONG, &CancellationToken::new(), |_| 1).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_frees_the_slot() {
        let pool = Pool::new(1);
        let stop = CancellationToken::new();
        let error = pool
            .run(LONG, &stop, |_| panic!("out of {}", "luck"))
            .await
            .map(|(): ()| ())
            .unwrap_err();
        assert_eq!(error.to_string(), "the job panicked: out of luck");
        assert!(pool.run(LONG, &stop, |_| ()).await.is_ok());
    }

    #[tokio::test]
    async fn a_cancelled_token_ends_the_wait() {
        let stop = CancellationToken::new();
        stop.cancel();
        let pool = Pool::new(1);
        let held = pool.permits.clone().acquire_owned().await.unwrap();
        assert!(matches!(
            pool.run(LONG, &stop, |_| ()).await,
            Err(JobError::Stopped)
        ));
        drop(held);
    }
}
