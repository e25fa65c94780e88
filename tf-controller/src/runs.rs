//! The runs, as a watch tells of them: which stack each belongs to. Nothing else is kept, since their status holds plans and lists
//! of resources, and there are some twenty of each stack.

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Client, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt as _, watcher, watcher::Event},
};
use sluice_api::{run::TerraformRun, terraform::GROUP};
use sluice_runtime::schedule::ObjectKey;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

type Run = PartialObjectMeta<TerraformRun>;

impl Seen {
    fn of(run: &Run) -> Option<Self> {
        Some(Self {
            stack: stack_of(run)?,
            version: run.resource_version(),
        })
    }
}

/// The stacks of runs, by the runs' keys, and which version of each run was heard of.
#[derive(Default)]
pub(crate) struct Owners(Mutex<Known>);

#[derive(Default)]
struct Known {
    runs: HashMap<ObjectKey, Seen>,
    /// What a list has told so far that is under way.
    listed: HashMap<ObjectKey, Seen>,
}

/// A run.
struct Seen {
    stack: ObjectKey,
    version: Option<String>,
}

impl Owners {
    /// The stack of a run.
    pub(crate) fn of(&self, run: &ObjectKey) -> Option<ObjectKey> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.runs.get(run).map(|seen| seen.stack.clone())
    }

    /// The newest version of a run that the watch has told of.
    pub(crate) fn version(&self, run: &ObjectKey) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.runs.get(run)?.version.clone()
    }

    /// The stack of the run that appeared, changed or went.
    fn see(&self, event: Event<Run>) -> Option<ObjectKey> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => known.listed.clear(),
            Event::InitDone => known.runs = std::mem::take(&mut known.listed),
            Event::InitApply(run) => {
                let seen = Seen::of(&run)?;
                let stack = seen.stack.clone();
                known.listed.insert(ObjectKey::of(&run), seen);
                return Some(stack);
            }
            Event::Apply(run) => {
                let seen = Seen::of(&run)?;
                let stack = seen.stack.clone();
                known.runs.insert(ObjectKey::of(&run), seen);
                return Some(stack);
            }
            Event::Delete(run) => {
                known.runs.remove(&ObjectKey::of(&run));
                return stack_of(&run);
            }
        }
        None
    }
}

/// The stack that owns a run.
fn stack_of(run: &Run) -> Option<ObjectKey> {
    let is_stack = |api_version: &str, kind: &str| kind == "Terraform" && api_version.starts_with(GROUP);
    let owners = run.owner_references().iter();
    let mut stacks = owners.filter(|owner| is_stack(&owner.api_version, &owner.kind));
    Some(ObjectKey {
        namespace: run.namespace().unwrap_or_default(),
        name: stacks.next()?.name.clone(),
    })
}

/// The stacks of runs that appear, change or go; what is heard of the runs is noted in `owners`.
pub(crate) fn changed(
    client: Client,
    namespace: Option<&String>,
    owners: Arc<Owners>,
) -> impl Stream<Item = ObjectKey> + Send + 'static {
    let api: Api<Run> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| std::future::ready(event.map_or_else(away, |event| owners.see(event))))
}

#[expect(clippy::needless_pass_by_value, reason = "as the stream gives it")]
fn away(error: watcher::Error) -> Option<ObjectKey> {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        kind = "TerraformRun",
        "watch interrupted"
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn each_run_calls_its_stack_and_is_known_until_it_is_gone() {
        let owners = Owners::default();
        assert_eq!(owners.see(Event::Init), None);
        assert_eq!(owners.see(Event::InitApply(run("a-1", "a"))), Some(key("a")));
        assert_eq!(owners.of(&key("a-1")), None, "the list is not complete");
        assert_eq!(owners.see(Event::InitDone), None);
        assert_eq!(owners.see(Event::Apply(run("b-1", "b"))), Some(key("b")));
        assert_eq!(
            (owners.of(&key("a-1")), owners.of(&key("b-1"))),
            (Some(key("a")), Some(key("b")))
        );
        assert_eq!(owners.see(Event::Delete(run("a-1", "a"))), Some(key("a")));
        assert_eq!(owners.of(&key("a-1")), None);
        // A list after a gap tells what went meanwhile.
        for event in [Event::Init, Event::InitApply(run("c-1", "c")), Event::InitDone] {
            owners.see(event);
        }
        assert_eq!(
            (owners.of(&key("b-1")), owners.of(&key("c-1"))),
            (None, Some(key("c")))
        );
    }
}
