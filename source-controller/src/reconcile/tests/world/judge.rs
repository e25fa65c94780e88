//! What a pass is given to see, and how its writes are judged.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::WatchEvent;
use sluice_api::source::GitRepository;
use sluice_runtime::schedule::ObjectKey;

use super::conforms::{Moment, assert_conforms, assert_follows};
use crate::reconcile::Repositories;

/// The objects as they were when a pass began, without those with the label `shard`.
pub(super) struct Seen(pub(super) Vec<GitRepository>);

impl Repositories for Seen {
    fn get(&self, key: &ObjectKey) -> Option<Arc<GitRepository>> {
        let found = self.0.iter().find(|object| ObjectKey::of(*object) == *key)?;
        (!found.labels().contains_key("shard")).then(|| Arc::new(found.clone()))
    }
}

/// No objects: who makes a context puts the real ones in their place.
pub(super) struct Nobody;

impl Repositories for Nobody {
    fn get(&self, _: &ObjectKey) -> Option<Arc<GitRepository>> {
        None
    }
}

/// The forms that an object took until `last`, or until it went.
pub(super) async fn written(
    changes: impl futures::Stream<Item = kube::Result<WatchEvent<GitRepository>>>,
    name: &str,
    last: Option<String>,
) -> Vec<GitRepository> {
    let mut changes = pin!(changes);
    let mut written = Vec::new();
    while let Some(event) = changes.next().await {
        match event.unwrap() {
            WatchEvent::Modified(object) if object.metadata.name.as_deref() == Some(name) => {
                let end = last.is_some() && object.metadata.resource_version == last;
                written.push(object);
                if end {
                    break;
                }
            }
            WatchEvent::Deleted(object) if object.metadata.name.as_deref() == Some(name) => break,
            _ => {}
        }
    }
    written
}

/// The rules for the writes of one pass.
pub(super) fn judge(before: &GitRepository, written: &[GitRepository], broken_off: bool) {
    let states: Vec<_> = std::iter::once(before).chain(written).collect();
    let mut statuses = 0;
    for (index, pair) in states.windows(2).enumerate() {
        let over = index + 2 == states.len() && !broken_off;
        let moment = if over { Moment::Rest } else { Moment::Midway };
        if pair[0].status != pair[1].status {
            statuses += 1;
            assert_conforms(pair[1], moment);
            assert_follows(pair[0], pair[1], moment);
        }
    }
    assert!(statuses <= 2, "a pass writes its status at most twice");
}
