//! Waits for conditions of objects; a timeout reports the last status.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;

use super::TIMEOUT;

/// Interval between requests where a watch is not possible.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of a request before it is repeated.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the scenario failed.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The API refused a request.
    #[error("the API refused: {0}")]
    Api(#[from] kube::Error),
    /// The watch ended.
    #[error("the watch ended: {0}")]
    Watch(#[from] watcher::Error),
    /// The API accepts requests but does not respond.
    #[error("the API does not respond")]
    NoResponse,
    /// A stored value is invalid.
    #[error("{0}")]
    Invalid(String),
    /// git failed.
    #[error(transparent)]
    Git(#[from] sluice_harness::git::GitError),
    /// A condition was not met in time.
    #[error("waited {seconds} s for {what} of {name}; its status is\n{last}")]
    Timeout {
        /// The timeout in seconds.
        seconds: u64,
        /// The object.
        name: String,
        /// The condition.
        what: &'static str,
        /// The last status.
        last: String,
    },
}

/// Waits until the object meets a condition, by a watch; returns the object.
///
/// # Errors
/// [`ScenarioError::Timeout`] when it does not within [`TIMEOUT`].
pub async fn wait_for(
    api: &Api<DynamicObject>,
    name: &str,
    what: &'static str,
    condition: impl Fn(&Value) -> bool,
) -> Result<Value, ScenarioError> {
    let mut last = Value::Null;
    let wait = async {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut changes = watcher(api.clone(), config)
            .default_backoff()
            .applied_objects()
            .boxed();
        loop {
            match changes.try_next().await {
                Ok(Some(object)) => {
                    last = serde_json::to_value(&object).unwrap_or_default();
                    if condition(&last) {
                        return Ok(());
                    }
                }
                // The API may be unavailable for a while: the watcher retries with backoff.
                Err(error) => tracing::debug!(%error, "watch of the scenario"),
                Ok(None) => return Err(ScenarioError::Watch(watcher::Error::NoResourceVersion)),
            }
        }
    };
    let result = tokio::time::timeout(TIMEOUT, wait).await;
    match result {
        Ok(Ok(())) => Ok(last),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(timeout_error(name, what, &last)),
    }
}

/// Waits until the object is gone.
///
/// # Errors
/// [`ScenarioError::Timeout`] when it is not within [`TIMEOUT`].
pub async fn wait_until_gone(api: &Api<DynamicObject>, name: &str) -> Result<(), ScenarioError> {
    let mut last = Value::Null;
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    let wait = async {
        loop {
            tick.tick().await;
            let Some(object) = retry(|| api.get_opt(name)).await? else {
                return Ok(());
            };
            last = serde_json::to_value(object).unwrap_or_default();
        }
    };
    match tokio::time::timeout(TIMEOUT, wait).await {
        Ok(result) => result,
        Err(_) => Err(timeout_error(name, "deletion", &last)),
    }
}

/// Repeats an idempotent request until the API responds: it may be unavailable for a while.
///
/// # Errors
/// The refusal of the API, or the last failure to reach it within [`TIMEOUT`].
pub async fn retry<T, F>(request: impl Fn() -> F) -> Result<T, ScenarioError>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let started = tokio::time::Instant::now();
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    loop {
        tick.tick().await;
        match tokio::time::timeout(REQUEST_TIMEOUT, request()).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(kube::Error::Api(status))) if status.code < 500 => {
                return Err(kube::Error::Api(status).into());
            }
            Ok(Err(error)) if started.elapsed() > TIMEOUT => return Err(error.into()),
            Err(_) if started.elapsed() > TIMEOUT => return Err(ScenarioError::NoResponse),
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

fn timeout_error(name: &str, what: &'static str, last: &Value) -> ScenarioError {
    let last = serde_json::to_string_pretty(last.get("status").unwrap_or(&Value::Null)).unwrap_or_default();
    ScenarioError::Timeout {
        seconds: TIMEOUT.as_secs(),
        name: name.to_owned(),
        what,
        last,
    }
}
