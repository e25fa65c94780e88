//! The state of the stack: the selection of its workspace, one that was committed to the source, one that the CLI could not
//! write, the copy before an apply, the identity by which it is recognised, and whether the configured backend stores it outside of
//! the working directory.
//!
//! A state in a file below the working directory is lost, because each run clears that directory. That is acceptable for modules
//! without resources, and the status warns of it before the plan is approved.

pub(crate) mod committed_state;
pub(crate) mod errored_tfstate;
pub(crate) mod identity;
pub(crate) mod labels;
pub(crate) mod state_copy;
mod state_secret;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sluice_tf_core::cli::preamble::strip_preamble;
use sluice_tf_core::cli::process::Limits;
use sluice_tf_core::workdir::read_limited;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::run::cli::{Cli, arguments};
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::state_lock::{retry_after_unlock, timeout_argument};
use crate::run::workdir::directory_error;

/// The file in which `init` records the backend.
const BACKEND_FILE: &str = ".terraform/terraform.tfstate";
const LIMIT: u64 = 16 * 1024 * 1024;
/// The warning in the status.
pub(crate) const EPHEMERAL_STATE_NOTE: &str = "Note: the state of this stack is in its working directory and is lost with it. Configure a backend in the module, or a backendConfig in the stack.";

/// After `init`: selects the workspace of the spec, and restores its state if the backend stores it in the module directory.
pub(crate) async fn select_workspace(session: &RunSession<'_>) -> Result<(), RunError> {
    let (name, cli) = (&session.bundle.workspace, &session.cli);
    committed_state::restore(cli, name)?;
    if name == "default" {
        return Ok(());
    }
    if name.starts_with('-') {
        // The CLI would parse it as an option.
        return Err(RunError::WorkspaceName { name: name.clone() });
    }
    // It fails if the workspace exists; the selection then succeeds.
    let args = workspace_arguments("new", name);
    let created = retry_after_unlock(session, Step::Workspace, &args, &[0]).await;
    if let Err(stopped @ RunError::Stopped { .. }) = created {
        return Err(stopped);
    }
    let is_locked = cli.leftover_lock.borrow().foreign().is_some();
    let args = workspace_arguments("select", name);
    let selected = cli.run(Step::Workspace, &args).await;
    match (created, selected) {
        (_, Ok(_)) => Ok(()),
        // The lock is the cause of the missing workspace.
        (Err(locked), Err(_)) if is_locked => Err(locked),
        (_, Err(error)) => Err(error),
    }
}

fn workspace_arguments(command: &str, workspace: &str) -> Vec<String> {
    arguments(&["workspace", command, "-no-color", workspace])
}

/// Runs `state pull`, which needs no providers; returns the file with the state as JSON.
pub(crate) async fn pull(cli: &Cli<'_>) -> Result<PathBuf, RunError> {
    cli.capture_object(Step::Inventory, &arguments(&["state", "pull"]))
        .await
}

/// As [`pull`], but only once before an apply: if the state changes in between, the CLI rejects the plan as stale.
pub(crate) async fn pull_once(cli: &Cli<'_>) -> Result<PathBuf, RunError> {
    let pulled = cli.pulled_state.borrow().clone();
    if let Some(pulled) = pulled {
        return Ok(pulled);
    }
    let file = pull(cli).await?;
    *cli.pulled_state.borrow_mut() = Some(file.clone());
    Ok(file)
}

/// As [`pull`], after a failure: with its own limits, and the exit code on record stays.
pub(crate) async fn query(cli: &Cli<'_>, timeout: Duration) -> Result<PathBuf, RunError> {
    let limits = Limits {
        stop: CancellationToken::new(),
        deadline: Instant::now() + timeout,
        grace: Duration::ZERO,
    };
    let args = arguments(&["state", "pull"]);
    let file = cli.query(Step::Inventory, &args, &limits).await?;
    strip_preamble(&file).map_err(|source| directory_error("read the state", source))?;
    Ok(file)
}

/// `state push` of a file. Without `force`, the CLI rejects another lineage and an older serial.
fn push_arguments(file: &Path, force: bool, lock_timeout: &str) -> Vec<String> {
    let mut push = arguments(&["state", "push"]);
    if force {
        push.push("-force".to_owned());
    }
    push.push("-lock=true".to_owned());
    push.push(timeout_argument(lock_timeout));
    push.push(file.display().to_string());
    push
}

/// Returns what `init` recorded about the backend; null without a record.
fn backend_record(module: &Path) -> Value {
    let record = read_limited(&module.join(BACKEND_FILE), LIMIT).unwrap_or_default();
    serde_json::from_slice(&record).unwrap_or_default()
}

/// Whether the backend of an initialized module stores the state outside of the working directory.
pub(crate) fn outlives_run(module: &Path, workspace: &str) -> bool {
    let record = backend_record(module);
    let backend = &record["backend"];
    match backend["type"].as_str() {
        None => false,
        Some("local") => {
            let member = if workspace == "default" {
                "path"
            } else {
                "workspace_dir"
            };
            let path = backend["config"][member].as_str().unwrap_or_default();
            Path::new(path).is_absolute()
        }
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workspace_is_selected_with_the_words_of_upstream() {
        assert_eq!(
            workspace_arguments("select", "blue").join(" "),
            "workspace select -no-color blue"
        );
    }

    #[test]
    fn a_file_below_the_working_directory_does_not_last() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!outlives_run(dir.path(), "default"), "no backend");
        std::fs::create_dir(dir.path().join(".terraform")).unwrap();
        let says = |kind: &str, config: Value, workspace: &str| {
            let note = json!({ "version": 3, "backend": { "type": kind, "config": config } });
            std::fs::write(dir.path().join(BACKEND_FILE), note.to_string()).unwrap();
            outlives_run(dir.path(), workspace)
        };
        let absolute = json!({ "path": "/states/a", "workspace_dir": null });
        assert!(says("local", absolute.clone(), "default") && !says("local", absolute, "blue"));
        assert!(says("local", json!({ "workspace_dir": "/states" }), "blue"));
        assert!(!says("local", json!({ "path": "a.tfstate" }), "default"));
        assert!(says("kubernetes", json!({}), "default") && says("cloud", json!({}), "default"));
        std::fs::write(dir.path().join(BACKEND_FILE), "no json").unwrap();
        assert!(!outlives_run(dir.path(), "default"));
    }
}
