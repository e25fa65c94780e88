//! Plans of a CLI that cannot save them: a service that runs plans itself, reached through `cloud` or the module's own backend.
//!
//! Such a plan is made again before its apply, compared by what it shows, and then applied without a file. What happens on
//! the service between the two is the service's: an approval is as exact as the CLI lets it be.

use std::path::{Path, PathBuf};

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::plan::argv_options;
use crate::run::workdir;
use crate::run::workdir::failed;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::argv;
use sluice_tf_core::plan::unsaved;

/// The CLI's words for a plan that it cannot save, of all versions.
const REFUSALS: [&str; 2] = [
    "Saving a generated plan is currently not supported",
    "Saved plans not allowed",
];

/// What the reader of such a plan has to know.
pub(crate) const CAUTION: &str = "Note: this plan cannot be saved. After its approval it is made again, and applied if it \
    then shows the same; values that it hides are not compared.";

/// Whether a plan failed only because it was to be saved. With a backend of ours that is a failure like others.
pub(crate) fn is_refused(error: &RunError, bundle: &Bundle) -> bool {
    let RunError::Command {
        step: Step::Plan,
        raw_output,
        ..
    } = error
    else {
        return false;
    };
    bundle.run_environment.backend_off
        && raw_output.is(|said| REFUSALS.iter().any(|words| said.contains(words)))
}

/// A plan that was shown and not saved.
pub(crate) struct Shown {
    pub(crate) has_changes: bool,
    pub(crate) text: String,
}

/// Plans without a file.
pub(crate) async fn plan(
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    destroy: bool,
    variables: &[PathBuf],
) -> Result<Shown, RunError> {
    // One that came with the artifact is no plan of this run.
    match std::fs::remove_file(workspace.plan_file()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("remove the artifact's plan", error));
        }
        _ => {}
    }
    let words = argv::plan_unsaved(destroy, variables, &argv_options(bundle));
    let ended = workspace.capture_expecting(Step::Plan, &words, &[0, 2]).await?;
    Ok(Shown {
        has_changes: ended.code == Some(2),
        text: whole_text(&ended.stdout)?,
    })
}

/// What the CLI showed, all of it: what was left out would not be compared.
fn whole_text(file: &Path) -> Result<String, RunError> {
    let bytes = workdir::read_limited(file, unsaved::TEXT_LIMIT);
    let bytes = bytes.map_err(|source| failed("read the plan's text", source))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The words of an apply without a plan file.
pub(crate) fn apply_words(destroy: bool, variables: &[PathBuf], bundle: &Bundle) -> Vec<String> {
    let options = argv_options(bundle);
    if destroy {
        argv::destroy(variables, &options)
    } else {
        argv::apply_unsaved(variables, &options)
    }
}
