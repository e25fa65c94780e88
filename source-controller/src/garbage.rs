//! Removes unused data periodically: artifacts of objects deleted while the controller was not running, and mirrors
//! that no object uses.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use sluice_api::source::GitRepository;
use sluice_runtime::shutdown::Token;

use crate::git::Mirrors;
use crate::storage::{LocalDirectory, ObjectDirectory, Storage as _};

/// Interval of the collection. A mirror removed too early costs one fetch.
const INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The garbage collector.
pub(crate) struct GarbageCollector {
    /// Client for the Kubernetes API.
    pub(crate) client: Client,
    /// Artifact storage.
    pub(crate) storage: LocalDirectory,
    /// Mirrors of remotes.
    pub(crate) mirrors: Arc<Mirrors>,
}

impl GarbageCollector {
    /// Collects artifacts at once, and everything daily, until `stop`.
    pub(crate) async fn run(self, stop: Token) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.remove_orphans() => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            let mirrors = Arc::clone(&self.mirrors);
            let result = tokio::task::spawn_blocking(move || mirrors.sweep()).await;
            report("mirrors", result.map(Ok::<_, std::io::Error>));
        }
    }

    /// Removes directories of objects that do not exist. Looks up each object regardless of its labels, since it may
    /// belong to another shard. Keeps directories whose lookup fails.
    async fn remove_orphans(&self) {
        let storage = self.storage.clone();
        let listed = tokio::task::spawn_blocking(move || storage.objects()).await;
        let directories = match listed {
            Ok(Ok(directories)) => directories,
            failed => return report("orphaned artifacts", failed.map(|listed| listed.map(|_| 0))),
        };
        for directory in directories {
            match self.exists(&directory).await {
                Ok(true) => {}
                Ok(false) => {
                    let storage = self.storage.clone();
                    let name = directory.to_string();
                    let removed = tokio::task::spawn_blocking(move || storage.remove(&directory)).await;
                    tracing::info!(directory = name, "removing artifacts of a deleted object");
                    report(
                        "orphaned artifacts",
                        removed.map(|removed| removed.map(usize::from)),
                    );
                }
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    %directory,
                    "artifacts retained: cannot look up their object"
                ),
            }
        }
    }

    async fn exists(&self, directory: &ObjectDirectory) -> kube::Result<bool> {
        let api = Api::<GitRepository>::namespaced(self.client.clone(), directory.namespace());
        Ok(api.get_metadata_opt(directory.name()).await?.is_some())
    }
}

fn report<E: std::error::Error>(what: &str, result: Result<Result<usize, E>, tokio::task::JoinError>) {
    match result {
        Ok(Ok(removed)) => tracing::info!(removed, what, "garbage collected"),
        Ok(Err(error)) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error = error.to_string(), what, "garbage collection failed");
        }
        Err(error) => tracing::error!(
            error = &error as &dyn std::error::Error,
            what,
            "garbage collection failed"
        ),
    }
}
