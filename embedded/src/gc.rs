//! What a cluster's controller-manager does and users rely on: dependents follow their owners, namespaces empty and go.
//!
//! After a change the objects that it can matter to are looked at, at the start all of them, and the steps that are due are
//! taken, each guarded by the uid it was decided for. [`steps`] is pure.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use serde_json::Value;

use crate::{
    meta,
    resource::{Family, Registry},
    service::{Api, FOREGROUND, ORPHAN, Propagation, decide_deletion, settle},
    store::{Change, Key, State, Verb, Write},
};

/// One thing to do with the object of a uid.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    key: Key,
    uid: String,
    action: Action,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// Delete it: its owners are gone or wait for it, or its namespace goes.
    Delete(Option<Propagation>),
    /// Remove it from the store: its namespace goes, and its kind is not served any more.
    Remove,
    /// Take these owners out of its references.
    Disown(Vec<String>),
    /// No owner waits for it any more: one of its own dependents waits for that owner.
    Unblock,
    /// What this finalizer stands for is done.
    Release(&'static str),
    /// The namespace is empty.
    FinishNamespace,
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

/// The steps that are due after the changes since `seen`.
fn look(api: &Api, seen: u64) -> (Vec<Step>, u64) {
    let state = api.store.read();
    let view = View {
        state: &state,
        registry: &api.registry,
        namespaces: namespaces(&api.registry),
    };
    let candidates: BTreeSet<Key> = match state.changes_since(seen) {
        Ok(changes) => changes.iter().flat_map(|change| view.touched(change)).collect(),
        Err(_) => state.keys().cloned().collect(),
    };
    let due = candidates.iter().flat_map(|key| view.steps(key)).collect();
    (due, state.revision())
}

/// What the store calls namespaces.
fn namespaces(registry: &Registry) -> String {
    registry
        .by_family(Family::Namespace)
        .map(|resource| resource.id())
        .unwrap_or_default()
}

/// A state, to decide in.
struct View<'a> {
    state: &'a State,
    registry: &'a Registry,
    namespaces: String,
}

