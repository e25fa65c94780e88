//! Removes unused data periodically: artifacts of objects deleted while the controller was not running, and mirrors
//! that no object uses.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::{Api, Client, ResourceExt as _};
use sluice_api::source::GitRepository;
use sluice_runtime::paging;
use sluice_runtime::shutdown::Token;

use crate::git::Mirrors;
use crate::storage::{ObjectDirectory, Storage};

/// Interval of the collection. A mirror removed too early costs one fetch.
const INTERVAL: Duration = Duration::from_hours(24);

/// The garbage collector.
pub(crate) struct GarbageCollector {
    /// Client for the Kubernetes API.
    pub(crate) client: Client,
    /// Artifact storage.
    pub(crate) storage: Arc<dyn Storage>,
    /// Mirrors of remotes.
    pub(crate) mirrors: Arc<Mirrors>,
}

impl GarbageCollector {
    /// Collects artifacts at once, and everything daily, until `stop`. With a bucket, its listing also finds what an earlier leader left.
    pub(crate) async fn run(self, stop: Token) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.remove_orphans() => {}
            }
            let mirrors = Arc::clone(&self.mirrors);
            let expired = move || mirrors.remove_expired_recovery_points(Timestamp::now());
            let removed = tokio::task::spawn_blocking(expired).await;
            if !matches!(removed, Ok(Ok(0))) {
                report("recovery points of mirrors", removed);
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

    /// Removes directories of objects that do not exist, regardless of their labels: they may belong to another shard. Keeps directories
    /// whose objects cannot be listed or looked up.
    async fn remove_orphans(&self) {
        let storage = Arc::clone(&self.storage);
        let listed = tokio::task::spawn_blocking(move || storage.directories()).await;
        let directories = match listed {
            Ok(Ok(directories)) => directories,
            failed => return report("orphaned artifacts", failed.map(|listed| listed.map(|_| 0))),
        };
        for directory in unlisted(&self.client, directories).await {
            // The list may be older than the object.
            match self.exists(&directory).await {
                Ok(true) => {}
                Ok(false) => {
                    let storage = Arc::clone(&self.storage);
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

/// Returns the directories of objects that are in no list of their namespace: a list costs less than the lookup of each object. Omits those
/// of namespaces that cannot be listed.
async fn unlisted(client: &Client, directories: Vec<ObjectDirectory>) -> Vec<ObjectDirectory> {
    let mut by_namespace: BTreeMap<String, Vec<ObjectDirectory>> = BTreeMap::new();
    for directory in directories {
        let namespace = directory.namespace().to_owned();
        by_namespace.entry(namespace).or_default().push(directory);
    }
    let mut unlisted = Vec::new();
    for (namespace, directories) in by_namespace {
        match names(client, &namespace).await {
            Ok(names) => {
                let others = directories.into_iter();
                unlisted.extend(others.filter(|directory| !names.contains(directory.name())));
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                namespace,
                "artifacts retained: cannot list their objects"
            ),
        }
    }
    unlisted
}

/// Returns the names of the objects of a namespace.
async fn names(client: &Client, namespace: &str) -> kube::Result<HashSet<String>> {
    // An object that does not decode exists all the same.
    let api = Api::<DeserializeGuard<GitRepository>>::namespaced(client.clone(), namespace);
    let mut names = HashSet::new();
    paging::for_each(&api, |object| {
        names.insert(object.name_any());
    })
    .await?;
    Ok(names)
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::Full;
    use kube::client::Body;
    use serde_json::json;
    use sluice_runtime::sync::lock;
    use tower::BoxError;

    use super::*;

    /// Returns a client of an API with the objects `a` and `b` in the namespace `team`, which lists no objects of `private`; and the
    /// paths of its requests.
    fn api() -> (Client, Arc<Mutex<Vec<String>>>) {
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let namespace = path.split('/').nth(5).unwrap_or_default();
            let items = match namespace {
                "team" => json!([{ "metadata": { "name": "a" } }, { "metadata": { "name": "b" } }]),
                _ => json!([]),
            };
            let (code, body) = if namespace == "private" {
                let status = json!({ "kind": "Status", "status": "Failure", "code": 403, "message": "no", "reason": "Forbidden" });
                (StatusCode::FORBIDDEN, status)
            } else {
                let list = json!({ "kind": "GitRepositoryList", "apiVersion": "source.toolkit.fluxcd.io/v1",
                    "metadata": { "resourceVersion": "7" }, "items": items });
                (StatusCode::OK, list)
            };
            lock(&log).push(path);
            let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
            *response.status_mut() = code;
            async move { Ok::<_, BoxError>(response) }
        });
        (Client::new(service, "default"), requests)
    }

    #[tokio::test]
    async fn the_objects_of_directories_are_listed_by_namespace() {
        let (client, requests) = api();
        let directories = ["team/a", "gone/x", "team/c", "team/b", "private/y"].map(|name| {
            let (namespace, name) = name.split_once('/').unwrap();
            ObjectDirectory::git_repository(namespace, name).unwrap()
        });
        let unlisted = unlisted(&client, directories.into()).await;
        let unlisted: Vec<_> = unlisted
            .iter()
            .map(|directory| format!("{}/{}", directory.namespace(), directory.name()))
            .collect();
        assert_eq!(unlisted, ["gone/x", "team/c"]);
        let path = |namespace: &str| {
            format!("/apis/source.toolkit.fluxcd.io/v1/namespaces/{namespace}/gitrepositories")
        };
        assert_eq!(*lock(&requests), ["gone", "private", "team"].map(path));
    }
}
