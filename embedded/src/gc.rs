//! Garbage collection and namespace deletion, as in a cluster's controller-manager.
//!
//! After each change, and once for all objects at the start, the collector determines the due steps of the affected objects
//! and executes them. Each step is guarded by the uid of its object. [`Snapshot::steps`] is pure.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use serde_json::Value;

use crate::definitions::DEFINITIONS;
use crate::meta;
use crate::resource::{Registry, Strategy};
use crate::revisions::Revisions;
use crate::service::{Api, FOREGROUND, ORPHAN, PropagationPolicy, decide_deletion, decide_write};
use crate::store::{Change, ChangeType, Key, State, Write};

/// A due action for the object with this uid.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    key: Key,
    uid: String,
    action: Action,
}

/// An action on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// Delete it: its owners are absent or wait for it, or its namespace is deleted.
    Delete(Option<PropagationPolicy>),
    /// Remove it from the store: its namespace is deleted and its kind is no longer served, or its last finalizer was removed in a file.
    Remove,
    /// Remove the owner references with these uids.
    RemoveOwners(Vec<String>),
    /// Clear `blockOwnerDeletion` of all owner references: one of its dependents waits for its own dependents.
    ClearBlockOwnerDeletion,
    /// Remove this finalizer: its work is done.
    RemoveFinalizer(&'static str),
    /// Remove the spec finalizers of an empty namespace.
    FinalizeNamespace,
}

/// Runs until the server is stopped or dropped.
pub(crate) async fn run(api: Weak<Api>) {
    let Some(mut revisions) = Revisions::of(api) else {
        return;
    };
    let (mut observed, mut invalid) = (0, BTreeSet::new());
    while let Some(api) = revisions.next().await {
        let newest = api.store.read().invalid_objects().clone();
        // If a user removes an invalid file, no object changes, but the owner in that file is absent from then on.
        if !invalid.is_subset(&newest) {
            observed = 0;
        }
        invalid = newest;
        let (steps, revision) = due_steps(&api, observed);
        let mut done = true;
        for step in steps {
            done &= execute(&api, step).await;
        }
        // After a failure the next change triggers a scan of all objects.
        observed = if done { revision } else { 0 };
    }
}

/// Returns the steps that are due after the changes since `observed`, and the revision of the examined state.
fn due_steps(api: &Api, observed: u64) -> (Vec<Step>, u64) {
    let registry = api.registry();
    let state = api.store.read();
    let snapshot = Snapshot {
        state: &state,
        registry: &registry,
        namespace_resource: namespace_resource(&registry),
    };
    let candidates: BTreeSet<Key> = match state.changes_since(observed) {
        Ok(changes) => changes
            .iter()
            .flat_map(|change| snapshot.affected(change))
            .collect(),
        Err(_) => state.keys().cloned().collect(),
    };
    let steps = candidates.iter().flat_map(|key| snapshot.steps(key)).collect();
    (steps, state.revision())
}

/// Returns the group resource of namespaces.
fn namespace_resource(registry: &Registry) -> String {
    registry
        .by_strategy(Strategy::Namespace)
        .map(|resource| resource.group_resource())
        .unwrap_or_default()
}

/// One state of the store, with the registry.
struct Snapshot<'a> {
    state: &'a State,
    registry: &'a Registry,
    namespace_resource: String,
}