impl View<'_> {
    /// The objects whose steps a change can have made due.
    fn touched(&self, change: &Change) -> Vec<Key> {
        let owners = |object: &Arc<Value>| object["metadata"]["ownerReferences"].clone();
        let removed = change.verb == Verb::Remove;
        let deleting = meta::is_deleting(&change.object);
        let namespace = Key::new(self.namespaces.clone(), "", &change.key.namespace);
        let in_going = self.is_deleting(&namespace);
        let same_owners = owners(&change.object) == change.before.as_ref().map_or(Value::Null, owners);
        if !removed && !deleting && !in_going && same_owners {
            return Vec::new();
        }
        let mut touched = vec![change.key.clone(), namespace];
        touched.extend(self.state.dependents(meta::uid(&change.object)).cloned());
        // Those that wait for it, before and after.
        for object in change.before.iter().chain([&change.object]) {
            let uids = meta::owners(object)
                .iter()
                .filter_map(|owner| owner["uid"].as_str());
            touched.extend(uids.filter_map(|uid| self.state.place(uid)).cloned());
        }
        if deleting && change.key.resource == self.namespaces {
            touched.extend(self.state.in_namespace(&change.key.name));
        }
        touched
    }

    fn is_deleting(&self, key: &Key) -> bool {
        self.state
            .get(key)
            .is_some_and(|object| meta::is_deleting(object))
    }

    /// What is due for one object.
    fn steps(&self, key: &Key) -> Vec<Step> {
        let Some(object) = self.state.get(key) else {
            return Vec::new();
        };
        let step = |action| Step {
            key: key.clone(),
            uid: meta::uid(object).to_owned(),
            action,
        };
        let deleting = meta::is_deleting(object);
        if deleting && key.resource == self.namespaces {
            let waits = object["spec"]["finalizers"][0].is_string();
            let empty = waits && self.state.in_namespace(&key.name).is_empty();
            return empty.then(|| step(Action::FinishNamespace)).into_iter().collect();
        }
        if self.is_deleting(&Key::new(self.namespaces.clone(), "", &key.namespace)) {
            if self.registry.by_id(&key.resource).is_none() {
                return vec![step(Action::Remove)];
            }
            if !deleting {
                return vec![step(Action::Delete(None))];
            }
        }
        if !deleting {
            return self.orphaned(object).into_iter().map(step).collect();
        }
        let finalizers = meta::finalizers(object);
        if finalizers.contains(&ORPHAN) {
            let mut due = self.disown_dependents(meta::uid(object));
            due.push(step(Action::Release(ORPHAN)));
            return due;
        }
        if finalizers.contains(&FOREGROUND) && !self.is_blocked(meta::uid(object)) {
            return vec![step(Action::Release(FOREGROUND))];
        }
        Vec::new()
    }

    /// Lets the dependents of an object go that wants to leave them behind.
    fn disown_dependents(&self, uid: &str) -> Vec<Step> {
        let dependents = self.state.dependents(uid);
        dependents
            .filter_map(|key| Some((key, self.state.get(key)?)))
            .map(|(key, object)| Step {
                key: key.clone(),
                uid: meta::uid(object).to_owned(),
                action: Action::Disown(vec![uid.to_owned()]),
            })
            .collect()
    }

    /// Whether a dependent is there that its owner has to wait for.
    fn is_blocked(&self, uid: &str) -> bool {
        self.state.dependents(uid).any(|key| {
            let references = self.state.get(key).map_or(&[][..], |object| meta::owners(object));
            references
                .iter()
                .any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
        })
    }

    /// An object without living owners goes; one with some lets go of the others. Owners of kinds that are not served
    /// cannot be looked up and count as living.
    fn orphaned(&self, object: &Value) -> Vec<Action> {
        let owners = meta::owners(object);
        let (mut living, mut waiting, mut others) = (0, 0, Vec::new());
        for owner in owners {
            let text = |field: &str| owner[field].as_str().unwrap_or("");
            let place = self.state.place(text("uid"));
            let version = text("apiVersion");
            let group = version.split_once('/').map_or("", |(group, _)| group);
            match place {
                Some(key) if self.waits_for_dependents(key) => {
                    waiting += 1;
                    others.push(text("uid").to_owned());
                }
                None if self.registry.by_kind(group, text("kind")).is_some() => {
                    others.push(text("uid").to_owned());
                }
                _ => living += 1,
            }
        }
        if others.is_empty() {
            return Vec::new();
        }
        if living > 0 {
            return vec![Action::Disown(others)];
        }
        let mut dependents = self.state.dependents(meta::uid(object)).peekable();
        if waiting == 0 || dependents.peek().is_none() {
            return vec![Action::Delete(None)];
        }
        let mut due = Vec::new();
        if dependents.any(|key| self.waits_for_dependents(key)) {
            due.push(Action::Unblock); // a circle
        }
        due.push(Action::Delete(Some(Propagation::Foreground)));
        due
    }

    fn waits_for_dependents(&self, key: &Key) -> bool {
        self.state
            .get(key)
            .is_some_and(|object| meta::is_deleting(object) && meta::finalizers(object).contains(&FOREGROUND))
    }
}

/// Takes one step; false when the store refused.
async fn take(api: &Api, step: Step) -> bool {
    let resource = api.registry.by_id(&step.key.resource).cloned();
    let key = step.key.clone();
    let outcome = api.store.write(key, move |state| {
        let Some(object) = state.get(&step.key) else {
            return Ok(Write::Keep(Arc::default()));
        };
        if meta::uid(object) != step.uid {
            return Ok(Write::Keep(object.clone()));
        }
        let Some(resource) = resource else {
            return Ok(match step.action {
                Action::Remove => Write::Remove(Value::clone(object)),
                _ => Write::Keep(object.clone()),
            });
        };
        if let Action::Delete(propagation) = step.action {
            return Ok(decide_deletion(&resource, object, propagation));
        }
        Ok(settle(&resource, changed(object, step.action), object))
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

/// The object after a step that changes it.
fn changed(object: &Arc<Value>, action: Action) -> Value {
    let mut changed = Value::clone(object);
    let or_null = |list: Vec<Value>| if list.is_empty() { Value::Null } else { list.into() };
    match action {
        Action::Disown(gone) => {
            let mut owners = meta::owners(object).to_vec();
            owners.retain(|owner| !gone.iter().any(|uid| owner["uid"] == uid.as_str()));
            meta::set(&mut changed, "ownerReferences", or_null(owners));
        }
        Action::Unblock => {
            let mut owners = meta::owners(object).to_vec();
            for owner in &mut owners {
                owner["blockOwnerDeletion"] = false.into();
            }
            meta::set(&mut changed, "ownerReferences", owners.into());
        }
        Action::Release(finalizer) => {
            let kept = meta::finalizers(object)
                .into_iter()
                .filter(|name| *name != finalizer);
            meta::set(
                &mut changed,
                "finalizers",
                or_null(kept.map(Value::from).collect()),
            );
        }
        Action::FinishNamespace => changed["spec"] = Value::Object(serde_json::Map::new()),
        Action::Delete(_) | Action::Remove => {}
    }
    changed
}
