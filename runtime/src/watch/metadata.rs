//! Watches another kind by its metadata alone, to detect changes. Content is never requested, and only versions are cached.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;
use futures::{Stream, StreamExt as _, stream};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _};

use super::debounce::{DEBOUNCE, debounce};
use super::versions::VersionIndex;
use super::{Kind, Scope, log_interruption};
use crate::schedule::ObjectKey;
use crate::sync::lock;

/// How long a controller waits for the first list, so that a refused or slow list does not block it.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// A watch of a kind's metadata.
pub struct MetadataWatch<K> {
    client: Client,
    scope: Scope,
    deletions: bool,
    shown: ShownVersions,
    kind: PhantomData<K>,
}

impl<K: Kind> MetadataWatch<K> {
    /// Prepares the watch; sends no request before its stream is polled.
    #[must_use]
    pub fn new(client: Client, scope: Scope) -> Self {
        Self {
            client,
            scope,
            deletions: false,
            shown: ShownVersions::default(),
            kind: PhantomData,
        }
    }

    /// Counts the deletion of an object as a change.
    #[must_use]
    pub const fn with_deletions(mut self) -> Self {
        self.deletions = true;
        self
    }

    /// Keeps the versions of the objects in `shown`, where others can look them up.
    #[must_use]
    pub fn with_versions(self, shown: ShownVersions) -> Self {
        Self { shown, ..self }
    }

    /// Returns the debounced keys of objects that appear or change, and a future that completes with the first list, or
    /// after a timeout.
    ///
    /// The first list is not a change: a controller that waits for the future misses nothing, and a restart triggers
    /// nothing twice. If the first list comes after the timeout, all its keys are yielded.
    pub fn keys(
        self,
    ) -> (
        impl Stream<Item = ObjectKey> + Send + 'static,
        impl Future<Output = ()> + Send + 'static,
    ) {
        let api: Api<PartialObjectMeta<K>> = match &self.scope.namespace {
            Some(namespace) => Api::namespaced(self.client, namespace),
            None => Api::all(self.client),
        };
        let (listed, first_list) = oneshot::channel();
        let mut tracker = ChangeTracker {
            shown: self.shown,
            first_list: Some(listed),
            deletions: self.deletions,
        };
        let changed = watcher(api, self.scope.config())
            .default_backoff()
            .flat_map(move |event| stream::iter(tracker.observe::<K>(event)));
        let soon = async move {
            // Reconciliations start whether the list arrived, failed or is late.
            drop(tokio::time::timeout(FIRST_LIST_TIMEOUT, first_list).await);
        };
        (debounce(changed, DEBOUNCE), soon)
    }
}

/// The versions that a [`MetadataWatch`] shows: those of the last list and of the changes since. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ShownVersions(Arc<Mutex<Shown>>);

#[derive(Debug, Default)]
struct Shown {
    versions: VersionIndex,
    interruptions: u64,
}

impl ShownVersions {
    /// Returns whether the watch shows this version of an object: its uid and its `resourceVersion`.
    #[must_use]
    pub fn is_shown(&self, key: &ObjectKey, uid: Option<&str>, version: Option<&str>) -> bool {
        lock(&self.0)
            .versions
            .is_current(key, &version_text(uid, version))
    }

    /// Returns how often the watch was interrupted. Until it continues, it may show outdated versions.
    #[must_use]
    pub fn interruptions(&self) -> u64 {
        lock(&self.0).interruptions
    }
}

fn version_text(uid: Option<&str>, version: Option<&str>) -> String {
    format!("{:?}", (uid, version))
}

struct ChangeTracker {
    shown: ShownVersions,
    /// Notified of the first list; `None` after the list or a failure.
    first_list: Option<oneshot::Sender<()>>,
    deletions: bool,
}

impl ChangeTracker {
    fn observe<K: Kind>(
        &mut self,
        event: watcher::Result<watcher::Event<PartialObjectMeta<K>>>,
    ) -> Vec<ObjectKey> {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                log_interruption::<K>(&error);
                self.first_list = None;
                lock(&self.shown.0).interruptions += 1;
                return Vec::new();
            }
        };
        let versions = &mut lock(&self.shown.0).versions;
        let first = matches!(event, watcher::Event::InitDone) && !versions.is_listed();
        let before = before(versions, &event, self.deletions);
        let mut changed = versions.observe(&event, |object| {
            let meta = object.meta();
            let version = version_text(meta.uid.as_deref(), meta.resource_version.as_deref());
            (ObjectKey::of(object), Some(version))
        });
        if first
            && self
                .first_list
                .take()
                .is_none_or(|listed| listed.send(()).is_err())
        {
            return versions.keys();
        }
        changed.extend(before.into_iter().filter(|key| !versions.contains(key)));
        changed
    }
}

/// Returns the keys that an event may delete, if deletions count.
fn before<K: Kind>(
    versions: &VersionIndex,
    event: &watcher::Event<PartialObjectMeta<K>>,
    deletions: bool,
) -> Vec<ObjectKey> {
    match event {
        watcher::Event::Delete(object) if deletions => vec![ObjectKey::of(object)],
        watcher::Event::InitDone if deletions => versions.keys(),
        _ => Vec::new(),
    }
}
