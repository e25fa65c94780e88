//! Waiting for an object to look as it should, with a deadline that tells what it looked like instead.

use super::PATIENCE;
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api,
    api::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use std::time::Duration;

/// How often something is asked that cannot be watched.
const PACE: Duration = Duration::from_millis(100);
/// How long one answer may take before the request is sent again.
const ANSWER: Duration = Duration::from_secs(5);

/// Why the story cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StoryError {
    /// The API refused.
    #[error("the API refused: {0}")]
    Api(#[from] kube::Error),
    /// The watch broke for good.
    #[error("the watch broke: {0}")]
    Watch(#[from] watcher::Error),
    /// The API takes requests and does not answer.
    #[error("the API does not answer")]
    Silent,
    /// A stored value is not what it should be.
    #[error("{0}")]
    Unreadable(String),
    /// git failed.
    #[error(transparent)]
    Git(#[from] sluice_harness::git::GitError),
    /// It did not come.
    #[error("waited {seconds} s for {what} of {name}; it is\n{last}")]
    Late {
        /// How long.
        seconds: u64,
        /// The object.
        name: String,
        /// What was expected.
        what: &'static str,
        /// Its status at the end.
        last: String,
    },
}

/// Waits until the object passes, by watching it; returns it.
///
/// # Errors
/// [`StoryError::Late`] when it does not within [`PATIENCE`].
pub async fn until(
    api: &Api<DynamicObject>,
    name: &str,
    what: &'static str,
    pass: impl Fn(&Value) -> bool,
) -> Result<Value, StoryError> {
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
                    if pass(&last) {
                        return Ok(());
                    }
                }
                // The API may be away for a while: the watcher backs off and comes again.
                Err(error) => tracing::debug!(%error, "watch of the story"),
                Ok(None) => return Err(StoryError::Watch(watcher::Error::NoResourceVersion)),
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, wait).await;
    match ended {
        Ok(Ok(())) => Ok(last),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(late(name, what, &last)),
    }
}

/// Waits until the object is gone.
///
/// # Errors
/// [`StoryError::Late`] when it is not within [`PATIENCE`].
pub async fn until_gone(api: &Api<DynamicObject>, name: &str) -> Result<(), StoryError> {
    let mut last = Value::Null;
    let mut tick = tokio::time::interval(PACE);
    let wait = async {
        loop {
            tick.tick().await;
            let Some(object) = persist(|| api.get_opt(name)).await? else {
                return Ok(());
            };
            last = serde_json::to_value(object).unwrap_or_default();
        }
    };
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(ended) => ended,
        Err(_) => Err(late(name, "the end", &last)),
    }
}

/// Sends a request until the API answers: it may be away for a while. Only requests that may be sent twice.
///
/// # Errors
/// What the API answers, or the last failure to reach it within [`PATIENCE`].
pub async fn persist<T, F>(request: impl Fn() -> F) -> Result<T, StoryError>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let began = tokio::time::Instant::now();
    let mut tick = tokio::time::interval(PACE);
    loop {
        tick.tick().await;
        match tokio::time::timeout(ANSWER, request()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(kube::Error::Api(status))) if status.code < 500 => {
                return Err(kube::Error::Api(status).into());
            }
            Ok(Err(error)) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) if began.elapsed() > PATIENCE => return Err(StoryError::Silent),
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

fn late(name: &str, what: &'static str, last: &Value) -> StoryError {
    let last = serde_json::to_string_pretty(last.get("status").unwrap_or(&Value::Null)).unwrap_or_default();
    StoryError::Late {
        seconds: PATIENCE.as_secs(),
        name: name.to_owned(),
        what,
        last,
    }
}
