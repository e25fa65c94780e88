//! Files of the CLI that were committed to the source: a state, the record of a backend, and the selected workspace.
//!
//! `init` copies such a state over the one in the backend (`-force-copy`). Each run unpacks the artifact, so each run would
//! overwrite the state with the committed one. Hence it is moved out of the module, and adopted only if the stack has no state
//! yet. The records are removed: the spec defines the backend and the workspace.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use serde_json::Value;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::text::strip_formatting;
use sluice_tf_core::workdir::read_limited;

use crate::run::cli::Cli;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::state;
use crate::run::state_lock::retry_after_unlock;
use crate::run::workdir::directory_error;

/// The CLI's state file, and the directory of the states of other workspaces.
const STATE: &str = "terraform.tfstate";
const WORKSPACES: &str = "terraform.tfstate.d";
/// The CLI's records of the selected workspace and of the backend.
const SELECTED_WORKSPACE: &str = ".terraform/environment";
const CONFIGURED_BACKEND: &str = ".terraform/terraform.tfstate";
/// Largest state that is parsed. A larger one is not empty.
const LIMIT: u64 = 1024 * 1024;

/// Moves the committed files out of the module. Without a generated backend `init` copies nothing, and the records are the
/// module's.
pub(crate) fn move_out(module: &Path, scratch: &Path, bundle: &Bundle) -> Result<(), RunError> {
    let error = |source| directory_error("move a committed state out of the module", source);
    remove_if_present(&module.join(SELECTED_WORKSPACE)).map_err(error)?;
    if bundle.run_environment.backend_off {
        return Ok(());
    }
    remove_if_present(&module.join(CONFIGURED_BACKEND)).map_err(error)?;
    for name in [STATE, WORKSPACES] {
        rename_if_present(&module.join(name), &scratch.join(name)).map_err(error)?;
    }
    Ok(())
}

/// Restores the committed state after `init`, if the backend stores the state in the module directory.
pub(crate) fn restore(cli: &Cli<'_>, selected: &str) -> Result<(), RunError> {
    if state::outlives_run(&cli.module, selected) {
        return Ok(());
    }
    let scratch = cli.directory.scratch.path();
    for name in [STATE, WORKSPACES] {
        rename_if_present(&scratch.join(name), &cli.module.join(name))
            .map_err(|source| directory_error("restore the committed state", source))?;
    }
    Ok(())
}

/// Pushes the committed state to the backend, if the stack has none: this migrates a stack from a directory.
pub(crate) async fn adopt(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession { bundle, cli, .. } = session;
    let committed = cli.directory.scratch.path().join(STATE);
    if is_empty(&committed)? {
        return Ok(());
    }
    let present = state::pull(cli).await?;
    let has_none = bundle.workspace == "default" && has_no_state(&present)?;
    // What the committed state became keeps its lineage. If it is empty now, its resources were destroyed.
    if !has_none || is_successor(&present, &committed)? {
        tracing::warn!("terraform.tfstate of the artifact is ignored: the stack has a state in its backend");
        return Ok(());
    }
    tracing::info!("terraform.tfstate of the artifact becomes the state of the stack, which had none");
    let args = state::push_arguments(&committed, true, &bundle.options.lock_timeout);
    retry_after_unlock(session, Step::Push, &args, &[0])
        .await
        .map(drop)
}

/// Whether the output of `state pull` contains no state, or an empty one. OpenTofu may print a warning about its configuration
/// instead of a state.
fn has_no_state(answer: &Path) -> Result<bool, RunError> {
    if is_empty(answer)? {
        return Ok(true);
    }
    let bytes = match read_limited(answer, LIMIT) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge => return Ok(false),
        read => read.map_err(|source| directory_error("read a state", source))?,
    };
    let text = strip_formatting(&String::from_utf8_lossy(&bytes));
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_warning = lines.next().is_some_and(|first| first.starts_with("Warning:"));
    let has_object = text.lines().any(|line| line.trim_start().starts_with('{'));
    // Every state has a lineage. Unknown output may be a state.
    Ok(is_warning && !has_object && !text.contains("\"lineage\""))
}

/// Whether a state has the lineage of another one.
fn is_successor(state: &Path, of: &Path) -> Result<bool, RunError> {
    let lineage = |path: &Path| -> Result<Option<String>, RunError> {
        let bytes = match read_limited(path, LIMIT) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::FileTooLarge) => {
                return Ok(None);
            }
            read => read.map_err(|source| directory_error("read a state", source))?,
        };
        let state: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(state["lineage"].as_str().map(str::to_owned))
    };
    let of = lineage(of)?.filter(|lineage| !lineage.is_empty());
    Ok(of.is_some() && lineage(state)? == of)
}

/// Whether a file is absent, or contains no state or one without resources and outputs.
fn is_empty(file: &Path) -> Result<bool, RunError> {
    let read = |source| directory_error("read a state", source);
    let mut bytes = Vec::new();
    match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        opened => opened
            .and_then(|file| file.take(LIMIT).read_to_end(&mut bytes))
            .map_err(read)?,
    };
    if bytes.trim_ascii().is_empty() {
        return Ok(true);
    }
    // Malformed content is not empty.
    let state: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let is_absent = |name: &str| match &state[name] {
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        other => other.is_null(),
    };
    Ok(state.is_object() && is_absent("modules") && is_absent("resources") && is_absent("outputs"))
}

fn remove_if_present(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn rename_if_present(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_empty_only_if_certain() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(STATE);
        assert!(is_empty(&file).unwrap(), "there is none");
        for (text, empty) in [
            ("", true),
            ("\n", true),
            (
                r#"{"version":4,"serial":1,"lineage":"l","outputs":{},"resources":[],"check_results":null}"#,
                true,
            ),
            (r#"{"version":4,"resources":[{"type":"a"}]}"#, false),
            (
                r#"{"version":4,"outputs":{"a":{"value":1}},"resources":[]}"#,
                false,
            ),
            (r#"{"version":3,"modules":[{"path":["root"]}]}"#, false),
            ("no json", false),
            ("[]", false),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(is_empty(&file).unwrap(), empty, "{text}");
        }
        File::create(&file).unwrap().set_len(LIMIT * 2).unwrap();
        assert!(!is_empty(&file).unwrap(), "too large to be nothing");
        assert!(!has_no_state(&file).unwrap());
    }

    #[test]
    fn a_warning_without_json_is_not_a_state() {
        const WARNING: &str =
            "\nWarning: Unable to open CLI configuration file\n\nThe file \"{x}\" does not exist.\n\n";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("1.out");
        let state = r#"{"version":4,"serial":1,"lineage":"l","resources":[{"type":"a"}]}"#;
        for (text, none) in [
            (String::new(), true),
            (WARNING.to_owned(), true),
            (state.to_owned(), false),
            (format!("{WARNING}{state}"), false),
            (format!("{}{state}", WARNING.trim_end()), false),
            ("{\"half\": ".to_owned(), false),
            ("welcome to this machine\n".to_owned(), false),
        ] {
            std::fs::write(&file, &text).unwrap();
            assert_eq!(has_no_state(&file).unwrap(), none, "{text}");
        }
    }
}
