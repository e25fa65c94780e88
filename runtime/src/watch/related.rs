//! Following another kind, to be called when it changes.

use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use kube::Client;
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::{WatchStreamExt as _, watcher};

use super::{Kind, Objects, Scope};
use crate::schedule::ObjectKey;

/// A watch of a kind that a controller does not reconcile but depends on.
pub struct Related<K: Kind> {
    client: Client,
    scope: Scope,
    writer: Writer<kube::core::DeserializeGuard<K>>,
    objects: Objects<K>,
}

impl<K: Kind> Related<K> {
    /// Prepares the watch; nothing is asked before its stream is polled.
    #[must_use]
    pub fn new(client: Client, scope: Scope) -> Self {
        let (reader, writer) = reflector::store();
        Self {
            client,
            scope,
            writer,
            objects: Objects::new(reader),
        }
    }

    /// The objects as last seen.
    #[must_use]
    pub fn objects(&self) -> Objects<K> {
        self.objects.clone()
    }

    /// The keys that `affected` names for each object that appears, changes or goes, to be given to
    /// [`super::Watch::trigger`]. Objects that do not decode affect nobody.
    pub fn keys<I>(
        self,
        affected: impl Fn(Arc<K>) -> I + Send + Sync + 'static,
    ) -> impl Stream<Item = ObjectKey> + Send
    where
        I: IntoIterator<Item = ObjectKey>,
        I::IntoIter: Send,
    {
        watcher(self.scope.api::<K>(self.client), self.scope.config())
            .default_backoff()
            .reflect(self.writer)
            .touched_objects()
            .filter_map(|seen| std::future::ready(readable(seen)))
            .map(move |object| futures::stream::iter(affected(object)))
            .flatten()
    }
}

fn readable<K: Kind>(seen: watcher::Result<kube::core::DeserializeGuard<K>>) -> Option<Arc<K>> {
    match seen {
        Ok(object) => object.0.ok().map(Arc::new),
        Err(error) => {
            let kind = K::kind(&());
            tracing::warn!(error = &error as &dyn std::error::Error, %kind, "watch interrupted");
            None
        }
    }
}
