//! Calls to the API that outlast its absence, within a bound.

use std::time::Duration;

use kube::api::{Api, DeleteParams};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// First wait between attempts; doubled up to the longest.
const FIRST: Duration = Duration::from_millis(200);
/// Longest wait between attempts.
const LONGEST: Duration = Duration::from_secs(5);
/// Longest single attempt.
const ATTEMPT: Duration = Duration::from_secs(30);

/// How long it is tried to remove what nobody needs any more: it may hold what is sensitive, but no run fails of it.
pub(crate) const TIDYING: Duration = Duration::from_secs(30);

/// Removes an object that may be gone already, and does not give up at the first broken connection.
pub(crate) async fn remove<K>(api: &Api<K>, name: &str) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let params = DeleteParams::default();
    match patiently(TIDYING, || api.delete(name, &params)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        removed => removed.map(drop),
    }
}

/// True when another attempt of the same call may succeed.
pub(crate) fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 408 | 429 | 500..=599),
        kube::Error::BuildRequest(_) | kube::Error::SerdeError(_) => false,
        _ => true,
    }
}

/// Repeats `call` while the API is away, until `within` has passed.
pub(crate) async fn patiently<T, F>(within: Duration, mut call: impl FnMut() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let until = Instant::now() + within;
    let mut wait = FIRST;
    loop {
        let answer = match tokio::time::timeout(ATTEMPT, call()).await {
            Ok(answer) => answer,
            Err(_) => Err(kube::Error::Service("the API did not answer in time".into())),
        };
        match answer {
            Err(error) if is_passing(&error) && Instant::now() + wait < until => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the API is away, trying again"
                );
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST);
            }
            answer => return answer,
        }
    }
}
