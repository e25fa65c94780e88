//! What `spec.tool` comes to on this machine: the program, and the newest installed version that it asks for. Read anew in
//! each pass, so that what is installed later is found.

use super::Context;
use sluice_api::terraform::Terraform;
use sluice_tf_runner::{
    bundle::SelectedTool,
    cli::installed::{Installed, InstalledError, NoVersion, Wanted},
};
use std::path::Path;

/// Why a selected program cannot be had now. All but a text that is no version may change without an edit.
#[derive(Debug, thiserror::Error)]
pub(in crate::reconcile) enum ToolError {
    /// The text is no version.
    #[error("spec.tool.version: {0}")]
    NoVersion(#[from] NoVersion),
    /// A version is asked for where there is no directory of them.
    #[error(
        "spec.tool asks for {name} {wanted}, and the controller has no directory of installed versions: start it with \
         --tools-dir, or leave spec.tool.version away to run the {name} on its PATH"
    )]
    NoDirectory {
        /// The program.
        name: &'static str,
        /// What is asked for.
        wanted: String,
    },
    /// It is not installed.
    #[error("spec.tool: {0}")]
    Installed(#[from] InstalledError),
    /// The look at the directory was cut short.
    #[error("spec.tool: the look for installed versions was interrupted")]
    Interrupted,
}

/// The program of the stack; `None`: it does not say.
pub(in crate::reconcile) async fn selected(
    stack: &Terraform,
    context: &Context,
) -> Result<Option<SelectedTool>, ToolError> {
    let Some(selection) = &stack.spec.tool else {
        return Ok(None);
    };
    let (name, wanted): (_, Wanted) = (selection.name.as_str(), selection.version.parse()?);
    let Some(tools) = context.tools.clone() else {
        return without_directory(name, &wanted).map(Some);
    };
    let looked = tokio::task::spawn_blocking(move || in_directory(&tools, name, &wanted)).await;
    Ok(Some(looked.map_err(|_| ToolError::Interrupted)??))
}

fn in_directory(tools: &Path, name: &str, wanted: &Wanted) -> Result<SelectedTool, InstalledError> {
    Ok(SelectedTool {
        name: name.to_owned(),
        version: Installed::read(tools, name)?.choose(wanted)?.to_string(),
    })
}

fn without_directory(name: &'static str, wanted: &Wanted) -> Result<SelectedTool, ToolError> {
    if wanted.is_any() {
        return Ok(SelectedTool {
            name: name.to_owned(),
            version: String::new(),
        });
    }
    Err(ToolError::NoDirectory {
        name,
        wanted: wanted.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_directory_only_the_program_can_be_chosen() {
        let of = |text: &str| without_directory("tofu", &text.parse().unwrap());
        let selected = of("").unwrap();
        assert_eq!((selected.name.as_str(), selected.version.as_str()), ("tofu", ""));
        let error = of("~> 1.8").unwrap_err().to_string();
        assert!(
            error.starts_with("spec.tool asks for tofu ~> 1.8, and the controller has no directory"),
            "{error}"
        );
    }
}
