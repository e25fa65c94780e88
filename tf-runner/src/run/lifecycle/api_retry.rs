//! API calls that are repeated while the API is unavailable, within a timeout.

use std::time::Duration;

use kube::api::{Api, DeleteParams};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// First delay between attempts. It doubles up to [`MAX_BACKOFF`].
pub(crate) const MIN_BACKOFF: Duration = Duration::from_millis(200);
/// Longest delay between attempts.
pub(crate) const MAX_BACKOFF: Duration = Duration::from_secs(5);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for the deletion of superfluous objects. They may hold sensitive values, but a run does not fail because of them.
pub(crate) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Deletes an object that may be absent.
pub(crate) async fn remove<K>(api: &Api<K>, name: &str) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let params = DeleteParams::default();
    match retry(CLEANUP_TIMEOUT, || api.delete(name, &params)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        removed => removed.map(drop),
    }
}

/// Attempts to create an object while the API answers with a conflict.
const CREATE_ATTEMPTS: u32 = 4;

/// The result of a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    Created,
    /// An object of this name exists.
    Existed,
}

/// Creates an object that may exist, and repeats the call while the rule permits it. A conflict does not mean that it exists: the API
/// answers so when several requests change one quota.
pub(crate) async fn create<T, F>(
    mut rule: RetryRule,
    timeout: Duration,
    mut call: impl FnMut() -> F,
) -> Result<Creation, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let (mut delay, mut attempts) = (MIN_BACKOFF, 0);
    loop {
        attempts += 1;
        match repeat(&mut rule, timeout, &mut call, None).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(Creation::Existed),
            Err(kube::Error::Api(status)) if status.is_conflict() && attempts < CREATE_ATTEMPTS => {
                tracing::debug!(%status, "conflict during a creation, retrying");
            }
            created => return created.map(|_| Creation::Created),
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(MAX_BACKOFF);
    }
}

/// True when another attempt of the same call may succeed.
pub(crate) fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 408 | 429 | 500..=599),
        kube::Error::BuildRequest(_) | kube::Error::SerdeError(_) => false,
        _ => true,
    }
}

/// How long the API may refuse what it permitted before.
const REFUSAL_LIMIT: Duration = Duration::from_mins(1);

/// After which errors a call is repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RetryRule {
    /// Those of [`is_transient`].
    Transient,
    /// Also that the API refuses the caller (401, 403), for [`REFUSAL_LIMIT`] since this time. An API server that has just started refuses
    /// accounts and roles that it has not read yet.
    Refused(Option<Instant>),
}

impl RetryRule {
    /// Repeats after refusals too: for calls that must not fail, and that the API permitted before.
    pub(crate) const WITH_REFUSALS: Self = Self::Refused(None);

    /// Returns whether another attempt may succeed after this error.
    pub(crate) fn permits(&mut self, error: &kube::Error, now: Instant) -> bool {
        let is_refusal = matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403));
        match self {
            Self::Refused(since) if is_refusal => now - *since.get_or_insert(now) < REFUSAL_LIMIT,
            Self::Refused(since) => {
                *since = None;
                is_transient(error)
            }
            Self::Transient => is_transient(error),
        }
    }
}

/// Makes one attempt of a call.
pub(crate) async fn attempt<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let answer = tokio::time::timeout(ATTEMPT_TIMEOUT, call).await;
    answer.unwrap_or_else(|_| Err(kube::Error::Service("the API did not respond in time".into())))
}

/// Repeats `call` while the API is unavailable, until `timeout` has passed.
pub(crate) async fn retry<T, F>(timeout: Duration, call: impl FnMut() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    repeat(&mut RetryRule::Transient, timeout, call, None).await
}

/// As [`retry`]. After `stop`, the call is made once more at most.
pub(crate) async fn retry_until<T, F>(
    stop: &CancellationToken,
    timeout: Duration,
    call: impl FnMut() -> F,
) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    repeat(&mut RetryRule::Transient, timeout, call, Some(stop)).await
}

