//! API calls that are repeated while the API is unavailable, within a timeout.

use std::time::Duration;

use kube::api::{Api, DeleteParams};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

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

/// Creates an object that may exist, with the repetitions of [`retry`]. A conflict does not mean that it exists: the API answers so when
/// several requests change one quota.
pub(crate) async fn create<T, F>(timeout: Duration, call: impl FnMut() -> F) -> Result<Creation, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    create_while(&mut is_transient, timeout, call).await
}

/// As [`create`], with [`Patience`]: without the object, a state would be lost.
pub(crate) async fn create_despite_refusals<T, F>(
    timeout: Duration,
    call: impl FnMut() -> F,
) -> Result<Creation, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut patience = Patience::default();
    create_while(&mut |error| patience.permits(error), timeout, call).await
}

async fn create_while<T, F>(
    may_pass: &mut impl FnMut(&kube::Error) -> bool,
    timeout: Duration,
    mut call: impl FnMut() -> F,
) -> Result<Creation, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let (mut delay, mut attempts) = (MIN_BACKOFF, 0);
    loop {
        attempts += 1;
        match retry_while(&mut *may_pass, timeout, &mut call).await {
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
const REFUSAL_LIMIT: Duration = Duration::from_secs(60);

/// Decides which errors of one call are waited out where the call must not fail: those of [`is_transient`], and for a while that the API
/// refuses the caller (401, 403). An API server that has just started refuses accounts and roles that it has not read yet.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    refused_since: Option<Instant>,
}

impl Patience {
    /// Returns whether another attempt may succeed after this error.
    pub(crate) fn permits(&mut self, error: &kube::Error) -> bool {
        let is_refusal = matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403));
        if !is_refusal {
            self.refused_since = None;
            return is_transient(error);
        }
        let since = self.refused_since.get_or_insert_with(Instant::now);
        since.elapsed() < REFUSAL_LIMIT
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
    retry_while(&mut is_transient, timeout, call).await
}

async fn retry_while<T, F>(
    may_pass: &mut impl FnMut(&kube::Error) -> bool,
    timeout: Duration,
    mut call: impl FnMut() -> F,
) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let deadline = Instant::now() + timeout;
    let mut delay = MIN_BACKOFF;
    loop {
        match attempt(call()).await {
            Err(error) if may_pass(&error) && Instant::now() + delay < deadline => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the API does not carry out the request, retrying"
                );
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(MAX_BACKOFF);
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use kube::core::Status;

    use super::*;

    fn error(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Status::failure("refused", reason).with_code(code).boxed())
    }

    /// Creates an object against these answers. Returns the result and the number of unused answers.
    async fn create_with(answers: Vec<Result<(), kube::Error>>) -> (Result<Creation, kube::Error>, usize) {
        let answers = RefCell::new(answers.into_iter());
        let call = || {
            let answer = answers.borrow_mut().next().unwrap();
            async move { answer }
        };
        let created = create(Duration::from_secs(10), call).await;
        (created, answers.into_inner().len())
    }

    #[tokio::test]
    async fn only_an_object_that_exists_counts_as_stored() {
        let conflict = || Err(error(409, "Conflict"));
        let (created, _) = create_with(vec![Err(error(409, "AlreadyExists"))]).await;
        assert_eq!(created.unwrap(), Creation::Existed);
        let (created, _) = create_with(vec![conflict(), conflict(), Ok(())]).await;
        assert_eq!(created.unwrap(), Creation::Created);
        let (created, _) = create_with(vec![conflict(), Err(error(409, "AlreadyExists"))]).await;
        assert_eq!(created.unwrap(), Creation::Existed);
        let (created, unused) = create_with((0..10).map(|_| conflict()).collect()).await;
        assert!(matches!(created, Err(kube::Error::Api(status)) if status.is_conflict()));
        assert_eq!(unused, 6, "the attempts are limited");
        let (created, unused) = create_with(vec![Err(error(403, "Forbidden")), Ok(())]).await;
        assert!(created.is_err() && unused == 1, "it is not repeated");
    }

    #[tokio::test]
    async fn a_state_is_stored_despite_refusals_until_the_timeout() {
        let refused = |code| Err(error(code, "Forbidden"));
        let answers = RefCell::new(vec![refused(401), refused(403), Ok(())].into_iter());
        let call = || {
            let answer = answers.borrow_mut().next().unwrap();
            async move { answer }
        };
        let created = create_despite_refusals(Duration::from_secs(10), call).await;
        assert_eq!(created.unwrap(), Creation::Created);
        let started = Instant::now();
        let never = || async { Err::<(), _>(error(403, "Forbidden")) };
        let created = create_despite_refusals(Duration::from_secs(1), never).await;
        assert!(
            created.is_err() && started.elapsed() >= MIN_BACKOFF,
            "it is repeated"
        );
    }
}
