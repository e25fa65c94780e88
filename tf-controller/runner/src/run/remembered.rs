//! What the state marks as sensitive, learnt when a provider has failed: a provider may quote what it stored there, and where no
//! plan came to be nothing else tells what may not be shown.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::{RunError, Step};
use super::workspace::Workspace;
use crate::cli::argv;

/// Largest answer that is read. The state is in memory as a whole, as the CLI has it too.
const LIMIT: u64 = 64 * 1024 * 1024;

/// Learns what nobody may read of the state, and takes it out of the logs that were written already. It is a help: what
/// cannot be learnt fails nothing, since the run has failed.
pub(super) async fn learn(workspace: &Workspace<'_>, error: &RunError) {
    if !is_of_a_provider(error) {
        return;
    }
    let Ok(answer) = workspace.capture(Step::Show, &argv::show_state()).await else {
        return;
    };
    let read = tokio::task::spawn_blocking(move || read(&answer)).await;
    let Ok(Some(state)) = read else {
        tracing::debug!("what the state marks as sensitive is not known");
        return;
    };
    let known = {
        let mut secrets = workspace.reporter.secrets();
        secrets.learn_state(&state);
        secrets.clone()
    };
    for file in logs(&workspace.directory.logs) {
        if let Err(error) = known.clean(&file) {
            tracing::warn!(%error, "a log file could not be cleaned of sensitive values");
        }
    }
}

/// Whether the text is of a command in which providers speak.
const fn is_of_a_provider(error: &RunError) -> bool {
    matches!(
        error,
        RunError::Command {
            step: Step::Plan | Step::Apply | Step::Destroy,
            ..
        }
    )
}

fn read(answer: &Path) -> Option<Value> {
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
