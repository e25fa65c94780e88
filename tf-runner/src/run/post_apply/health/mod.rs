//! Health checks: each asks a service that the stack made whether it is there. The first that fails ends the run.
//!
//! Addresses are templates over the outputs, sensitive ones included; what is told of a failure is the address as it reads
//! with the sensitive ones left out.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, value::to_raw_value};
use sluice_api::run::{Health, Phase};
use tokio::time::{Instant, timeout_at};

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::post_apply::outputs;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::bundle::{HealthCheck, HealthCheckKind};
use sluice_tf_core::cli::output::Output;
use sluice_tf_core::cli::text::truncate;
use sluice_tf_core::redaction::Redactor;
use sluice_tf_core::template::{self, Delimiters, Functions};

mod address;
mod ask;

/// Most characters of an address in a message.
const SHOWN: usize = 512;
/// What stands for a sensitive value.
const SENSITIVE: &str = "(sensitive)";

/// Why the stack is not healthy.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// A TCP check failed.
    #[error("TCP health check error: {name}, url: {address}: {why}")]
    Tcp {
        /// Name of the check.
        name: String,
        /// What was asked.
        address: String,
        /// What went wrong.
        why: String,
    },
    /// An HTTP check failed.
    #[error("HTTP health check error: {name}, url: {address}: {why}")]
    Http {
        /// Name of the check.
        name: String,
        /// What was asked.
        address: String,
        /// What went wrong.
        why: String,
    },
}

impl HealthError {
    /// With an address of a bounded length. It is hidden before it is cut: half a value is not known for one that nobody may
    /// read.
    fn presentable(mut self, secrets: &Redactor) -> Self {
        let (Self::Tcp { address, .. } | Self::Http { address, .. }) = &mut self;
        *address = truncate(&secrets.redact(address), SHOWN);
        self
    }
}

/// Makes the checks in order, and says what they came to.
pub(crate) async fn check(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    found: &BTreeMap<String, Output>,
) -> Result<(), RunError> {
    let checks = &bundle.post_apply.health_checks;
    if checks.is_empty() {
        return Ok(());
    }
    workspace
        .reporter
        .say_soon(|status| status.phase = Phase::CheckingHealth);
    let selection = bundle.outputs.as_ref().map(|target| target.outputs.as_slice());
    let data = texts(found, selection.unwrap_or_default())?;
    let shown = texts(&without_secrets(found), selection.unwrap_or_default())?;
    let mut outcome = Ok(());
    for check in checks {
        outcome = tokio::select! {
            made = make(check, &data, &shown, context, workspace.limits.deadline) => made,
            () = workspace.limits.stop.cancelled() => Ok(()),
        };
        // What was not seen to its end, or not begun, is not known to be well.
        if outcome.is_ok()
            && let Some(stopped) = workspace.too_late(Step::Health)
        {
            return Err(stopped);
        }
        if outcome.is_err() {
            break;
        }
    }
    workspace.reporter.say_soon(|status| {
        status.health = Some(Health {
            checks: bundle.post_apply.checks_digest(),
            passed: outcome.is_ok(),
        });
    });
    outcome.map_err(|error| error.presentable(&workspace.reporter.secrets()).into())
}

/// The outputs as a template sees them: as they stand in the Secret.
fn texts(found: &BTreeMap<String, Output>, selection: &[String]) -> Result<Value, outputs::OutputsError> {
    let data = outputs::encode(found, selection)?;
    let text = |bytes: ByteString| Value::String(String::from_utf8_lossy(&bytes.0).into_owned());
    Ok(data.into_iter().map(|(key, bytes)| (key, text(bytes))).collect())
}

fn without_secrets(found: &BTreeMap<String, Output>) -> BTreeMap<String, Output> {
    let mut shown = found.clone();
    for output in shown.values_mut().filter(|output| output.sensitive) {
        output.value = to_raw_value(SENSITIVE).unwrap_or_default();
    }
    shown
}

/// One check, within its own time and the run's.
async fn make(
    check: &HealthCheck,
    data: &Value,
    shown: &Value,
    context: &Context,
    deadline: Instant,
) -> Result<(), HealthError> {
    let render = |data| template::render(&check.target, Delimiters::DollarCurly, Functions::BuiltIn, data);
    let failed = |why: String| {
        let address = render(shown).unwrap_or_else(|_| check.target.clone());
        failure(check, address, why)
    };
    let target = render(data).map_err(|error| failed(error.to_string()))?;
    let limit = Duration::from_millis(check.timeout_millis);
    let until = deadline.min(Instant::now() + limit);
    let asked = match check.kind {
        HealthCheckKind::Tcp => timeout_at(until, ask::tcp(&target)).await,
        HealthCheckKind::Http => timeout_at(until, ask::http(&target, &context.environment)).await,
    };
    let answer = asked.unwrap_or_else(|_| Err(format!("no answer within {limit:?}")));
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
