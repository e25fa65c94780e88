//! Watches another kind and maps its changes to objects of the main kind.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use kube::Client;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self};
use kube::runtime::{WatchStreamExt as _, watcher};

use super::listing::Listing;
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
        let mut listing = Listing::default();
        watcher(self.scope.api::<K>(self.client), self.scope.config())
            .default_backoff()
            .reflect(self.writer)
            .flat_map(move |event| stream::iter(touched(event, &mut listing)))
            .map(move |object| stream::iter(affected(object)))
            .flatten()
    }
}

/// Returns the decoded objects that an event touches, also a deleted one.
fn touched<K: Kind>(
    event: watcher::Result<watcher::Event<WatchedObject<K>>>,
    listing: &mut Listing<WatchedObject<K>>,
) -> Vec<Arc<K>> {
    let touched = match event {
        Ok(watcher::Event::Delete(object)) => vec![object],
        Ok(event) => listing.shown(event),
        Err(error) => {
            log_interruption::<K>(&error);
            Vec::new()
        }
    };
    touched.into_iter().filter_map(|object| object.0.ok()).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::watcher::Event;

    use super::*;

    #[test]
    fn a_list_touches_its_objects_when_it_is_complete() {
        let object = || WatchedObject(Ok(Arc::new(ConfigMap::default())));
        let mut listing = Listing::default();
        for (event, count) in [
            (Event::Init, 0),
            (Event::InitApply(object()), 0),
            (Event::InitApply(object()), 0),
            (Event::InitDone, 2),
            (Event::Apply(object()), 1),
            (Event::Delete(object()), 1),
        ] {
            let text = format!("{event:?}");
            assert_eq!(touched(Ok(event), &mut listing).len(), count, "{text}");
        }
    }
}