impl Snapshot<'_> {
    /// Returns the objects whose due steps a change can affect.
    fn affected(&self, change: &Change) -> Vec<Key> {
        let owners = |object: &Arc<Value>| object["metadata"]["ownerReferences"].clone();
        let removed = change.kind == ChangeType::Remove;
        let deleting = meta::is_deleting(&change.object);
        let namespace = Key::new(self.namespace_resource.clone(), "", &change.key.namespace);
        let in_terminating_namespace = self.is_deleting(&namespace);
        let same_owners = owners(&change.object) == change.before.as_ref().map_or(Value::Null, owners);
        if !removed && !deleting && !in_terminating_namespace && same_owners {
            return Vec::new();
        }
        let mut affected = vec![change.key.clone(), namespace];
        affected.extend(self.state.dependents(meta::uid(&change.object)).cloned());
        // The owners before and after the change.
        for object in change.before.iter().chain([&change.object]) {
            let uids = meta::owners(object)
                .iter()
                .filter_map(|owner| owner["uid"].as_str());
            affected.extend(uids.filter_map(|uid| self.state.key_by_uid(uid)).cloned());
        }
        if deleting && change.key.resource == self.namespace_resource {
            affected.extend(self.state.keys_in_namespace(&change.key.name));
        }
        affected
    }

    fn is_deleting(&self, key: &Key) -> bool {
        self.state
            .get(key)
            .is_some_and(|object| meta::is_deleting(object))
    }

    /// Returns the due steps of one object.
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
        if deleting && key.resource == self.namespace_resource {
            let has_finalizer = object["spec"]["finalizers"][0].is_string();
            let empty = has_finalizer && self.state.keys_in_namespace(&key.name).is_empty();
            let due = empty.then_some(Action::FinalizeNamespace);
            let has_none = !has_finalizer && meta::finalizers(object).is_empty();
            let due = due.or_else(|| has_none.then_some(Action::Remove));
            return due.into_iter().map(step).collect();
        }
        if self.is_deleting(&Key::new(self.namespace_resource.clone(), "", &key.namespace)) {
            if self.registry.by_group_resource(&key.resource).is_none() {
                return vec![step(Action::Remove)];
            }
            if !deleting {
                return vec![step(Action::Delete(None))];
            }
        }
        if !deleting {
            return self.owner_actions(key, object).into_iter().map(step).collect();
        }
        let finalizers = meta::finalizers(object);
        if finalizers.is_empty() {
            // The request that removes the last finalizer removes the object. In a Git store a commit can remove it, too.
            return vec![step(Action::Remove)];
        }
        if finalizers.contains(&ORPHAN) {
            let mut steps = self.orphan_dependents(meta::uid(object));
            steps.push(step(Action::RemoveFinalizer(ORPHAN)));
            return steps;
        }
        if finalizers.contains(&FOREGROUND) && !self.has_blocking_dependents(meta::uid(object)) {
            return vec![step(Action::RemoveFinalizer(FOREGROUND))];
        }
        Vec::new()
    }

    /// Removes an orphaning owner from the owner references of its dependents.
    fn orphan_dependents(&self, uid: &str) -> Vec<Step> {
        let step = |key: &Key| {
            Some(Step {
                key: key.clone(),
                uid: meta::uid(self.state.get(key)?).to_owned(),
                action: Action::RemoveOwners(vec![uid.to_owned()]),
            })
        };
        self.state.dependents(uid).filter_map(step).collect()
    }

    /// Whether a dependent blocks the deletion of its owner.
    fn has_blocking_dependents(&self, uid: &str) -> bool {
        self.state.dependents(uid).any(|key| {
            let references = self.state.get(key).map_or(&[][..], |object| meta::owners(object));
            let blocks = |owner: &Value| owner["uid"] == uid && owner["blockOwnerDeletion"] == true;
            references.iter().any(blocks)
        })
    }

    /// Returns the actions that follow from the owners of an object: without a solid owner it is deleted, otherwise the references
    /// to all other owners are removed. Owners of kinds that are not served cannot be looked up and count as solid, as do those whose file
    /// is not valid: they can exist in other processes.
    fn owner_actions(&self, key: &Key, object: &Value) -> Vec<Action> {
        let owners = meta::owners(object);
        let (mut solid, mut waiting, mut dangling) = (0, 0, Vec::new());
        for owner in owners {
            let text = |field: &str| owner[field].as_str().unwrap_or("");
            let found = self.state.key_by_uid(text("uid"));
            match found {
                Some(found) if self.waits_for_dependents(found) => {
                    waiting += 1;
                    dangling.push(text("uid").to_owned());
                }
                None if self.is_absent(owner, &key.namespace) => {
                    dangling.push(text("uid").to_owned());
                }
                _ => solid += 1,
            }
        }
        if dangling.is_empty() {
            return Vec::new();
        }
        if solid > 0 {
            return vec![Action::RemoveOwners(dangling)];
        }
        let mut dependents = self.state.dependents(meta::uid(object)).peekable();
        if waiting == 0 || dependents.peek().is_none() {
            return vec![Action::Delete(None)];
        }
        let mut steps = Vec::new();
        if dependents.any(|key| self.waits_for_dependents(key)) {
            steps.push(Action::ClearBlockOwnerDeletion); // a cycle
        }
        steps.push(Action::Delete(Some(PropagationPolicy::Foreground)));
        steps
    }

    /// Whether an owner without an object can be looked up, and has no file. The kinds follow their definitions a moment later: a push that
    /// removes a definition takes the owners out of service and does not delete them.
    fn is_absent(&self, owner: &Value, namespace: &str) -> bool {
        let text = |field: &str| owner[field].as_str().unwrap_or("");
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let resource = self.registry.by_kind(group, text("kind"));
        resource.is_some_and(|resource| {
            let definition = Key::new(DEFINITIONS, "", &resource.group_resource());
            let is_served = resource.strategy != Strategy::Custom || self.state.get(&definition).is_some();
            let namespace = if resource.namespaced { namespace } else { "" };
            let file = Key::new(resource.group_resource(), namespace, text("name"));
            is_served && !self.state.invalid_objects().contains(&file)
        })
    }

    fn waits_for_dependents(&self, key: &Key) -> bool {
        self.state
            .get(key)
            .is_some_and(|object| meta::is_deleting(object) && meta::finalizers(object).contains(&FOREGROUND))
    }
}

