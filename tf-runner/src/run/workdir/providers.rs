//! `init` with cached providers, and the packages of this run that are stored in the cache.
//!
//! Packages are copied to where the CLI installs them. It verifies them against the dependency lock file, and downloads only the
//! others. Its lock file, choice of versions and messages are the same as without a cache; a mirror would change all three. If an
//! earlier run predicts the lock file, it is written before `init`, which still chooses the versions. If the result then lacks
//! digests of the module's own lock file, `init` is repeated with that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sluice_tf_core::bundle::{Bundle, Location};
use sluice_tf_core::workdir::remove_tree;

use crate::provider_cache::{self, LockedProvider, PackageCopy, ProviderCache};
use crate::run::cli::Cli;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::state_lock::retry_after_unlock;
use crate::run::workdir::dependency_lock::{self, LockPrediction};
use crate::run::workdir::directory_error;

/// Variables that configure the sources of providers.
const SOURCE_VARIABLES: [&str; 14] = [
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

/// The provider cache, if it is configured.
pub(crate) fn cache(context: &Context) -> Option<ProviderCache> {
    let settings = context.settings.providers.as_ref()?;
    Some(ProviderCache::new(settings.directory.clone(), settings.max_bytes))
}

/// Runs `init`. `is_exact`: before an apply, with the restored lock file of the plan.
pub(crate) async fn init(session: &RunSession<'_>, args: &[String], is_exact: bool) -> Result<(), RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    let run = || retry_after_unlock(session, Step::Init, args, &[0]);
    let installed = cli.module.join(provider_cache::INSTALL_DIRECTORY);
    // The cache is not used for a module with committed packages.
    let usable = cache(context).filter(|_| installed.symlink_metadata().is_err());
    let Some(cache) = usable else {
        return run().await.map(drop);
    };
    let before = dependency_lock::read(&cli.module)?;
    let (key, sources) = (bundle.key_bytes()?, provider_sources(session));
    let prediction = LockPrediction {
        key: &key,
        stack: &bundle.stack.uid,
        before: before.as_deref(),
        provider_sources: &sources,
    };
    let prediction_file = &cli.directory.predicted_lock;
    let predicted = Some(&prediction)
        .filter(|_| !is_exact)
        .and_then(|prediction| prediction.read(prediction_file))
        .filter(|after| is_applicable(bundle, before.as_deref(), after));
    let (predicted, copies) = copy_from_cache(&cache, cli, before.as_deref(), predicted).await?;
    let result = run().await;
    let has_refused = discard_refused(&cache, copies, result.is_err()).await;
    match result {
        // Terraform downloads such a provider by itself, OpenTofu fails.
        Err(error) if has_refused => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "init is repeated without the cached providers"
            );
            remove_tree(&installed).map_err(|source| directory_error("remove providers", source))?;
            run().await?;
        }
        result => drop(result?),
    }
    let mut after = dependency_lock::read(&cli.module)?;
    if !keeps_own_digests(before.as_deref(), predicted.as_deref(), after.as_deref()) {
        tracing::info!("the module's lock file has digests of the selected version: init is repeated");
        remove_tree(&installed).map_err(|source| directory_error("remove providers", source))?;
        dependency_lock::restore(&cli.module, before.as_deref())?;
        run().await?;
        after = dependency_lock::read(&cli.module)?;
    }
    let after = after.unwrap_or_default();
    let has_changed = !after.is_empty() && predicted.as_deref() != Some(&*after);
    if has_changed
        && !is_exact
        && let Err(error) = prediction.store(prediction_file, &after)
    {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the lock file cannot be stored as a prediction for the next run"
        );
    }
    *cli.providers.borrow_mut() = provider_cache::parse(&after);
    Ok(())
}

/// The configured sources of providers, as bytes to compare.
fn provider_sources(session: &RunSession<'_>) -> Vec<u8> {
    let RunSession { bundle, cli, .. } = session;
    let variables: BTreeMap<_, _> = SOURCE_VARIABLES
        .iter()
        .filter_map(|name| cli.environment.get_key_value(*name))
        .collect();
    let environment = &bundle.run_environment;
    let config = environment.cli_config.iter().map(|config| &config.content.0);
    let homes = environment
        .files
        .iter()
        .filter(|file| file.location == Location::Home);
    let files: Vec<_> = config.chain(homes.map(|file| &file.content.0)).collect();
    // Maps with string keys and lists of numbers always serialise.
    serde_json::to_vec(&(&cli.tool.name, variables, files)).unwrap_or_default()
}

