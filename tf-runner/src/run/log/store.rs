//! Stores the parts of a log in their Secrets, in order.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::PostParams;
use sluice_runtime::failure::chain;
use sluice_tf_core::cli::text::truncate;
use sluice_tf_core::run_log::LogPart;
use tokio::time::Instant;

use crate::run::lifecycle::api_retry::is_transient;
use crate::run::lifecycle::context::Context;
use crate::run::status::StatusWriter;

/// Maximum number of characters of the error of an attempt.
const ERROR_LIMIT: usize = 1000;

/// The reason why the log is not stored.
#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("the API did not respond within {0:?}")]
    Timeout(Duration),
    /// Its name is predictable, so any writer of Secrets can create it.
    #[error("the Secret {name} exists and is not of this run; delete it")]
    Foreign { name: String },
}

impl StoreError {
    /// Whether a later attempt may succeed.
    fn is_transient(&self) -> bool {
        match self {
            Self::Api(error) => is_transient(error),
            Self::Timeout(_) => true,
            Self::Foreign { .. } => false,
        }
    }
}

/// Stores the parts of a log, and records the name of the first Secret, or the error. Returns the parts that are not stored if a later
/// attempt may succeed. The run has its outcome without its log.
pub(crate) async fn store_parts(
    context: &Context,
    status: &StatusWriter,
    mut parts: VecDeque<Secret>,
) -> VecDeque<Secret> {
    let timeout = context.settings.log_timeout;
    // One for all parts: the end of the run waits for them.
    let deadline = Instant::now() + timeout;
    while let Some(secret) = parts.front() {
        let part = LogPart::of(secret);
        let stored = tokio::time::timeout_at(deadline, create(context, secret)).await;
        if let Err(error) = stored.unwrap_or(Err(StoreError::Timeout(timeout))) {
            record_error(status, &unstored_part(part), &error);
            return if error.is_transient() {
                parts
            } else {
                VecDeque::new()
            };
        }
        // Before the others are stored: if the runner dies, the run may name what there is of its log.
        if part.index == 0 {
            let name = secret.name_any();
            status.buffer(|status| status.log_secret = name);
        }
        parts.pop_front();
        if parts.is_empty() {
            status.buffer(|status| status.log_error.clear());
        }
    }
    parts
}

/// Creates the Secret. It exists already if the response to an earlier attempt was lost.
async fn create(context: &Context, secret: &Secret) -> Result<(), StoreError> {
    let (api, params) = (context.api::<Secret>(), PostParams::default());
    match context.retry(|| api.create(&params, secret)).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => return Ok(created.map(drop)?),
    }
    let name = secret.name_any();
    let found = context.retry(|| api.get(&name)).await?;
    let is_same_part = LogPart::of(&found) == LogPart::of(secret);
    if is_same_part && found.data == secret.data && found.owner_references() == secret.owner_references() {
        Ok(())
    } else {
        Err(StoreError::Foreign { name })
    }
}

/// What is not stored if this part is not.
fn unstored_part(part: LogPart) -> String {
    if part.index == 0 {
        "the log".to_owned()
    } else {
        format!("the log from {part} on")
    }
}

/// Records why the log is not stored, or not all of it.
pub(super) fn record_error(status: &StatusWriter, what: &str, error: &(dyn std::error::Error + 'static)) {
    let text = status.secrets().redact(&chain(error)).into_owned();
    tracing::warn!(error = text, what, "the log of the run is not stored");
    let text = format!("{what} is not stored: {}", truncate(&text, ERROR_LIMIT));
    status.buffer(|status| status.log_error = text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_first_part_that_is_missing() {
        let count = 3;
        assert_eq!(unstored_part(LogPart { index: 0, count }), "the log");
        assert_eq!(
            unstored_part(LogPart { index: 1, count }),
            "the log from part 2 of 3 on"
        );
    }
}
