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

/// True when another attempt of the same call may succeed.
pub(crate) fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 408 | 429 | 500..=599),
        kube::Error::BuildRequest(_) | kube::Error::SerdeError(_) => false,
        _ => true,
    }
}

/// Makes one attempt of a call.
pub(crate) async fn attempt<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let answer = tokio::time::timeout(ATTEMPT_TIMEOUT, call).await;
    answer.unwrap_or_else(|_| Err(kube::Error::Service("the API did not respond in time".into())))
}

/// Repeats `call` while the API is unavailable, until `timeout` has passed.
pub(crate) async fn retry<T, F>(timeout: Duration, mut call: impl FnMut() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let deadline = Instant::now() + timeout;
    let mut delay = MIN_BACKOFF;
    loop {
        match attempt(call()).await {
            Err(error) if is_transient(&error) && Instant::now() + delay < deadline => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the API is unavailable, retrying"
                );
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(MAX_BACKOFF);
            }
            answer => return answer,
        }
    }
}
