//! The version of the CLI: queried once for each program, then known from a file below the work root.

use std::path::PathBuf;

use sluice_api::run::Tool;
use sluice_tf_core::cli::tool;
use sluice_tf_core::cli::version_cache::VersionCache;
use sluice_tf_core::workdir::read_limited;

use crate::run::cli::{Cli, arguments};
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::workdir::directory_error;

/// The directory of known versions of the CLI below the work root. No stack has this name: theirs contain `_`.
const KNOWN_VERSIONS_DIRECTORY: &str = ".versions";
/// Size limit of the output of `version`.
const VERSION_LIMIT: u64 = 1024 * 1024;

/// Records the version of the CLI, and verifies that of an installed one.
pub(crate) async fn record(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession { cli, .. } = session;
    let version = find(session).await?;
    tool::verify_version(&cli.tool, &version)?;
    let tool = Tool {
        name: cli.tool.name.clone(),
        version,
    };
    cli.status.buffer(|status| status.tool = Some(tool));
    Ok(())
}

/// Returns the version of the CLI. One that is not known yet is queried in the module directory, because a version manager may select
/// the program by the files in it.
pub(crate) async fn find(session: &RunSession<'_>) -> Result<String, RunError> {
    let RunSession { context, cli, .. } = session;
    let root = context.settings.work_root.as_ref();
    let known = root.map(|root| VersionCache::new(root.join(KNOWN_VERSIONS_DIRECTORY)));
    if let Some(version) = known.as_ref().and_then(|known| known.get(&cli.tool.path)) {
        return Ok(version);
    }
    let version = query(cli).await?;
    if let Some(known) = known {
        store(known, cli.tool.path.clone(), version.clone());
    }
    Ok(version)
}

async fn query(cli: &Cli<'_>) -> Result<String, RunError> {
    let args = arguments(&["version", "-json"]);
    let answer = cli.capture(Step::Version, &args).await?;
    let answer =
        read_limited(&answer, VERSION_LIMIT).map_err(|source| directory_error("read the version", source))?;
    Ok(tool::parse_version(&cli.tool, &answer)?)
}

/// Stores the version for later runs, in the background.
fn store(known: VersionCache, program: PathBuf, version: String) {
    drop(tokio::task::spawn_blocking(move || {
        if let Err(error) = known.insert(&program, &version) {
            tracing::debug!(%error, "the version of the CLI cannot be stored");
        }
    }));
}
