//! The version of the CLI: recorded for every run, and verified if `spec.tool` selects one.

use std::path::PathBuf;

use sluice_api::run::{Action, Tool};
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::tool;
use sluice_tf_core::cli::version_cache::VersionCache;

use crate::run::cli::Cli;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::workdir;
use crate::run::workdir::directory_error;

/// The directory of known versions below the work root. No stack has this name: theirs contain `_`.
const KNOWN_VERSIONS_DIRECTORY: &str = ".versions";
const LIMIT: u64 = 1024 * 1024;

/// Whether the version has to be known before `init`: if one is selected, no other may run. Otherwise a plan or an apply
/// determines it in parallel with `init`, which is faster.
pub(crate) const fn must_precede_init(bundle: &Bundle, action: Action) -> bool {
    bundle.selected_tool.is_some() || matches!(action, Action::Unlock | Action::BreakTheGlass)
}

/// Records the version of the CLI. A version that is not known yet is queried in the module directory, because a version
/// manager may select the program by the files in it.
pub(crate) async fn record(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    let root = context.settings.work_root.as_ref();
    let known = root.map(|root| VersionCache::new(root.join(KNOWN_VERSIONS_DIRECTORY)));
    let before = known.as_ref().and_then(|known| known.get(&cli.tool.path));
    let is_known = before.is_some();
    let version = match before {
        Some(version) => version,
        None => query(cli).await?,
    };
    if let Some(selected) = &bundle.selected_tool {
        tool::verify_version(&cli.tool, &version, selected)?;
    }
    let tool = Tool {
        name: cli.tool.name.clone(),
        version: version.clone(),
    };
    cli.status.buffer(|status| status.tool = Some(tool));
    if let Some(known) = known.filter(|_| !is_known) {
        remember(known, cli.tool.path.clone(), version);
    }
    Ok(())
}

async fn query(cli: &Cli<'_>) -> Result<String, RunError> {
    let answer = cli
        .capture(Step::Version, &["version".to_owned(), "-json".to_owned()])
        .await?;
    let answer = workdir::read_limited(&answer, LIMIT)
        .map_err(|source| directory_error("read the version", source))?;
    Ok(tool::parse_version(&cli.tool, &answer)?)
}

/// Stores the version for later runs, in the background.
fn remember(known: VersionCache, program: PathBuf, version: String) {
    drop(tokio::task::spawn_blocking(move || {
        if let Err(error) = known.insert(&program, &version) {
            tracing::debug!(%error, "the version of the CLI cannot be stored");
        }
    }));
}
