//! Which version the CLI says that it is: on record for every run, and proof where `spec.tool` chose it.

use std::path::PathBuf;

use sluice_api::run::{Action, Tool};

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::workdir;
use crate::run::workdir::failed;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::tool;
use sluice_tf_core::cli::version_cache::VersionCache;

/// Below the directory of the working directories. No stack's name begins so and has no `_`.
const KNOWN: &str = ".versions";
/// Largest answer that is read.
const LIMIT: u64 = 1024 * 1024;

/// Whether the version has to be known before anything else is run: where it was chosen, another one must not run at all. A
/// plan or an apply by the program that is there asks beside `init`, which spares a start of the CLI.
pub(crate) const fn comes_first(bundle: &Bundle, action: Action) -> bool {
    bundle.selected_tool.is_some() || matches!(action, Action::Unlock | Action::BreakTheGlass)
}

/// Says which version the CLI is. One that may choose its version by what it finds is asked, in the module's directory.
pub(crate) async fn tell(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
) -> Result<(), RunError> {
    let root = context.settings.work_root.as_ref();
    let known = root.map(|root| VersionCache::new(root.join(KNOWN)));
    let before = known.as_ref().and_then(|known| known.get(&workspace.tool.path));
    let is_known = before.is_some();
    let version = match before {
        Some(version) => version,
        None => asked(workspace).await?,
    };
    if let Some(wanted) = &bundle.selected_tool {
        tool::verify_version(&workspace.tool, &version, wanted)?;
    }
    let tool = Tool {
        name: workspace.tool.name.clone(),
        version: version.clone(),
    };
    workspace.reporter.note(|status| status.tool = Some(tool));
    if let Some(known) = known.filter(|_| !is_known) {
        note(known, workspace.tool.path.clone(), version);
    }
    Ok(())
}

async fn asked(workspace: &Workspace<'_>) -> Result<String, RunError> {
    let answer = workspace
        .capture(Step::Version, &["version".to_owned(), "-json".to_owned()])
        .await?;
    let answer =
        workdir::read_limited(&answer, LIMIT).map_err(|source| failed("read the version", source))?;
    Ok(tool::parse_version(&workspace.tool, &answer)?)
}

/// Notes the version for later runs, beside this one.
fn note(known: VersionCache, program: PathBuf, version: String) {
    drop(tokio::task::spawn_blocking(move || {
        if let Err(error) = known.insert(&program, &version) {
            tracing::debug!(%error, "the next run asks for the version again");
        }
    }));
}
