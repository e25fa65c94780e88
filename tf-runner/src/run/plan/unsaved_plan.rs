//! Plans of a remote service (`cloud` or the module's own backend) that the CLI cannot save.
//!
//! Such a plan is repeated before its apply, compared by its text, and then applied without a file. Changes on the service
//! between the two are not detected.

use std::path::Path;

use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::plan::unsaved;
use sluice_tf_core::workdir::read_limited;

use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::plan::plan_arguments;
use crate::run::workdir::directory_error;

/// The CLI's errors for a plan that it cannot save, of all versions.
const UNSUPPORTED_ERRORS: [&str; 2] = [
    "Saving a generated plan is currently not supported",
    "Saved plans not allowed",
];

/// The warning in the text of such a plan.
pub(crate) const UNSAVED_PLAN_NOTE: &str = "Note: this plan cannot be saved. After its approval it is created again, and applied if the output is the same; hidden values are not compared.";

/// Whether a plan failed because it cannot be saved. With a generated backend that is an ordinary failure.
pub(crate) fn is_unsupported(error: &RunError, bundle: &Bundle) -> bool {
    let RunError::Command {
        step: Step::Plan,
        raw_output,
        ..
    } = error
    else {
        return false;
    };
    bundle.run_environment.backend_off
        && raw_output.errors_match(|text| UNSUPPORTED_ERRORS.iter().any(|error| text.contains(error)))
}

/// A plan that was not saved.
pub(crate) struct UnsavedPlan {
    pub(crate) has_changes: bool,
    pub(crate) text: String,
}

/// Plans without a file.
pub(crate) async fn plan(
    session: &RunSession<'_>,
    destroy: bool,
    variables: &[String],
) -> Result<UnsavedPlan, RunError> {
    let RunSession { bundle, cli, .. } = session;
    // A plan file of the artifact must not be mistaken for the plan of this run.
    match std::fs::remove_file(cli.plan_file()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(directory_error("remove the artifact's plan", error));
        }
        _ => {}
    }
    let args = plan_arguments(None, destroy, variables, &bundle.options);
    let ended = cli.capture_expecting(Step::Plan, &args, &[0, 2]).await?;
    Ok(UnsavedPlan {
        has_changes: ended.code == Some(2),
        text: read_whole_text(&ended.stdout)?,
    })
}

/// Reads the entire text: an omitted part would not be compared.
fn read_whole_text(file: &Path) -> Result<String, RunError> {
    let bytes = read_limited(file, unsaved::TEXT_LIMIT);
    let bytes = bytes.map_err(|source| directory_error("read the plan's text", source))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