/// Executes one step; returns false if the write failed.
async fn execute(api: &Api, step: Step) -> bool {
    let resource = api.registry().by_group_resource(&step.key.resource).cloned();
    let key = step.key.clone();
    let outcome = api.store.write(key, move |state| {
        let Some(object) = state.get(&step.key) else {
            return Ok(Write::Unchanged(Arc::default()));
        };
        if meta::uid(object) != step.uid {
            return Ok(Write::Unchanged(object.clone()));
        }
        let Some(resource) = &resource else {
            return Ok(match step.action {
                Action::Remove => Write::Remove(Value::clone(object)),
                _ => Write::Unchanged(object.clone()),
            });
        };
        if let Action::Delete(propagation) = step.action {
            return Ok(decide_deletion(resource, object, propagation));
        }
        Ok(decide_write(resource, apply(object, &step.action), object))
    });
    match outcome.await {
        Ok(_) => true,
        Err(error) => {
            let error = error.message();
            tracing::warn!(error, "garbage collection failed, retrying at the next change");
            false
        }
    }
}

/// Returns the object after an action that modifies it.
fn apply(object: &Arc<Value>, action: &Action) -> Value {
    let mut updated = Value::clone(object);
    let or_null = |list: Vec<Value>| if list.is_empty() { Value::Null } else { list.into() };
    match action {
        Action::RemoveOwners(uids) => {
            let mut owners = meta::owners(object).to_vec();
            owners.retain(|owner| !uids.iter().any(|uid| owner["uid"] == uid.as_str()));
            meta::set(&mut updated, "ownerReferences", or_null(owners));
        }
        Action::ClearBlockOwnerDeletion => {
            let mut owners = meta::owners(object).to_vec();
            for owner in &mut owners {
                owner["blockOwnerDeletion"] = false.into();
            }
            meta::set(&mut updated, "ownerReferences", owners.into());
        }
        Action::RemoveFinalizer(finalizer) => {
            let mut remaining = meta::finalizers(object);
            remaining.retain(|name| name != finalizer);
            let remaining = remaining.into_iter().map(Value::from).collect();
            meta::set(&mut updated, "finalizers", or_null(remaining));
        }
        Action::FinalizeNamespace => updated["spec"] = Value::Object(serde_json::Map::new()),
        Action::Delete(_) | Action::Remove => {}
    }
    updated
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::resources_of_spec;
    use crate::store::Store;

    fn put(store: &Store, key: &Key, object: &Value) {
        let write = |_: &crate::store::TransactionView<'_>| Ok(Write::Put(object.clone()));
        store.write_now(key, write).unwrap();
    }

    #[test]
    fn a_terminating_object_without_finalizers_is_removed() {
        let registry = Registry::builtin();
        let store = Store::memory();
        let actions = |key: &Key, finalizers: &[&str]| {
            let metadata = json!({
                "name": "a", "uid": key.to_string(), "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers,
            });
            put(&store, key, &json!({ "metadata": metadata }));
            let state = store.read();
            let snapshot = Snapshot {
                state: &state,
                registry: &registry,
                namespace_resource: namespace_resource(&registry),
            };
            let steps = snapshot.steps(key);
            steps.into_iter().map(|step| step.action).collect::<Vec<_>>()
        };
        for key in [
            Key::new("configmaps", "default", "a"),
            Key::new("namespaces", "", "a"),
        ] {
            assert!(actions(&key, &["example.dev/hold"]).is_empty(), "{key}");
            assert_eq!(actions(&key, &[]), [Action::Remove], "{key}");
        }
    }

    #[test]
    fn an_owner_whose_definition_was_removed_is_not_a_deleted_one() {
        let spec = json!({
            "group": "tools.dev", "scope": "Namespaced", "names": {"plural": "tools", "kind": "Tool"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        });
        // The kinds follow the definitions a moment later.
        let registry = Registry::builtin().extended(resources_of_spec(&spec).unwrap());
        let store = Store::memory();
        let dependent = Key::new("configmaps", "default", "a");
        let owner = json!({"apiVersion": "tools.dev/v1", "kind": "Tool", "name": "a", "uid": "1"});
        let metadata = json!({"name": "a", "namespace": "default", "uid": "2", "ownerReferences": [owner]});
        put(&store, &dependent, &json!({"metadata": metadata}));
        let actions = || {
            let state = store.read();
            let snapshot = Snapshot {
                state: &state,
                registry: &registry,
                namespace_resource: namespace_resource(&registry),
            };
            let steps = snapshot.steps(&dependent);
            steps.into_iter().map(|step| step.action).collect::<Vec<_>>()
        };
        assert!(actions().is_empty());
        let definition = Key::new(DEFINITIONS, "", "tools.tools.dev");
        put(
            &store,
            &definition,
            &json!({"metadata": {"name": "tools.tools.dev", "uid": "3"}}),
        );
        assert_eq!(actions(), [Action::Delete(None)]);
    }
}
