//! Resolves `spec.tool`. Where runs are processes: the newest installed version that matches, read in each reconciliation, so that
//! later installations are found. A pod has the versions of its image, so there the runner resolves the constraint.

use std::path::Path;

use sluice_api::terraform::Terraform;
use sluice_tf_core::bundle::SelectedTool;
use sluice_tf_core::cli::installed::{
    InstalledError, InstalledVersions, InvalidConstraint, VersionConstraint,
};

use super::Context;

/// Why the selected CLI is not available. All errors but an invalid version may be temporary.
#[derive(Debug, thiserror::Error)]
pub(in crate::reconcile) enum ToolError {
    /// The text is not a version.
    #[error("spec.tool.version: {0}")]
    InvalidConstraint(#[from] InvalidConstraint),
    /// A version is requested, but there is no directory of versions.
    #[error(
        "spec.tool requests {name} {version}, but the controller has no directory of installed versions: start it with \
         --tools-dir, or remove spec.tool.version to run the {name} on its PATH"
    )]
    NoDirectory {
        /// The CLI.
        name: &'static str,
        /// The requested version.
        version: String,
    },
    /// It is not installed.
    #[error("spec.tool: {0}")]
    Installed(#[from] InstalledError),
    /// Reading the directory was interrupted.
    #[error("spec.tool: the search for installed versions was interrupted")]
    Interrupted,
}

/// Returns the CLI of the stack; `None` if the spec selects none.
pub(in crate::reconcile) async fn selected(
    stack: &Terraform,
    context: &Context,
) -> Result<Option<SelectedTool>, ToolError> {
    let Some(selection) = &stack.spec.tool else {
        return Ok(None);
    };
    let (name, version): (_, VersionConstraint) = (selection.name.as_str(), selection.version.parse()?);
    if context.executor.has_pods() {
        return Ok(Some(in_image(name, &version)));
    }
    let Some(tools) = context.tools_dir.clone() else {
        return without_directory(name, &version).map(Some);
    };
    let selected = tokio::task::spawn_blocking(move || in_directory(&tools, name, &version)).await;
    Ok(Some(selected.map_err(|_| ToolError::Interrupted)??))
}

/// Returns the selection of a runner in a pod. Any version is the empty text, as without `spec.tool.version`.
fn in_image(name: &'static str, version: &VersionConstraint) -> SelectedTool {
    let version = if version.is_any() {
        String::new()
    } else {
        version.to_string()
    };
    SelectedTool {
        name: name.to_owned(),
        version,
    }
}

fn in_directory(
    tools: &Path,
    name: &str,
    version: &VersionConstraint,
) -> Result<SelectedTool, InstalledError> {
    Ok(SelectedTool {
        name: name.to_owned(),
        version: InstalledVersions::read(tools, name)?
            .newest_matching(version)?
            .to_string(),
    })
}

fn without_directory(name: &'static str, version: &VersionConstraint) -> Result<SelectedTool, ToolError> {
    if version.is_any() {
        return Ok(SelectedTool {
            name: name.to_owned(),
            version: String::new(),
        });
    }
    Err(ToolError::NoDirectory {
        name,
        version: version.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_of_a_pod_gets_the_constraint() {
        let of = |text: &str| in_image("tofu", &text.parse().unwrap()).version;
        assert_eq!(of(" ~> 1.8 "), "~> 1.8");
        assert_eq!(of("1.8.3"), "1.8.3");
        assert_eq!([of(""), of("*")], ["", ""]);
    }

    #[test]
    fn without_a_directory_no_version_can_be_selected() {
        let of = |text: &str| without_directory("tofu", &text.parse().unwrap());
        let selected = of("").unwrap();
        assert_eq!((selected.name.as_str(), selected.version.as_str()), ("tofu", ""));
        let error = of("~> 1.8").unwrap_err().to_string();
        assert!(
            error.starts_with("spec.tool requests tofu ~> 1.8, but the controller has no directory"),
            "{error}"
        );
    }
}
