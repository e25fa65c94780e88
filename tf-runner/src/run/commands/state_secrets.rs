//! What the state marks as sensitive, learnt when a provider has failed: a provider may quote what it stored there, and where no
//! plan came to be nothing else tells what may not be shown.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::error::{RunError, Step};
use sluice_tf_core::cli::argv;
use sluice_tf_core::cli::preamble::strip_preamble;
use sluice_tf_core::cli::process::Limits;
use sluice_tf_core::redaction::Redactor;

/// Largest answer that is read. The state is in memory as a whole, as the CLI has it too.
const LIMIT: u64 = 64 * 1024 * 1024;
/// Longest time that the look takes: a run that was told to stop has not many seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// Learns what nobody may read of the state, takes it out of the logs that were written already, and gives the error that may
/// be told. Of a command that ran to its end the words are told even where the state cannot be read: then it is most often
/// the state that they are about. Those of an interrupted one are not, and neither are they kept.
pub(crate) async fn learn(workspace: &Workspace<'_>, error: RunError) -> RunError {
    if !is_of_a_provider(&error) {
        return error;
    }
    if let Some(state) = state(workspace).await {
        let known = {
            let mut secrets = workspace.reporter.secrets();
            secrets.add_state(&state);
            secrets.clone()
        };
        clean(workspace, &known);
        return error;
    }
    tracing::debug!("what the state marks as sensitive is not known");
    match error {
        RunError::Stopped { step, why, .. } => {
            let mut unknown = Redactor::default();
            unknown.suppress_all();
            clean(workspace, &unknown);
            RunError::Stopped {
                step,
                why,
                text: String::new(),
            }
        }
        error => error,
    }
}

/// The state as JSON, read within limits of its own.
async fn state(workspace: &Workspace<'_>) -> Option<Value> {
    let limits = Limits {
        stop: CancellationToken::new(),
        deadline: Instant::now() + PATIENCE,
        grace: Duration::ZERO,
    };
    let answer = workspace
        .look(Step::Show, &argv::show_state(), &limits)
        .await
        .ok()?;
    tokio::task::spawn_blocking(move || read(&answer)).await.ok()?
}

fn clean(workspace: &Workspace<'_>, known: &Redactor) {
    for file in logs(&workspace.directory.logs) {
        if let Err(error) = known.redact_file(&file) {
            tracing::warn!(%error, "a log file could not be cleaned of sensitive values");
        }
    }
}

/// Whether the text is of a command in which providers speak.
fn is_of_a_provider(error: &RunError) -> bool {
    match error {
        RunError::Command { step, .. } => speaks(*step),
        RunError::Stopped { step, text, .. } => speaks(*step) && !text.is_empty(),
        _ => false,
    }
}

const fn speaks(step: Step) -> bool {
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

fn logs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect()
}
