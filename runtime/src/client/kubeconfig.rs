//! Which kubeconfig a client uses, and which context of it.

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::{ClientError, Settings};

/// The longest kubeconfig that is read, in bytes: a hundred times one of a thousand clusters with their certificates.
pub(super) const LIMIT: u64 = 64 << 20;

/// Loads the configuration that the settings name.
///
/// # Errors
/// It is missing, too long or invalid.
pub(super) async fn load(settings: &Settings) -> Result<Config, ClientError> {
    let options = KubeConfigOptions {
        context: settings.context.clone(),
        ..KubeConfigOptions::default()
    };
    let path = settings.kubeconfig.clone().unwrap_or_default();
    let failed = |source| unusable(&path, source);
    let file = match (&settings.kubeconfig_text, &settings.kubeconfig) {
        (Some(text), _) => Kubeconfig::from_yaml(text).map_err(failed)?,
        (None, Some(path)) => {
            check_length(path)?;
            Kubeconfig::read_from(path).map_err(failed)?
        }
        (None, None) => return load_default(&options).await,
    };
    Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(failed)
}

/// Loads the kubeconfig that `kubectl` uses, or the configuration of the pod. Only a kubeconfig has contexts.
async fn load_default(options: &KubeConfigOptions) -> Result<Config, ClientError> {
    let Some(path) = default_kubeconfig() else {
        if let Some(context) = &options.context {
            let absent = KubeconfigError::LoadContext(context.clone());
            return Err(unusable(Path::new("~/.kube/config"), absent));
        }
        let found = Config::infer().await;
        return found.map_err(|error| ClientError::NotConfigured(Box::new(error)));
    };
    for file in std::env::split_paths(&path) {
        check_length(&file)?;
    }
    let error = match Config::from_kubeconfig(options).await {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    // In a pod, the variable may name a file that is not there.
    let of_pod = options.context.is_none().then(Config::incluster);
    match of_pod {
        Some(Ok(config)) => Ok(config),
        _ => Err(unusable(&path, error)),
    }
}

/// Returns the kubeconfig of `kubectl`, if there is one: the files in `KUBECONFIG`, or `~/.kube/config`.
fn default_kubeconfig() -> Option<PathBuf> {
    if let Some(files) = std::env::var_os("KUBECONFIG").filter(|files| !files.is_empty()) {
        return Some(files.into());
    }
    let path = std::env::home_dir()?.join(".kube/config");
    path.exists().then_some(path)
}

fn unusable(path: &Path, source: KubeconfigError) -> ClientError {
    ClientError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    }
}

/// Refuses a file that would fill the memory. One that cannot be read is reported when it is read.
fn check_length(path: &Path) -> Result<(), ClientError> {
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    if bytes <= LIMIT {
        return Ok(());
    }
    Err(ClientError::TooLarge {
        path: path.to_owned(),
        bytes,
    })
}
