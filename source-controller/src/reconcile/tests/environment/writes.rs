//! Checks of the writes of a reconciliation.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::WatchEvent;
use sluice_api::source::GitRepository;
use sluice_runtime::schedule::ObjectKey;

use super::conformance::{Moment, assert_conforms, assert_follows};
use crate::reconcile::Repositories;

/// The objects at the start of a reconciliation, without those with the label `shard`.
pub(super) struct CachedObjects(pub(super) Vec<GitRepository>);

impl Repositories for CachedObjects {
    fn get(&self, key: &ObjectKey) -> Option<Arc<GitRepository>> {
        let found = self.0.iter().find(|object| ObjectKey::of(*object) == *key)?;
        (!found.labels().contains_key("shard")).then(|| Arc::new(found.clone()))
    }
}

/// No objects; replaced when a context is used.
pub(super) struct NoRepositories;

impl Repositories for NoRepositories {
    fn get(&self, _: &ObjectKey) -> Option<Arc<GitRepository>> {
        None
    }
}

/// Returns the versions of an object up to `last`, or until its deletion.
pub(super) async fn versions_of(
    changes: impl futures::Stream<Item = kube::Result<WatchEvent<GitRepository>>>,
    name: &str,
    last: Option<String>,
) -> Vec<GitRepository> {
    let mut changes = pin!(changes);
    let mut versions = Vec::new();
    while let Some(event) = changes.next().await {
        match event.unwrap() {
            WatchEvent::Modified(object) if object.metadata.name.as_deref() == Some(name) => {
                let end = last.is_some() && object.metadata.resource_version == last;
                versions.push(object);
                if end {
                    break;
                }
            }
            WatchEvent::Deleted(object) if object.metadata.name.as_deref() == Some(name) => break,
            _ => {}
        }
    }
    versions
}

/// Checks the writes of one reconciliation.
pub(super) fn check_writes(before: &GitRepository, versions: &[GitRepository], broken_off: bool) {
    let states: Vec<_> = std::iter::once(before).chain(versions).collect();
    let mut statuses = 0;
    for (index, pair) in states.windows(2).enumerate() {
        let is_last = index + 2 == states.len() && !broken_off;
        let moment = if is_last { Moment::After } else { Moment::During };
        if pair[0].status != pair[1].status {
            statuses += 1;
            assert_conforms(pair[1], moment);
            assert_follows(pair[0], pair[1], moment);
        }
    }
    assert!(statuses <= 2, "the status is written at most twice");
}
