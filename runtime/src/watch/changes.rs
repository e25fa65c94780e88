//! Following another kind by its metadata alone: which objects became another version. Their content is never asked for,
//! and nothing but a version is kept of them.

use std::marker::PhantomData;
use std::time::Duration;

use futures::channel::oneshot;
use futures::{Stream, StreamExt as _, stream};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};

use super::gathered::{SPAN, gathered};
use super::versions::Versions;
use super::{Kind, Scope};
use crate::schedule::ObjectKey;

/// How long a controller waits for the first list, lest a list that is refused or slow stops everything.
const PATIENCE: Duration = Duration::from_secs(5);

/// A watch of a kind's metadata.
pub struct Changes<K> {
    client: Client,
    scope: Scope,
    deletions: bool,
    kind: PhantomData<K>,
}

impl<K: Kind> Changes<K> {
    /// Prepares the watch; nothing is asked before its stream is polled.
    #[must_use]
    pub const fn new(client: Client, scope: Scope) -> Self {
        Self {
            client,
            scope,
            deletions: false,
            kind: PhantomData,
        }
    }

    /// Counts an object that goes as a change too.
    #[must_use]
    pub const fn and_deletions(mut self) -> Self {
        self.deletions = true;
        self
    }

    /// The keys of objects that appear or change, gathered for a moment; and a future that ends with the first list, or
    /// when that cannot be had soon.
    ///
    /// What the first list holds is no change: a controller that begins its passes after that future misses nothing,
    /// and a restart calls for nothing twice. If it went on without, all that the first list holds is yielded.
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
        let mut follower = Follower {
            versions: Versions::default(),
            awaited: Some(listed),
            deletions: self.deletions,
        };
        let changed = watcher(api, self.scope.config())
            .default_backoff()
            .flat_map(move |event| stream::iter(follower.see::<K>(event)));
        let soon = async move {
            // Sent, dropped or late: in each case the passes begin.
            drop(tokio::time::timeout(PATIENCE, first_list).await);
        };
        (gathered(changed, SPAN), soon)
    }
}

struct Follower {
    versions: Versions,
    /// Who waits for the first list, until it came or could not be had.
    awaited: Option<oneshot::Sender<()>>,
    deletions: bool,
}

impl Follower {
    fn see<K: Kind>(
        &mut self,
        event: watcher::Result<watcher::Event<PartialObjectMeta<K>>>,
    ) -> Vec<ObjectKey> {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let kind = K::kind(&());
                tracing::warn!(error = &error as &dyn std::error::Error, %kind, "watch interrupted");
                self.awaited = None;
                return Vec::new();
            }
        };
        let first = matches!(event, watcher::Event::InitDone) && !self.versions.has_list();
        let before = self.before(&event);
        let mut changed = self.versions.see(&event, |object| {
            let version = (object.uid(), object.resource_version());
            (ObjectKey::of(object), Some(format!("{version:?}")))
        });
        if first && self.awaited.take().is_none_or(|listed| listed.send(()).is_err()) {
            return self.versions.keys();
        }
        changed.extend(before.into_iter().filter(|key| !self.versions.has(key)));
        changed
    }

    /// What an event may take away, where that counts.
    fn before<K: Kind>(&self, event: &watcher::Event<PartialObjectMeta<K>>) -> Vec<ObjectKey> {
        match event {
            watcher::Event::Delete(object) if self.deletions => vec![ObjectKey::of(object)],
            watcher::Event::InitDone if self.deletions => self.versions.keys(),
            _ => Vec::new(),
        }
    }
}
