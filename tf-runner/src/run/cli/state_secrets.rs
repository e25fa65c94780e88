//! Sensitive values of the state, read after a provider failed: its error may quote the state, and without a plan nothing else
//! names the sensitive values.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sluice_tf_core::cli::preamble::strip_preamble;
use sluice_tf_core::cli::process::Limits;
use sluice_tf_core::redaction::Redactor;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::run::cli::{Cli, arguments};
use crate::run::lifecycle::error::{RunError, Step};

/// Largest state that is read. It is parsed in memory, as the CLI does.
const LIMIT: u64 = 64 * 1024 * 1024;
/// Timeout for the query: a run that was stopped has few seconds.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Learns the sensitive values of the state, redacts them in the logs and returns the error to report. If the state cannot be
/// read, the error output of a completed command is reported nevertheless, since it is most likely about the state; that of an
/// interrupted one is removed from the error and the logs.
pub(crate) async fn redact_state_secrets(cli: &Cli<'_>, error: RunError) -> RunError {
    if !is_of_provider(&error) {
        return error;
    }
    if let Some(state) = query_state(cli).await {
        let known = {
            let mut secrets = cli.status.secrets();
            secrets.add_state(&state);
            secrets.clone()
        };
        redact_logs(cli, &known);
        return error;
    }
    tracing::debug!("the sensitive values of the state are unknown");
    match error {
        RunError::Stopped { step, why, .. } => {
            let mut unknown = Redactor::default();
            unknown.suppress_all();
            redact_logs(cli, &unknown);
            RunError::Stopped {
                step,
                why,
                text: String::new(),
            }
        }
        error => error,
    }
}

/// Reads the state as JSON, within its own limits.
async fn query_state(cli: &Cli<'_>) -> Option<Value> {
    let limits = Limits {
        stop: CancellationToken::new(),
        deadline: Instant::now() + TIMEOUT,
        grace: Duration::ZERO,
    };
    let args = arguments(&["show", "-json", "-no-color"]);
    let answer = cli.query(Step::Show, &args, &limits).await.ok()?;
    tokio::task::spawn_blocking(move || read(&answer)).await.ok()?
}

fn redact_logs(cli: &Cli<'_>, known: &Redactor) {
    for file in log_files(&cli.directory.logs) {
        if let Err(error) = known.redact_file(&file) {
            tracing::warn!(%error, "a log file could not be redacted");
        }
    }
}

/// Whether the error is of a command that runs providers, and has a text.
fn is_of_provider(error: &RunError) -> bool {
    match error {
        RunError::Command { step, .. } => runs_providers(*step),
        RunError::Stopped { step, text, .. } => runs_providers(*step) && !text.is_empty(),
        _ => false,
    }
}

const fn runs_providers(step: Step) -> bool {
    matches!(step, Step::Plan | Step::Apply | Step::Destroy)
}

fn read(answer: &Path) -> Option<Value> {
    strip_preamble(answer).ok()?;
    let mut bytes = Vec::new();
    let file = File::open(answer).ok()?;
    file.take(LIMIT + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= LIMIT)
        .then(|| serde_json::from_slice(&bytes).ok())
        .flatten()
}

fn log_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect()
}
