//! What a cluster's controller-manager does and users rely on: dependents follow their owners, namespaces empty and go.
//!
//! It is level-triggered: after a change that can matter, the whole state is looked at and the steps that are due are
//! taken, each guarded by the uid it was decided for. [`steps`] is pure.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
};

use serde_json::Value;

use crate::{
    meta,
    resource::{Family, Registry},
    service::{Api, ORPHAN, decide_deletion, settle},
    store::{Change, Key, State, Verb, Write},
};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Delete an object: its owners are gone, or its namespace goes.
    Delete(Key, String),
    /// Take these owners out of its references.
    Disown(Key, String, Vec<String>),
    /// Its dependents are let go.
    ReleaseOrphans(Key, String),
    /// The namespace is empty.
    FinishNamespace(Key, String),
}

/// Runs until the server is dropped or stopped.
pub(crate) async fn run(api: Weak<Api>) {
    let Some((mut newest, stop)) = api.upgrade().map(|api| (api.store.subscribe(), api.stop.clone())) else {
        return;
    };
    let mut seen = 0;
    loop {
        {
            // Held only while working: the task must not keep the server alive.
            let Some(api) = api.upgrade() else { return };
            newest.borrow_and_update();
            let (due, revision) = look(&api, seen);
            let mut done = true;
            for step in due {
                done &= take(&api, step).await;
            }
            // What failed is looked for again at the next change, whatever it is.
            seen = if done { revision } else { 0 };
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = newest.changed() => if changed.is_err() { return },
        }
    }
}

/// The steps that are due, if anything since `seen` can have made one.
fn look(api: &Api, seen: u64) -> (Vec<Step>, u64) {
    let state = api.store.read();
    let matters = state
        .changes_since(seen)
        .map_or(true, |changes| changes.iter().any(|change| matters(change)));
    (
        if matters {
            steps(&state, &api.registry)
        } else {
            Vec::new()
        },
        state.revision(),
    )
}

fn matters(change: &Change) -> bool {
    let owners = |object: &Arc<Value>| object["metadata"]["ownerReferences"].clone();
    change.verb == Verb::Remove
        || meta::is_deleting(&change.object)
        || owners(&change.object) != change.before.as_ref().map_or(Value::Null, owners)
}

/// What is due in a state.
fn steps(state: &State, registry: &Registry) -> Vec<Step> {
    let alive: HashSet<&str> = state.all().map(|(_, object)| meta::uid(object)).collect();
    let namespaces = registry
        .by_family(Family::Namespace)
        .map(|resource| resource.id())
        .unwrap_or_default();
    let terminating: HashMap<&str, &Value> = state
        .all()
        .filter(|(key, object)| key.resource == namespaces && meta::is_deleting(object))
        .map(|(key, object)| (key.name.as_str(), &**object))
        .collect();
    let mut due = Vec::new();
    let mut occupied: HashSet<&str> = HashSet::new();
    for (key, object) in state.all() {
        let uid = || meta::uid(object).to_owned();
        if terminating.contains_key(key.namespace.as_str()) {
            occupied.insert(&key.namespace);
            if !meta::is_deleting(object) {
                due.push(Step::Delete(key.clone(), uid()));
                continue;
            }
        }
        if meta::is_deleting(object) && meta::finalizers(object).contains(&ORPHAN) {
            due.extend(release(state, key, object));
        }
        due.extend(orphaned(key, object, &alive, registry));
    }
    for (name, namespace) in terminating {
        if !occupied.contains(name) && namespace["spec"]["finalizers"][0].is_string() {
            let key = Key::new(namespaces.clone(), "", name);
            due.push(Step::FinishNamespace(key, meta::uid(namespace).to_owned()));
        }
    }
    due
}

/// Dependents of an object that wants to leave them behind, and then itself.
fn release(state: &State, key: &Key, object: &Value) -> Vec<Step> {
    let uid = meta::uid(object);
    let depends = |object: &Value| meta::owners(object).iter().any(|owner| owner["uid"] == uid);
    let mut due: Vec<Step> = state
        .all()
        .filter(|(_, other)| depends(other))
        .map(|(key, other)| Step::Disown(key.clone(), meta::uid(other).to_owned(), vec![uid.to_owned()]))
        .collect();
    due.push(Step::ReleaseOrphans(key.clone(), uid.to_owned()));
    due
}

/// An object without living owners goes; one with some lets go of the others. Owners of kinds that are not served
/// cannot be looked up and count as living.
fn orphaned(key: &Key, object: &Value, alive: &HashSet<&str>, registry: &Registry) -> Option<Step> {
    let owners = meta::owners(object);
    if owners.is_empty() || meta::is_deleting(object) {
        return None;
    }
    let text = |owner: &Value, field: &str| owner[field].as_str().unwrap_or("").to_owned();
    let gone: Vec<String> = owners
        .iter()
        .filter(|owner| {
            let version = text(owner, "apiVersion");
            let group = version.split_once('/').map_or("", |(group, _)| group);
            registry.by_kind(group, &text(owner, "kind")).is_some()
                && !alive.contains(text(owner, "uid").as_str())
        })
        .map(|owner| text(owner, "uid"))
        .collect();
    let uid = meta::uid(object).to_owned();
    match gone.len() {
        0 => None,
        all if all == owners.len() => Some(Step::Delete(key.clone(), uid)),
        _ => Some(Step::Disown(key.clone(), uid, gone)),
    }
}

/// Takes one step; false when the store refused.
async fn take(api: &Api, step: Step) -> bool {
    let (Step::Delete(key, uid)
    | Step::Disown(key, uid, _)
    | Step::ReleaseOrphans(key, uid)
    | Step::FinishNamespace(key, uid)) = &step;
    let Some(resource) = api.registry.by_id(&key.resource).cloned() else {
        return true;
    };
    let (at, uid) = (key.clone(), uid.clone());
    let outcome = api.store.write(key.clone(), move |state| {
        let Some(object) = state.get(&at) else {
            return Ok(Write::Keep(Arc::default()));
        };
        if meta::uid(object) != uid {
            return Ok(Write::Keep(object.clone()));
        }
        let mut changed = Value::clone(object);
        match step {
            Step::Delete(..) => return Ok(decide_deletion(&resource, object, false)),
            Step::Disown(_, _, gone) => {
                let mut owners = meta::owners(object).to_vec();
                owners.retain(|owner| !gone.iter().any(|uid| owner["uid"] == uid.as_str()));
                let owners = if owners.is_empty() {
                    Value::Null
                } else {
                    owners.into()
                };
                meta::set(&mut changed, "ownerReferences", owners);
            }
            Step::ReleaseOrphans(..) => {
                let kept: Vec<&str> = meta::finalizers(object)
                    .into_iter()
                    .filter(|name| *name != ORPHAN)
                    .collect();
                meta::set(
                    &mut changed,
                    "finalizers",
                    if kept.is_empty() { Value::Null } else { kept.into() },
                );
            }
            Step::FinishNamespace(..) => {
                changed["spec"] = Value::Object(serde_json::Map::new());
            }
        }
        Ok(settle(&resource, changed, object))
    });
    match outcome.await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(
                error = error.message(),
                "garbage collection will try again at the next change"
            );
            false
        }
    }
}
