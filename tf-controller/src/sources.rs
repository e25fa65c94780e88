//! Sources of other controllers: buckets and OCI repositories. Only the artifact in their status is read, so they are plain
//! objects here, of whichever version is served; where their definition is not installed, nobody minds until a stack
//! names one.

use futures::{Stream, StreamExt as _, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    runtime::{WatchStreamExt as _, watcher},
};
use sluice_api::{
    reference::ObjectName,
    source::{Artifact, GROUP},
    terraform::{SourceKind, Terraform},
};
use sluice_runtime::{schedule::ObjectKey, watch::Objects};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Versions of the group, the newest first.
const VERSIONS: [&str; 2] = ["v1", "v1beta2"];
/// Time between looks for a stack that names such a source, and for the definition that is then needed.
const LOOK: Duration = Duration::from_secs(5);

/// What was found under a name.
pub(crate) enum Found {
    /// The artifact of its status, if it has one.
    Source(Option<Artifact>),
    /// No such object.
    Nothing,
    /// The API serves no such kind.
    NotServed,
}

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// The API said no.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The artifact has another form.
    #[error("its status.artifact is not understood: {0}")]
    Artifact(serde_json::Error),
}

/// The plural of a kind, as addresses have it.
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
) -> Result<Found, SourceError> {
    for version in VERSIONS {
        let resource = resource(kind, version);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &target.namespace, &resource);
        match api.get(&target.name).await {
            Ok(object) => return artifact(&object).map(Found::Source),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // Only the answer about an object names it; the other is about the address.
                if status
                    .details
                    .as_ref()
                    .is_some_and(|details| details.name == target.name)
                {
                    return Ok(Found::Nothing);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Found::NotServed)
}

fn artifact(object: &DynamicObject) -> Result<Option<Artifact>, SourceError> {
    let artifact = object
        .data
        .pointer("/status/artifact")
        .filter(|found| !found.is_null());
    let parsed = artifact.map(|found| serde_json::from_value(found.clone()));
    parsed.transpose().map_err(SourceError::Artifact)
}

/// The stacks that a change of a source of another controller concerns.
pub(crate) fn of_others(
    client: &Client,
    namespace: Option<&String>,
    stacks: &Objects<Terraform>,
) -> impl Stream<Item = ObjectKey> + Send + 'static {
    let of = |kind| changed(client.clone(), namespace.cloned(), kind, stacks.clone());
    stream::select_all([
        of(SourceKind::Bucket).boxed(),
        of(SourceKind::OCIRepository).boxed(),
    ])
}

/// The stacks that a change of a source of this kind concerns. The watch begins once a stack names one and the kind is
/// served; its first list calls whoever is behind.
fn changed(
    client: Client,
    namespace: Option<String>,
    kind: SourceKind,
    stacks: Objects<Terraform>,
) -> impl Stream<Item = ObjectKey> + Send + 'static {
    let (readers, known) = (stacks.clone(), Arc::new(Known::default()));
    stream::once(async move { served(&client, namespace.as_deref(), kind, &stacks).await }).flat_map(
        move |api| {
            let (readers, known) = (readers.clone(), Arc::clone(&known));
            watcher(api, watcher::Config::default())
                .default_backoff()
                .touched_objects()
                .flat_map(move |seen| {
                    let called = |source| behind(&readers, &known, kind, &source);
                    stream::iter(seen.map_or_else(away, called))
                })
        },
    )
}

#[expect(clippy::needless_pass_by_value, reason = "as the stream gives it")]
fn away(error: watcher::Error) -> Vec<ObjectKey> {
    tracing::debug!(
        error = &error as &dyn std::error::Error,
        "a watch of sources failed and goes on"
    );
    Vec::new()
}

/// Waits until the kind is wanted and there.
async fn served(
    client: &Client,
    namespace: Option<&str>,
    kind: SourceKind,
    stacks: &Objects<Terraform>,
) -> Api<DynamicObject> {
    loop {
        let wanted = !stacks.keys(|stack| stack.spec.source_ref.kind == kind).is_empty();
        for version in VERSIONS.iter().filter(|_| wanted) {
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
        tokio::time::sleep(LOOK).await;
    }
}

/// The digest of each source's artifact of one kind, as last seen.
#[derive(Default)]
pub(crate) struct Known(Mutex<HashMap<ObjectKey, String>>);

impl Known {
    /// Notes the digest; gives whether it is another than the one before, or the first.
    fn learn(&self, source: &ObjectKey, digest: &str) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.insert(source.clone(), digest.to_owned());
        before.is_none_or(|before| before != digest)
    }

    /// The stacks that read this source and have not tried its artifact: another revision, or other bytes of the same one. What is
    /// seen for the first time may have been published since a stack read it, so that calls them all.
    pub(crate) fn behind(
        &self,
        stacks: &Objects<Terraform>,
        kind: SourceKind,
        source: &ObjectKey,
        artifact: &Artifact,
    ) -> Vec<ObjectKey> {
        let other = self.learn(source, &artifact.digest);
        stacks.keys(|stack| {
            let wanted = &stack.spec.source_ref;
            let own = stack.namespace().unwrap_or_default();
            let from = if wanted.namespace.is_empty() {
                &own
            } else {
                &wanted.namespace
            };
            let tried = stack
                .status
                .as_ref()
                .is_some_and(|status| status.last_attempted_revision == artifact.revision);
            wanted.kind == kind
                && wanted.name == source.name
                && *from == source.namespace
                && (other || !tried)
        })
    }
}

fn behind(
    stacks: &Objects<Terraform>,
    known: &Known,
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
    known.behind(stacks, kind, &key, &artifact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_seen_first_or_are_other_ones_call_the_readers() {
        let (known, source) = (
            Known::default(),
            ObjectKey {
                namespace: "team".to_owned(),
                name: "code".to_owned(),
            },
        );
        let digests = ["sha256:1", "sha256:1", "sha256:2", "sha256:2", "sha256:1"];
        let called = digests.map(|digest| known.learn(&source, digest));
        assert_eq!(called, [true, false, true, false, true]);
    }
}
