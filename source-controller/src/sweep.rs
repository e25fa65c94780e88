//! What nobody asks for any more, removed now and then: artifacts of objects that went while the controller was away, and
//! mirrors that no object named for a while.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use sluice_api::source::GitRepository;
use sluice_runtime::shutdown::Token;

use crate::git::Mirrors;
use crate::storage::{LocalDirectory, ObjectDirectory, Storage as _};

/// Time between two sweeps. Dropping a mirror that is asked for later costs one fetch.
const INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// What is swept, and who is asked.
pub(crate) struct Sweep {
    /// Knows which objects there are.
    pub(crate) client: Client,
    /// Artifacts.
    pub(crate) storage: LocalDirectory,
    /// Mirrors.
    pub(crate) mirrors: Arc<Mirrors>,
}

impl Sweep {
    /// Sweeps artifacts at once and everything each day, until `stop`.
    pub(crate) async fn run(self, stop: Token) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.orphans() => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            let mirrors = Arc::clone(&self.mirrors);
            let swept = tokio::task::spawn_blocking(move || mirrors.sweep()).await;
            report("mirrors", swept.map(Ok::<_, std::io::Error>));
        }
    }

    /// Removes directories whose object does not exist. The API server is asked about each, whatever labels it has: an
    /// object of another shard is not gone. What cannot be asked about stays.
    async fn orphans(&self) {
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
                    tracing::info!(directory = name, "artifacts without an object");
                    report(
                        "orphaned artifacts",
                        removed.map(|removed| removed.map(usize::from)),
                    );
                }
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    %directory,
                    "artifacts stay: it cannot be found out whether their object is there"
                ),
            }
        }
    }

    async fn exists(&self, directory: &ObjectDirectory) -> kube::Result<bool> {
        let api = Api::<GitRepository>::namespaced(self.client.clone(), directory.namespace());
        Ok(api.get_metadata_opt(directory.name()).await?.is_some())
    }
}

fn report<E: std::error::Error>(what: &str, swept: Result<Result<usize, E>, tokio::task::JoinError>) {
    match swept {
        Ok(Ok(removed)) => tracing::info!(removed, what, "swept"),
        Ok(Err(error)) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error = error.to_string(), what, "cannot be swept");
        }
        Err(error) => tracing::error!(error = &error as &dyn std::error::Error, what, "cannot be swept"),
    }
}