/// Whether `init` chooses the same versions with this lock file as without: always if it upgrades, otherwise if the module's
/// own lock file names the same versions.
fn is_applicable(bundle: &Bundle, before: Option<&str>, after: &str) -> bool {
    let own = provider_cache::parse(before.unwrap_or_default());
    let mut chosen = provider_cache::parse(after).into_iter();
    bundle.options.upgrade_on_init || chosen.all(|provider| contains(&own, &provider))
}

/// Whether `init` with the predicted lock file gave the same result as with the module's own: false if a chosen version has
/// digests in the module's own only, which would be lost.
fn keeps_own_digests(before: Option<&str>, predicted: Option<&str>, after: Option<&str>) -> bool {
    let Some(predicted) = predicted.map(provider_cache::parse) else {
        return true;
    };
    let own = provider_cache::parse(before.unwrap_or_default());
    let chosen = provider_cache::parse(after.unwrap_or_default());
    chosen
        .iter()
        .all(|provider| contains(&predicted, provider) || !contains(&own, provider))
}

/// Whether the list contains this version of the provider.
fn contains(all: &[LockedProvider], provider: &LockedProvider) -> bool {
    let same = |one: &LockedProvider| (&one.source, &one.version) == (&provider.source, &provider.version);
    all.iter().any(same)
}

/// Copies packages from the cache: those of the predicted lock file if all of them are cached, and writes that file; otherwise
/// those of the module's own. Returns the prediction if it is used, and the copies.
async fn copy_from_cache(
    cache: &ProviderCache,
    cli: &Cli<'_>,
    before: Option<&str>,
    predicted: Option<String>,
) -> Result<(Option<String>, Vec<PackageCopy>), RunError> {
    let (cache, module) = (cache.clone(), cli.module.clone());
    let own = provider_cache::parse(before.unwrap_or_default());
    let work = tokio::task::spawn_blocking(move || {
        let all = predicted
            .as_deref()
            .map(provider_cache::parse)
            .unwrap_or_default();
        if !all.is_empty() && all.iter().all(|provider| cache.contains(provider)) {
            let copies = copy_all(&cache, &module, &all)?;
            if copies.len() == all.len() {
                return Ok((predicted, copies));
            }
            remove_tree(&module.join(provider_cache::INSTALL_DIRECTORY))?;
        }
        copy_all(&cache, &module, &own).map(|copies| (None, copies))
    });
    let outcome = work
        .await
        .map_err(std::io::Error::other)
        .and_then(|outcome| outcome);
    let (predicted, copies) = outcome.map_err(|source| directory_error("copy cached providers", source))?;
    if !copies.is_empty() {
        tracing::info!(count = copies.len(), "copying providers from the cache");
    }
    if let Some(text) = &predicted {
        dependency_lock::write(&cli.module, text)?;
    }
    Ok((predicted, copies))
}

/// Copies the cached packages of these providers.
fn copy_all(
    cache: &ProviderCache,
    module: &Path,
    all: &[LockedProvider],
) -> std::io::Result<Vec<PackageCopy>> {
    let mut copies = Vec::new();
    for provider in all {
        let Some(path) = provider.install_path() else {
            continue;
        };
        copies.extend(cache.copy_to(provider, &module.join(path))?);
    }
    Ok(copies)
}

/// Removes the packages from the cache whose copies `init` has refused, and returns whether there are some.
async fn discard_refused(cache: &ProviderCache, copies: Vec<PackageCopy>, has_failed: bool) -> bool {
    let cache = cache.clone();
    let work = tokio::task::spawn_blocking(move || {
        let refused = copies
            .iter()
            .filter(|copy| cache.discard_if_refused(copy, has_failed));
        refused.count() > 0
    });
    // Without an answer, the error of `init` counts.
    work.await.unwrap_or_default()
}

/// The packages that `init` installed for this run, with their paths. Links lead to a mirror or a cache of the user and are
/// omitted.
pub(crate) fn installed(cli: &Cli<'_>) -> Vec<(LockedProvider, PathBuf)> {
    let chosen = cli.providers.borrow();
    let paths = chosen.iter().filter_map(|provider| {
        let path = cli.module.join(provider.install_path()?);
        let is_own = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        is_own.then(|| (provider.clone(), path))
    });
    paths.collect()
}

/// Stores the packages in the cache. Blocking; a failure is only logged.
pub(crate) fn store(cache: &ProviderCache, installed: &[(LockedProvider, PathBuf)]) {
    for (provider, path) in installed {
        if let Err(error) = cache.store(provider, path) {
            tracing::warn!(%error, source = provider.source, "a provider cannot be stored in the cache");
        }
    }
}
