//! Health checks: each sends a TCP or HTTP request to a service of the stack. The first failure ends the run.
//!
//! Addresses are templates over the outputs, including sensitive ones. Errors show the address rendered without sensitive values.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::Value;
use serde_json::value::to_raw_value;
use sluice_tf_core::bundle::{HealthCheck, HealthCheckKind};
use sluice_tf_core::cli::output::Output;
use sluice_tf_core::cli::text::truncate;
use sluice_tf_core::redaction::Redactor;
use sluice_tf_core::template::{self, Delimiters, Functions};
use tokio::time::{Instant, timeout_at};

use crate::run::lifecycle::context::Context;
use crate::run::post_apply::encoding::encode;
use crate::run::post_apply::outputs::OutputsError;

mod address;
mod probe;

/// Maximum number of characters of an address in a message.
const ADDRESS_LIMIT: usize = 512;
/// Replaces a sensitive value.
const SENSITIVE: &str = "(sensitive)";

/// The reason why the stack is not healthy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HealthError {
    #[error("TCP health check error: {name}, url: {address}: {why}")]
    Tcp {
        name: String,
        address: String,
        why: String,
    },
    #[error("HTTP health check error: {name}, url: {address}: {why}")]
    Http {
        name: String,
        address: String,
        why: String,
    },
}

impl HealthError {
    /// Redacts the address before it cuts it: half a value would not be recognised.
    pub(crate) fn redact(mut self, secrets: &Redactor) -> Self {
        let (Self::Tcp { address, .. } | Self::Http { address, .. }) = &mut self;
        *address = truncate(&secrets.redact(address), ADDRESS_LIMIT);
        self
    }
}

/// The outputs as in the Secret, for templates.
pub(crate) fn template_data(
    found: &BTreeMap<String, Output>,
    selection: &[String],
) -> Result<Value, OutputsError> {
    let data = encode(found, selection)?.values;
    let text = |bytes: ByteString| Value::String(String::from_utf8_lossy(&bytes.0).into_owned());
    Ok(data.into_iter().map(|(key, bytes)| (key, text(bytes))).collect())
}

/// The outputs with sensitive values replaced.
pub(crate) fn without_sensitive(found: &BTreeMap<String, Output>) -> BTreeMap<String, Output> {
    let mut redacted = found.clone();
    for output in redacted.values_mut().filter(|output| output.sensitive) {
        output.value = to_raw_value(SENSITIVE).unwrap_or_default();
    }
    redacted
}

/// Makes one check, within its own timeout and the run's deadline.
pub(crate) async fn check_one(
    check: &HealthCheck,
    data: &Value,
    redacted_data: &Value,
    context: &Context,
    deadline: Instant,
) -> Result<(), HealthError> {
    let render = |data| template::render(&check.target, Delimiters::DollarCurly, Functions::BuiltIn, data);
    let failed = |why: String| {
        let address = render(redacted_data).unwrap_or_else(|_| check.target.clone());
        failure(check, address, why)
    };
    let target = render(data).map_err(|error| failed(error.to_string()))?;
    let limit = Duration::from_millis(check.timeout_millis);
    let until = deadline.min(Instant::now() + limit);
    let probed = match check.kind {
        HealthCheckKind::Tcp => timeout_at(until, probe::tcp(&target)).await,
        HealthCheckKind::Http => timeout_at(until, probe::http(&target, &context.environment)).await,
    };
    let answer = probed.unwrap_or_else(|_| Err(format!("no response within {limit:?}")));
    answer.map_err(failed)
}

fn failure(check: &HealthCheck, address: String, why: String) -> HealthError {
    let name = check.name.clone();
    match check.kind {
        HealthCheckKind::Tcp => HealthError::Tcp { name, address, why },
        HealthCheckKind::Http => HealthError::Http { name, address, why },
    }
}

#[cfg(test)]
mod tests;
