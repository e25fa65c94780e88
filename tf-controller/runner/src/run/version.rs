//! Which version the CLI says that it is: on record for every run, and proof where `spec.tool` chose it.

use sluice_api::run::{Action, Tool};

use super::error::{RunError, Step};
use super::within;
use super::workdir::failed;
use super::workspace::Workspace;
use crate::bundle::Bundle;
use crate::cli::tool;

/// Largest answer that is read.
const LIMIT: u64 = 1024 * 1024;

/// Whether the version has to be known before anything else is run: where it was chosen, another one must not run at all. A
/// plan or an apply by the program that is there asks beside `init`, which spares a start of the CLI.
pub(super) const fn comes_first(bundle: &Bundle, action: Action) -> bool {
    bundle.selected_tool.is_some() || matches!(action, Action::Unlock | Action::BreakTheGlass)
}

/// Asks the CLI for its version, in the module's directory: the program may be one that chooses by what it finds there.
pub(super) async fn tell(bundle: &Bundle, workspace: &Workspace<'_>) -> Result<(), RunError> {
    let answer = workspace
        .capture(Step::Version, &["version".to_owned(), "-json".to_owned()])
        .await?;
    let answer = within::read(&answer, LIMIT).map_err(|source| failed("read the version", source))?;
    let version = tool::version(&workspace.tool, &answer)?;
    if let Some(wanted) = &bundle.selected_tool {
        tool::prove(&workspace.tool, &version, wanted)?;
    }
    let tool = Tool {
        name: workspace.tool.name.clone(),
        version,
    };
    workspace.reporter.say(|status| status.tool = Some(tool));
    Ok(())
}
