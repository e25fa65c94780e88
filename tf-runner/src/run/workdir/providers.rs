//! `init` with the providers that earlier runs downloaded, and what of this run's is kept for later ones.
//!
//! The packages are put where the CLI installs them, as copies: it digests them against the lock file and downloads nothing that
//! fits. So its lock file, its choice of versions and its messages stay as they are without a cache; a mirror would change all
//! three. Where an earlier run of the stack tells what the lock file will be, it is there before `init`, which still chooses the
//! versions; where it then lacks digests that the module's own lock file has, `init` begins again with that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::providers::{self, LockedProvider, ProviderCache};
use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::state_lock::unlock;
use crate::run::workdir::failed;
use crate::run::workdir::lock_file;
use crate::run::workdir::predicted_lock::Question;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::bundle::Location;
use sluice_tf_core::workdir::remove_tree;

/// Variables that tell the CLI where providers come from.
const WAYS: [&str; 14] = [
    "TF_CLI_CONFIG_FILE",
    "TERRAFORM_CONFIG",
    "TF_PLUGIN_CACHE_DIR",
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_HOME",
    "XDG_DATA_DIRS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
];

/// The cache of this runner, if it has one.
pub(crate) fn cache(context: &Context) -> Option<ProviderCache> {
    let settings = context.settings.providers.as_ref()?;
    Some(ProviderCache::new(settings.directory.clone(), settings.max_bytes))
}

/// Runs `init` with these words. `is_exact`: before an apply, for which the lock file of the plan is there.
pub(crate) async fn init(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    words: &[String],
    is_exact: bool,
) -> Result<(), RunError> {
    let run = || unlock::retrying(context, workspace, Step::Init, words, &[0]);
    let installed = workspace.module.join(providers::DIRECTORY);
    // What came with the artifact is the module's.
    let usable = cache(context).filter(|_| installed.symlink_metadata().is_err());
    let Some(cache) = usable else {
        return run().await.map(drop);
    };
    let before = lock_file::read(&workspace.module)?;
    let (key, ways) = (bundle.key_bytes()?, ways(bundle, workspace));
    let question = Question {
        key: &key,
        stack: &bundle.stack.uid,
        before: before.as_deref(),
        ways: &ways,
    };
    let memory = &workspace.directory.predicted_lock;
    let predicted = Some(&question)
        .filter(|_| !is_exact)
        .and_then(|question| question.answer(memory))
        .filter(|after| is_fitting(bundle, before.as_deref(), after));
    let predicted = put(&cache, workspace, before.as_deref(), predicted).await?;
    run().await?;
    let mut after = lock_file::read(&workspace.module)?;
    if !is_sound(before.as_deref(), predicted.as_deref(), after.as_deref()) {
        tracing::info!(
            "a version is chosen whose digests only the module's own lock file has: init begins again"
        );
        remove_tree(&installed).map_err(|source| failed("remove providers", source))?;
        lock_file::restore(&workspace.module, before.as_deref())?;
        run().await?;
        after = lock_file::read(&workspace.module)?;
    }
    let after = after.unwrap_or_default();
    let is_news = !after.is_empty() && predicted.as_deref() != Some(&*after);
    if is_news
        && !is_exact
        && let Err(error) = question.note(memory, &after)
    {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the next run cannot tell which providers init chooses"
        );
    }
    *workspace.providers.borrow_mut() = providers::parse(&after);
    Ok(())
}

/// Where providers come from, as bytes to compare.
fn ways(bundle: &Bundle, workspace: &Workspace<'_>) -> Vec<u8> {
    let told: BTreeMap<_, _> = WAYS
        .iter()
        .filter_map(|name| workspace.environment.get_key_value(*name))
        .collect();
    let given = &bundle.run_environment;
    let config = given.cli_config.iter().map(|config| &config.content.0);
    let homes = given.files.iter().filter(|file| file.location == Location::Home);
    let files: Vec<_> = config.chain(homes.map(|file| &file.content.0)).collect();
    // Maps with keys of text and lists of numbers are always JSON.
    serde_json::to_vec(&(&workspace.tool.name, told, files)).unwrap_or_default()
}

