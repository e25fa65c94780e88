//! What came with the artifact of another use of the CLI: a state in a file, and notes of a backend and a workspace.
//!
//! `init` copies such a state over the one in the backend (`-force-copy`), at each run anew, since each run unpacks the artifact
//! anew: whatever was made meanwhile would be forgotten. So it is put aside, and becomes the stack's state only where that has
//! nothing in it yet. Notes count for nothing: the spec says which backend and which workspace are used.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use serde_json::Value;

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::plan::state_persistence;
use crate::run::state_lock::unlock;
use crate::run::workdir;
use crate::run::workdir::failed;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::argv;
use sluice_tf_core::cli::text::strip_formatting;

/// The CLI's own file of a state, and the folder of those of other workspaces.
const STATE: &str = "terraform.tfstate";
const WORKSPACES: &str = "terraform.tfstate.d";
/// The CLI's notes: of the workspace that is selected, and of the backend that `init` configured.
const SELECTED: &str = ".terraform/environment";
const CONFIGURED: &str = ".terraform/terraform.tfstate";
/// Largest state that is looked into: one that is larger has something in it.
const LIMIT: u64 = 1024 * 1024;

/// Puts aside what came with the artifact. Without a backend of ours `init` copies nothing, and what it notes is the module's.
pub(crate) fn put_aside(module: &Path, scratch: &Path, bundle: &Bundle) -> Result<(), RunError> {
    let wrong = |source| failed("put aside a state that came with the artifact", source);
    forget(&module.join(SELECTED)).map_err(wrong)?;
    if bundle.run_environment.backend_off {
        return Ok(());
    }
    forget(&module.join(CONFIGURED)).map_err(wrong)?;
    for name in [STATE, WORKSPACES] {
        rename(&module.join(name), &scratch.join(name)).map_err(wrong)?;
    }
    Ok(())
}

/// Puts back, after `init`, what is the stack's state where its backend keeps that in the module's directory.
pub(crate) fn put_back(workspace: &Workspace<'_>, selected: &str) -> Result<(), RunError> {
    if state_persistence::lasts(&workspace.module, selected) {
        return Ok(());
    }
    let scratch = workspace.directory.scratch.path();
    for name in [STATE, WORKSPACES] {
        rename(&scratch.join(name), &workspace.module.join(name))
            .map_err(|source| failed("put back the state of the artifact", source))?;
    }
    Ok(())
}

/// Makes the state that came with the artifact that of the stack, if it has none: so a stack is taken over from a directory.
pub(crate) async fn take_over(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
) -> Result<(), RunError> {
    let brought = workspace.directory.scratch.path().join(STATE);
    if is_empty(&brought)? {
        return Ok(());
    }
    let is_free = bundle.workspace == "default"
        && tells_of_none(
            &workspace
                .capture_object(Step::Inventory, &argv::state_pull())
                .await?,
        )?;
    if !is_free {
        tracing::warn!(
            "terraform.tfstate of the artifact counts for nothing: the stack has a state in its backend"
        );
        return Ok(());
    }
    tracing::info!("terraform.tfstate of the artifact becomes the state of the stack, which had none");
    let words = argv::state_push_force(&brought, &bundle.options.lock_timeout);
    unlock::retrying(context, workspace, Step::Push, &words, &[0])
        .await
        .map(drop)
}

/// Whether the CLI's answer is no state, or one without resources and outputs. OpenTofu may have something to say about its own
/// configuration, and then that is all that is in the file.
fn tells_of_none(answer: &Path) -> Result<bool, RunError> {
    if is_empty(answer)? {
        return Ok(true);
    }
    let bytes = match workdir::read_limited(answer, LIMIT) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge => return Ok(false),
        read => read.map_err(|source| failed("read a state", source))?,
    };
    let text = strip_formatting(&String::from_utf8_lossy(&bytes));
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_warning = lines.next().is_some_and(|first| first.starts_with("Warning:"));
    let has_object = text.lines().any(|line| line.trim_start().starts_with('{'));
    // Every state has a lineage, wherever it stands. What is nothing that is known may be one.
    Ok(is_warning && !has_object && !text.contains("\"lineage\""))
}

/// Whether a file holds no state, or one without resources and outputs.
fn is_empty(file: &Path) -> Result<bool, RunError> {
    let read = |source| failed("read a state", source);
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
    // What is not understood is not nothing.
    let state: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let without = |name: &str| match &state[name] {
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        other => other.is_null(),
    };
    Ok(state.is_object() && without("modules") && without("resources") && without("outputs"))
}

fn forget(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn rename(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_empty_only_where_that_is_certain() {
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
        assert!(!tells_of_none(&file).unwrap());
    }

    #[test]
    fn an_answer_of_nothing_but_a_warning_is_no_state() {
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
            assert_eq!(tells_of_none(&file).unwrap(), none, "{text}");
        }
    }
}
