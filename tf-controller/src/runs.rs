//! The watch of runs: an index of which stack each belongs to. Nothing else is stored, since their status holds plans
//! and lists of resources, and a stack has some twenty of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures::{Stream, StreamExt as _};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::GROUP;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use sluice_runtime::watch::log_interruption;

use crate::run::api_in;

type Run = PartialObjectMeta<TerraformRun>;

/// The stacks of runs by the runs' keys, and the observed version of each run.
#[derive(Default)]
pub(crate) struct RunOwners(Mutex<OwnerIndex>);

#[derive(Default)]
struct OwnerIndex {
    runs: HashMap<ObjectKey, IndexedRun>,
    /// The entries of a list in progress.
    listed: HashMap<ObjectKey, IndexedRun>,
}

/// A run in the index.
struct IndexedRun {
    stack: ObjectKey,
    version: Option<String>,
}

impl IndexedRun {
    fn of(run: &Run) -> Option<Self> {
        Some(Self {
            stack: stack_of(run)?,
            version: run.resource_version(),
        })
    }
}

impl RunOwners {
    /// Returns the stack of a run.
    pub(crate) fn stack_of(&self, run: &ObjectKey) -> Option<ObjectKey> {
        let index = lock(&self.0);
        index.runs.get(run).map(|entry| entry.stack.clone())
    }

    /// Returns the newest version of a run that the watch has observed.
    pub(crate) fn version(&self, run: &ObjectKey) -> Option<String> {
        let index = lock(&self.0);
        index.runs.get(run)?.version.clone()
    }

    /// Applies an event; returns the stack of the run.
    fn apply(&self, event: Event<Run>) -> Option<ObjectKey> {
        let mut index = lock(&self.0);
        match event {
            Event::Init => index.listed.clear(),
            Event::InitDone => index.runs = std::mem::take(&mut index.listed),
            Event::InitApply(run) => {
                let entry = IndexedRun::of(&run)?;
                let stack = entry.stack.clone();
                index.listed.insert(ObjectKey::of(&run), entry);
                return Some(stack);
            }
            Event::Apply(run) => {
                let entry = IndexedRun::of(&run)?;
                let stack = entry.stack.clone();
                index.runs.insert(ObjectKey::of(&run), entry);
                return Some(stack);
            }
            Event::Delete(run) => {
                index.runs.remove(&ObjectKey::of(&run));
                return stack_of(&run);
            }
        }
        None
    }
}

/// Returns the stack that owns a run.
fn stack_of(run: &Run) -> Option<ObjectKey> {
    let is_stack = |api_version: &str, kind: &str| kind == "Terraform" && api_version.starts_with(GROUP);
    let owners = run.owner_references().iter();
    let mut stacks = owners.filter(|owner| is_stack(&owner.api_version, &owner.kind));
    Some(ObjectKey {
        namespace: run.namespace().unwrap_or_default(),
        name: stacks.next()?.name.clone(),
    })
}

/// Returns the stacks of runs that appear, change or are deleted; updates the index in `owners`.
pub(crate) fn changed_stacks(
    client: &Client,
    namespace: Option<&String>,
    owners: Arc<RunOwners>,
) -> impl Stream<Item = ObjectKey> + Send + 'static {
    watcher(
        api_in::<Run>(client, namespace.map(String::as_str)),
        watcher::Config::default(),
    )
    .default_backoff()
    .filter_map(move |event| {
        let event = event.inspect_err(log_interruption::<TerraformRun>);
        std::future::ready(event.ok().and_then(|event| owners.apply(event)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(name: &str, stack: &str) -> Run {
        serde_json::from_value(json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": { "namespace": "team", "name": name, "ownerReferences": [
                { "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "name": stack, "uid": "u" }] } }))
        .unwrap()
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "team".into(),
            name: name.into(),
        }
    }

    #[test]
    fn each_run_triggers_its_stack_and_is_indexed_until_it_is_deleted() {
        let owners = RunOwners::default();
        assert_eq!(owners.apply(Event::Init), None);
        assert_eq!(owners.apply(Event::InitApply(run("a-1", "a"))), Some(key("a")));
        assert_eq!(owners.stack_of(&key("a-1")), None, "the list is not complete");
        assert_eq!(owners.apply(Event::InitDone), None);
        assert_eq!(owners.apply(Event::Apply(run("b-1", "b"))), Some(key("b")));
        assert_eq!(
            (owners.stack_of(&key("a-1")), owners.stack_of(&key("b-1"))),
            (Some(key("a")), Some(key("b")))
        );
        assert_eq!(owners.apply(Event::Delete(run("a-1", "a"))), Some(key("a")));
        assert_eq!(owners.stack_of(&key("a-1")), None);
        // A list after a gap shows what was deleted meanwhile.
        for event in [Event::Init, Event::InitApply(run("c-1", "c")), Event::InitDone] {
            owners.apply(event);
        }
        assert_eq!(
            (owners.stack_of(&key("b-1")), owners.stack_of(&key("c-1"))),
            (None, Some(key("c")))
        );
    }
}
