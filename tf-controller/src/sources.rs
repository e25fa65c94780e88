//! Buckets and OCI repositories. Only the artifact in their status is read, so they are dynamic objects of whichever
//! version is served. If their definition is not installed, nothing fails until a stack names one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt};
use sluice_api::reference::ObjectName;
use sluice_api::source::{Artifact, GROUP};
use sluice_api::terraform::{SourceKind, Terraform};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use sluice_runtime::watch::ObjectCache;

/// Versions of the group, the newest first.
const VERSIONS: [&str; 2] = ["v1", "v1beta2"];
/// Time between checks for a stack that names such a source, and for its definition.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The result of reading a source.
pub(crate) enum SourceLookup {
    /// The artifact of its status, if it has one.
    Found(Option<Artifact>),
    /// No such object.
    NotFound,
    /// The API serves no such kind.
    NotServed,
}

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// The API rejected the request.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The artifact has another form.
    #[error("cannot parse its status.artifact: {0}")]
    Artifact(serde_json::Error),
}

/// Returns the plural of a kind for URLs.
const fn plural(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::GitRepository => "gitrepositories",
        SourceKind::Bucket => "buckets",
        SourceKind::OCIRepository => "ocirepositories",
    }
}

fn resource(kind: SourceKind, version: &str) -> ApiResource {
    let kinds = GroupVersionKind::gvk(GROUP, version, kind.as_str());
    ApiResource::from_gvk_with_plural(&kinds, plural(kind))
}

/// Reads a source.
pub(crate) async fn find(
    client: &Client,
    kind: SourceKind,
    target: &ObjectName,
) -> Result<SourceLookup, SourceError> {
    for version in VERSIONS {
        let resource = resource(kind, version);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &target.namespace, &resource);
        match api.get(&target.name).await {
            Ok(object) => return artifact(&object).map(SourceLookup::Found),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // Only a 404 for an object names it; the other is for the path.
                if status
                    .details
                    .as_ref()
                    .is_some_and(|details| details.name == target.name)
                {
                    return Ok(SourceLookup::NotFound);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(SourceLookup::NotServed)
}

fn artifact(object: &DynamicObject) -> Result<Option<Artifact>, SourceError> {
    let artifact = object
        .data
        .pointer("/status/artifact")
        .filter(|found| !found.is_null());
    let parsed = artifact.map(|found| serde_json::from_value(found.clone()));
    parsed.transpose().map_err(SourceError::Artifact)
}

/// Returns the stacks that a change of a `Bucket` or `OCIRepository` concerns.
pub(crate) fn changes_of_other_kinds(
    client: &Client,
    namespace: Option<&String>,
    stacks: &ObjectCache<Terraform>,
) -> impl Stream<Item = ObjectKey> + Send + 'static {
    let watch = |kind| changes_of_kind(client.clone(), namespace.cloned(), kind, stacks.clone());
    stream::select_all([
        watch(SourceKind::Bucket).boxed(),
        watch(SourceKind::OCIRepository).boxed(),
    ])
}

/// Returns the stacks that a change of a source of this kind concerns. The watch starts once a stack names one and
/// the kind is served; its first list triggers outdated stacks.
fn changes_of_kind(
    client: Client,
    namespace: Option<String>,
    kind: SourceKind,
    stacks: ObjectCache<Terraform>,
) -> impl Stream<Item = ObjectKey> + Send + 'static {
    let (consumers, digests) = (stacks.clone(), Arc::new(ArtifactDigests::default()));
    stream::once(async move { wait_until_served(&client, namespace.as_deref(), kind, &stacks).await })
        .flat_map(move |api| {
            let (consumers, digests) = (consumers.clone(), Arc::clone(&digests));
            watcher(api, watcher::Config::default())
                .default_backoff()
                .touched_objects()
                .flat_map(move |seen| {
                    let called = |source| outdated_consumers(&consumers, &digests, kind, &source);
                    stream::iter(seen.map_or_else(log_watch_error, called))
                })
        })
}

#[expect(clippy::needless_pass_by_value, reason = "as the stream gives it")]
fn log_watch_error(error: watcher::Error) -> Vec<ObjectKey> {
    tracing::debug!(
        error = &error as &dyn std::error::Error,
        "a watch of sources failed and restarts"
    );
    Vec::new()
}

/// Waits until the kind is referenced and served.
async fn wait_until_served(
    client: &Client,
    namespace: Option<&str>,
    kind: SourceKind,
    stacks: &ObjectCache<Terraform>,
) -> Api<DynamicObject> {
    loop {
        let is_referenced = !stacks.keys(|stack| stack.spec.source_ref.kind == kind).is_empty();
        for version in VERSIONS.iter().filter(|_| is_referenced) {
            let resource = resource(kind, version);
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            match api.list(&ListParams::default().limit(1)).await {
                Ok(_) => return api,
                Err(error) => {
                    tracing::debug!(kind = kind.as_str(), version, %error, "sources cannot be watched yet");
                }
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// The last observed artifact digest of each source of one kind.
#[derive(Default)]
pub(crate) struct ArtifactDigests(Mutex<HashMap<ObjectKey, String>>);

impl ArtifactDigests {
    /// Stores the digest; returns whether it is new or has changed.
    fn update(&self, source: &ObjectKey, digest: &str) -> bool {
        let mut all = lock(&self.0);
        let before = all.insert(source.clone(), digest.to_owned());
        before.is_none_or(|before| before != digest)
    }

    /// Returns the stacks that read this source and have not tried its artifact: another revision, or other bytes of the same one.
    /// The first observed digest triggers all of them, since it may have been published after a stack read it.
    pub(crate) fn outdated_consumers(
        &self,
        stacks: &ObjectCache<Terraform>,
        kind: SourceKind,
        source: &ObjectKey,
        artifact: &Artifact,
    ) -> Vec<ObjectKey> {
        let has_changed = self.update(source, &artifact.digest);
        stacks.keys(|stack| {
            let source_ref = &stack.spec.source_ref;
            let own = stack.namespace().unwrap_or_default();
            let from = if source_ref.namespace.is_empty() {
                &own
            } else {
                &source_ref.namespace
            };
            let tried = stack
                .status
                .as_ref()
                .is_some_and(|status| status.last_attempted_revision == artifact.revision);
            source_ref.kind == kind
                && source_ref.name == source.name
                && *from == source.namespace
                && (has_changed || !tried)
        })
    }
}

fn outdated_consumers(
    stacks: &ObjectCache<Terraform>,
    digests: &ArtifactDigests,
    kind: SourceKind,
    source: &DynamicObject,
) -> Vec<ObjectKey> {
    let Ok(Some(artifact)) = artifact(source) else {
        return Vec::new();
    };
    let key = ObjectKey {
        namespace: source.namespace().unwrap_or_default(),
        name: source.name_any(),
    };
    digests.outdated_consumers(stacks, kind, &key, &artifact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_or_changed_bytes_trigger_the_consumers() {
        let (known, source) = (
            ArtifactDigests::default(),
            ObjectKey {
                namespace: "team".to_owned(),
                name: "code".to_owned(),
            },
        );
        let digests = ["sha256:1", "sha256:1", "sha256:2", "sha256:2", "sha256:1"];
        let called = digests.map(|digest| known.update(&source, digest));
        assert_eq!(called, [true, false, true, false, true]);
    }
}