async fn repeat<T, F>(
    rule: &mut RetryRule,
    timeout: Duration,
    mut call: impl FnMut() -> F,
    stop: Option<&CancellationToken>,
) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let deadline = Instant::now() + timeout;
    let mut delay = MIN_BACKOFF;
    loop {
        let has_time = || {
            let is_stopped = stop.is_some_and(CancellationToken::is_cancelled);
            !is_stopped && Instant::now() + delay < deadline
        };
        match attempt(call()).await {
            Err(error) if rule.permits(&error, Instant::now()) && has_time() => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the API does not carry out the request, retrying"
                );
                pause(delay, stop).await;
                delay = (delay * 2).min(MAX_BACKOFF);
            }
            answer => return answer,
        }
    }
}

/// Waits for this time, or until `stop`.
async fn pause(delay: Duration, stop: Option<&CancellationToken>) {
    match stop {
        Some(stop) => drop(tokio::time::timeout(delay, stop.cancelled()).await),
        None => tokio::time::sleep(delay).await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use kube::core::Status;

    use super::*;

    fn error(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Status::failure("refused", reason).with_code(code).boxed())
    }

    /// Creates an object against these answers. Returns the result and the number of unused answers.
    async fn create_with(
        rule: RetryRule,
        answers: Vec<Result<(), kube::Error>>,
    ) -> (Result<Creation, kube::Error>, usize) {
        let answers = RefCell::new(answers.into_iter());
        let call = || {
            let answer = answers.borrow_mut().next().unwrap();
            async move { answer }
        };
        let created = create(rule, Duration::from_secs(10), call).await;
        (created, answers.into_inner().len())
    }

    #[tokio::test]
    async fn only_an_object_that_exists_counts_as_stored() {
        let conflict = || Err(error(409, "Conflict"));
        let (created, _) = create_with(RetryRule::Transient, vec![Err(error(409, "AlreadyExists"))]).await;
        assert_eq!(created.unwrap(), Creation::Existed);
        let (created, _) = create_with(RetryRule::Transient, vec![conflict(), conflict(), Ok(())]).await;
        assert_eq!(created.unwrap(), Creation::Created);
        let (created, _) = create_with(
            RetryRule::Transient,
            vec![conflict(), Err(error(409, "AlreadyExists"))],
        )
        .await;
        assert_eq!(created.unwrap(), Creation::Existed);
        let (created, unused) =
            create_with(RetryRule::Transient, (0..10).map(|_| conflict()).collect()).await;
        assert!(matches!(created, Err(kube::Error::Api(status)) if status.is_conflict()));
        assert_eq!(unused, 6, "the attempts are limited");
    }

    #[tokio::test]
    async fn a_call_is_made_once_more_at_most_after_the_stop() {
        let (stop, calls) = (CancellationToken::new(), Cell::new(0));
        let call = || {
            calls.set(calls.get() + 1);
            async { Err::<(), _>(error(503, "Unavailable")) }
        };
        // The stop comes while the second attempt is waited for, and after that before the first attempt.
        let calling = retry_until(&stop, Duration::from_hours(1), call);
        let (failed, ()) = tokio::join!(calling, async { stop.cancel() });
        assert!(failed.is_err());
        assert_eq!(calls.replace(0), 2);
        assert!(retry_until(&stop, Duration::from_hours(1), call).await.is_err());
        assert_eq!(calls.get(), 1);
    }

    #[tokio::test]
    async fn a_refusal_is_repeated_where_the_object_must_not_be_lost() {
        let answers = || {
            vec![
                Err(error(401, "Unauthorized")),
                Err(error(403, "Forbidden")),
                Ok(()),
            ]
        };
        let (created, _) = create_with(RetryRule::WITH_REFUSALS, answers()).await;
        assert_eq!(created.unwrap(), Creation::Created);
        let (created, unused) = create_with(RetryRule::Transient, answers()).await;
        assert!(created.is_err() && unused == 2, "it is not repeated");
    }

    #[test]
    fn refusals_are_waited_out_for_a_minute_since_the_first() {
        let mut rule = RetryRule::WITH_REFUSALS;
        let begin = Instant::now();
        let mut permits = |code, seconds| {
            let now = begin + Duration::from_secs(seconds);
            rule.permits(&error(code, "refused"), now)
        };
        assert!(permits(403, 100) && permits(401, 159) && !permits(403, 160));
        assert!(
            permits(503, 170) && permits(403, 180),
            "the API was away in between"
        );
        assert!(!permits(422, 181), "it is not a refusal");
        let mut transient = RetryRule::Transient;
        assert!(!transient.permits(&error(403, "refused"), begin));
    }
}
