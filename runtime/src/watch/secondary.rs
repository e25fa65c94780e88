//! Watches another kind and maps its changes to objects of the main kind.

use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use kube::Client;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self};
use kube::runtime::{WatchStreamExt as _, watcher};

use super::object::WatchedObject;
use super::{Kind, ObjectCache, Scope, log_interruption};
use crate::schedule::ObjectKey;

/// A watch of a kind that a controller reads but does not reconcile.
pub struct SecondaryWatch<K: Kind> {
    client: Client,
    scope: Scope,
    writer: Writer<WatchedObject<K>>,
    objects: ObjectCache<K>,
}

impl<K: Kind> SecondaryWatch<K> {
    /// Prepares the watch; sends no request before its stream is polled.
    #[must_use]
    pub fn new(client: Client, scope: Scope) -> Self {
        let (reader, writer) = reflector::store();
        Self {
            client,
            scope,
            writer,
            objects: ObjectCache::new(reader),
        }
    }

    /// Returns the cache of the watch.
    #[must_use]
    pub fn objects(&self) -> ObjectCache<K> {
        self.objects.clone()
    }

    /// Returns the keys that `affected` yields for each object that appears, changes or is deleted, for
    /// [`super::Watch::trigger`]. Objects that could not be decoded are skipped.
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
            .filter_map(|result| std::future::ready(decoded(result)))
            .map(move |object| futures::stream::iter(affected(object)))
            .flatten()
    }
}

fn decoded<K: Kind>(result: watcher::Result<WatchedObject<K>>) -> Option<Arc<K>> {
    match result {
        Ok(object) => object.0.ok(),
        Err(error) => {
            log_interruption::<K>(&error);
            None
        }
    }
}