/// Whether `init` chooses as if this lock file were not there: it always does when it may move to new versions, and otherwise
/// where the module's own names the same ones.
fn is_fitting(bundle: &Bundle, before: Option<&str>, after: &str) -> bool {
    let own = providers::parse(before.unwrap_or_default());
    let mut chosen = providers::parse(after).into_iter();
    bundle.options.upgrade_on_init || chosen.all(|provider| names(&own, &provider))
}

/// Whether the lock file that `init` made of the predicted one is what it would have made of the module's own: it says nothing of
/// a version whose digests stand in the module's own alone, which have to be kept.
fn is_sound(before: Option<&str>, predicted: Option<&str>, after: Option<&str>) -> bool {
    let Some(predicted) = predicted.map(providers::parse) else {
        return true;
    };
    let own = providers::parse(before.unwrap_or_default());
    let chosen = providers::parse(after.unwrap_or_default());
    chosen
        .iter()
        .all(|provider| names(&predicted, provider) || !names(&own, provider))
}

/// Whether this version of the provider is among them.
fn names(all: &[LockedProvider], provider: &LockedProvider) -> bool {
    let same = |one: &LockedProvider| (&one.source, &one.version) == (&provider.source, &provider.version);
    all.iter().any(same)
}

/// Puts the packages in place: those of the predicted lock file, with it, if all of them are there; otherwise those that the
/// module's own names. Gives the prediction back if it is in use.
async fn put(
    cache: &ProviderCache,
    workspace: &Workspace<'_>,
    before: Option<&str>,
    predicted: Option<String>,
) -> Result<Option<String>, RunError> {
    let (cache, module) = (cache.clone(), workspace.module.clone());
    let own = providers::parse(before.unwrap_or_default());
    let work = tokio::task::spawn_blocking(move || {
        let all = predicted.as_deref().map(providers::parse).unwrap_or_default();
        if !all.is_empty() && all.iter().all(|provider| cache.has(provider)) {
            if provide(&cache, &module, &all)? == all.len() {
                return Ok((predicted, all.len()));
            }
            remove_tree(&module.join(providers::DIRECTORY))?;
        }
        provide(&cache, &module, &own).map(|count| (None, count))
    });
    let put = work.await.map_err(std::io::Error::other).and_then(|put| put);
    let (predicted, count) = put.map_err(|source| failed("copy cached providers", source))?;
    if count > 0 {
        tracing::info!(count, "providers come from the cache");
    }
    if let Some(text) = &predicted {
        lock_file::write(&workspace.module, text)?;
    }
    Ok(predicted)
}

/// Puts what is cached of these providers in place, and gives of how many that is.
fn provide(cache: &ProviderCache, module: &Path, all: &[LockedProvider]) -> std::io::Result<usize> {
    let mut count = 0;
    for provider in all {
        let Some(place) = provider.place() else { continue };
        if cache.provide(provider, &module.join(place))? {
            count += 1;
        }
    }
    Ok(count)
}

/// The packages that `init` installed for this run, with the place of each. A link leads to a mirror or a cache of the user.
pub(crate) fn installed(workspace: &Workspace<'_>) -> Vec<(LockedProvider, PathBuf)> {
    let chosen = workspace.providers.borrow();
    let placed = chosen.iter().filter_map(|provider| {
        let place = workspace.module.join(provider.place()?);
        let is_own = place.symlink_metadata().is_ok_and(|found| found.is_dir());
        is_own.then(|| (provider.clone(), place))
    });
    placed.collect()
}

/// Keeps them for later runs. No run fails of it. Blocking.
pub(crate) fn keep(cache: &ProviderCache, installed: &[(LockedProvider, PathBuf)]) {
    for (provider, place) in installed {
        if let Err(error) = cache.keep(provider, place) {
            tracing::warn!(%error, source = provider.source, "a provider is not kept for later runs");
        }
    }
}
