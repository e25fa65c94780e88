//! CustomResourceDefinitions as objects: which are served, their conditions, and their deletion.
//!
//! A task examines all stored definitions after each change of one. It writes conditions and accepted names, replaces the kinds of the
//! server, and deletes the objects of a deleted definition. A write of a definition is answered when the task has seen it. The task does
//! not examine the definitions that the program contains: they are always served, and read-only. [`read_only`] admits those that it reads
//! from files.

mod names;
mod read_only;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use http::Method;
use serde_json::{Value, json};

use self::names::{DefinitionNames, UsedNames};
pub use self::read_only::{DefinitionProblem, read_only_definition};
use crate::meta;
use crate::resource::{Registry, Resource, Strategy, resources_of_spec};
use crate::revisions::Revisions;
use crate::service::{Api, ObjectRequest, decide_deletion, decide_write};
use crate::status_error::StatusError;
use crate::store::{Key, Write};

/// The group resource of definitions.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The finalizer of a deleted definition until its objects are deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Annotation of the definitions that the program contains. Requests cannot set it.
pub(crate) const ORIGIN: &str = "sluice.dev/origin";
/// The value of [`ORIGIN`].
pub(crate) const PROGRAM: &str = "program";
/// Maximum number of definitions, with those of the program.
pub(crate) const MAX_DEFINITIONS: usize = 256;

/// Whether the program contains the definition.
pub(crate) fn is_own(definition: &Value) -> bool {
    definition["metadata"]["annotations"][ORIGIN] == PROGRAM
}

/// Sets the condition of a definition whose deletion is requested.
pub(crate) fn set_deletion_pending(definition: &mut Value) {
    let condition = Condition {
        type_: "Terminating",
        holds: true,
        reason: "InstanceDeletionPending",
        message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
            .into(),
    };
    let conditions = merged(&definition["status"]["conditions"], &[condition]);
    definition["status"]["conditions"] = conditions;
}

/// Refuses a definition that the store cannot keep.
pub(crate) fn check_creation(request: &ObjectRequest, method: &Method) -> Result<(), StatusError> {
    if ![Method::POST, Method::PUT, Method::PATCH].contains(method) {
        return Ok(());
    }
    let (api, name) = (&request.api, request.at.name.as_str());
    let (exists, count) = {
        let state = api.store.read();
        (
            state.get(&request.key(name)).is_some(),
            state.list(DEFINITIONS, "").len(),
        )
    };
    if exists || count < MAX_DEFINITIONS {
        return Ok(());
    }
    let reason = too_many(count);
    Err(StatusError::definition_refused(&request.resource, name, &reason))
}

/// Returns why there can be no further definition beside this number of them.
pub(crate) fn too_many(count: usize) -> String {
    format!("there are {count} definitions, the limit is {MAX_DEFINITIONS}")
}

/// The kinds of a served definition.
#[derive(Clone, Debug)]
struct Served {
    /// The spec, with the accepted names.
    spec: Value,
    resources: Vec<Arc<Resource>>,
}

/// A condition that a definition must have.
struct Condition {
    type_: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

/// Serves the stored definitions.
#[derive(Debug)]
pub(crate) struct Reconciler {
    /// The kinds of the program.
    own: Arc<Registry>,
    /// The served definitions by name.
    served: BTreeMap<String, Served>,
    /// Whether nothing is left to do until the next change of a definition.
    settled: bool,
}

/// Runs until the server is stopped or dropped.
pub(crate) async fn run(api: Weak<Api>, mut reconciler: Reconciler) {
    let Some(mut revisions) = Revisions::of(api) else {
        return;
    };
    let mut observed = 0;
    while let Some(api) = revisions.next().await {
        let (changed, revision) = changes(&api, observed);
        if changed || !reconciler.settled {
            let shared = api.clone();
            let work = tokio::task::spawn_blocking(move || {
                reconciler.reconcile(&shared);
                reconciler
            });
            let Ok(returned) = work.await else {
                tracing::error!("definitions are no longer examined");
                return;
            };
            reconciler = returned;
        }
        observed = revision;
        api.set_served_revision(revision);
    }
}

/// Whether a definition has changed since `observed`, and the examined revision.
fn changes(api: &Api, observed: u64) -> (bool, u64) {
    let state = api.store.read();
    let changed = match state.changes_since(observed) {
        Ok(changes) => changes.iter().any(|change| change.key.resource == DEFINITIONS),
        Err(_) => true,
    };
    (changed, state.revision())
}

impl Reconciler {
    /// Creates the reconciler of a server whose program contains these kinds.
    pub(crate) const fn new(own: Arc<Registry>) -> Self {
        Self {
            own,
            served: BTreeMap::new(),
            settled: false,
        }
    }

    /// Updates kinds and conditions to match the stored definitions. Blocks.
    pub(crate) fn reconcile(&mut self, api: &Api) {
        let stored = api.store.read().list(DEFINITIONS, "");
        let mut settled = true;
        for definition in stored.iter().filter(|definition| meta::is_deleting(definition)) {
            settled &= logged(clean_up(api, definition));
        }
        let mut definitions = api.store.read().list(DEFINITIONS, "");
        definitions.retain(|definition| !is_own(definition));
        let mut accepted: BTreeMap<String, DefinitionNames> = definitions
            .iter()
            .map(|definition| {
                (
                    meta::name(definition).to_owned(),
                    DefinitionNames::accepted(definition),
                )
            })
            .collect();
        let mut served = BTreeMap::new();
        let mut statuses = Vec::new();
        for definition in &definitions {
            let used = UsedNames::beside(definition, &self.own, &accepted);
            let (names, conflict) = accepted_names(definition, &used);
            let conditions = conditions(definition, conflict);
            let name = meta::name(definition).to_owned();
            if conditions.iter().any(|c| c.type_ == "Established" && c.holds)
                && let Some(entry) = self.serve(definition, &names)
            {
                served.insert(name.clone(), entry);
            }
            accepted.insert(name, names.clone());
            statuses.push((definition, names, conditions));
        }
        self.replace(api, served);
        // The kinds are replaced first, so that a client that sees the condition can use the kind.
        for (definition, names, conditions) in statuses {
            settled &= logged(write_status(api, definition, &names, &conditions));
            settled &= !meta::is_deleting(definition);
        }
        self.settled = settled;
    }

    /// Returns the kinds of a definition; those of an unchanged one remain the same.
    fn serve(&self, definition: &Value, names: &DefinitionNames) -> Option<Served> {
        let name = meta::name(definition);
        let mut spec = definition["spec"].clone();
        spec["names"] = names.to_value();
        // A user who may write the status can accept any name. A further version of a kind of the program would lack its checks, for
        // example those of roles.
        let (group, plural) = (&spec["group"], &spec["names"]["plural"]);
        let is_same = |own: &Arc<Resource>| *group == own.group.as_str() && *plural == own.plural.as_str();
        if self.own.all().iter().any(is_same) {
            return None;
        }
        if let Some(served) = self.served.get(name).filter(|served| served.spec == spec) {
            return Some(served.clone());
        }
        match resources_of_spec(&spec) {
            Ok(resources) => Some(Served { spec, resources }),
            // Validated when it was written, but perhaps by an earlier program.
            Err(error) => {
                tracing::error!(definition = name, error, "a stored definition cannot be served");
                None
            }
        }
    }

    /// Serves these definitions and those of the program.
    fn replace(&mut self, api: &Api, served: BTreeMap<String, Served>) {
        let is_same = |(name, served): (&String, &Served)| {
            self.served.get(name).is_some_and(|old| old.spec == served.spec)
        };
        let unchanged = served.len() == self.served.len() && served.iter().all(is_same);
        self.served = served;
        if !unchanged {
            let more = self
                .served
                .values()
                .flat_map(|served| served.resources.iter().cloned());
            api.replace_registry(Arc::new(self.own.extended(more)));
        }
    }
}

/// Returns the names that are accepted now, and the conflict if others have the requested ones.
fn accepted_names(definition: &Value, used: &UsedNames) -> (DefinitionNames, Option<(&'static str, String)>) {
    let requested = DefinitionNames::requested(definition);
    DefinitionNames::accepted(definition).accept(&requested, used)
}

/// Returns the conditions that a definition must have.
fn conditions(definition: &Value, conflict: Option<(&'static str, String)>) -> Vec<Condition> {
    let existing = definition["status"]["conditions"].as_array();
    let mut existing = existing.into_iter().flatten();
    let was_established = existing.any(|c| c["type"] == "Established" && c["status"] == "True");
    let accepted = conflict.is_none();
    let (reason, message) = conflict.unwrap_or_else(|| ("NoConflicts", "no conflicts found".to_owned()));
    let condition = |type_, holds, reason, message| Condition {
        type_,
        holds,
        reason,
        message,
    };
    let established = if accepted || was_established {
        let message = "the initial names have been accepted";
        condition("Established", true, "InitialNamesAccepted", message.to_owned())
    } else {
        let message = "not all names are accepted";
        condition("Established", false, "NotAccepted", message.to_owned())
    };
    let mut conditions = vec![condition("NamesAccepted", accepted, reason, message), established];
    if meta::is_deleting(definition) {
        let message = "CustomResource deletion is in progress";
        let reason = "InstanceDeletionInProgress";
        conditions.push(condition("Terminating", true, reason, message.to_owned()));
    }
    conditions
}

/// Writes accepted names and conditions, unless the definition has changed in the meantime.
fn write_status(
    api: &Api,
    definition: &Value,
    names: &DefinitionNames,
    conditions: &[Condition],
) -> Result<(), StatusError> {
    let key = Key::new(DEFINITIONS, "", meta::name(definition));
    let outcome = api.store.write_now(&key, |state| {
        let Some(current) = state.get(&key) else {
            return Ok(Write::Unchanged(Arc::default()));
        };
        if meta::uid(current) != meta::uid(definition) || current["spec"] != definition["spec"] {
            return Ok(Write::Unchanged(current.clone()));
        }
        let mut updated = Value::clone(current);
        updated["status"]["acceptedNames"] = names.to_value();
        updated["status"]["conditions"] = merged(&current["status"]["conditions"], conditions);
        Ok(if updated == **current {
            Write::Unchanged(current.clone())
        } else {
            Write::Put(updated)
        })
    });
    outcome.map(drop)
}

/// Sets conditions in a list. One whose status stays keeps its time.
fn merged(existing: &Value, conditions: &[Condition]) -> Value {
    let mut list = existing.as_array().cloned().unwrap_or_default();
    for condition in conditions {
        let status = if condition.holds { "True" } else { "False" };
        let at = list.iter().position(|c| c["type"] == condition.type_);
        let since = at.and_then(|at| list.get(at)).filter(|c| c["status"] == status);
        let since = since.map_or_else(|| json!(meta::now()), |c| c["lastTransitionTime"].clone());
        let entry = json!({
            "type": condition.type_, "status": status, "reason": condition.reason,
            "message": condition.message, "lastTransitionTime": since,
        });
        match at.and_then(|at| list.get_mut(at)) {
            Some(place) => *place = entry,
            None => list.push(entry),
        }
    }
    Value::Array(list)
}

/// Deletes the objects of a deleted definition, and its finalizer when none is left.
fn clean_up(api: &Api, definition: &Value) -> Result<(), StatusError> {
    let id = meta::name(definition);
    if !meta::finalizers(definition).contains(&CLEANUP) {
        return Ok(());
    }
    let registry = api.registry();
    // Any version: the deletion does not depend on it.
    let resource = registry
        .all()
        .iter()
        .find(|resource| resource.group_resource() == id);
    let objects = api.store.read().list(id, "");
    for object in &objects {
        let key = Key::new(id, meta::namespace(object), meta::name(object));
        api.store.write_now(&key, |state| {
            Ok(match (state.get(&key), resource) {
                (None, _) => Write::Unchanged(Arc::default()),
                (Some(current), Some(resource)) => decide_deletion(resource, current, None),
                (Some(current), None) => Write::Remove(Value::clone(current)),
            })
        })?;
    }
    let is_empty = api.store.read().list(id, "").is_empty();
    match registry.by_strategy(Strategy::Definition) {
        Some(resource) if is_empty => remove_finalizer(api, resource, definition),
        _ => Ok(()),
    }
}

/// Removes the finalizer of a definition without objects, and by that the definition.
fn remove_finalizer(api: &Api, resource: &Resource, definition: &Value) -> Result<(), StatusError> {
    let key = Key::new(DEFINITIONS, "", meta::name(definition));
    let outcome = api.store.write_now(&key, |state| {
        let Some(current) = state.get(&key) else {
            return Ok(Write::Unchanged(Arc::default()));
        };
        if meta::uid(current) != meta::uid(definition) {
            return Ok(Write::Unchanged(current.clone()));
        }
        let mut remaining = meta::finalizers(current);
        remaining.retain(|name| *name != CLEANUP);
        let remaining = Some(remaining).filter(|list| !list.is_empty());
        let mut updated = Value::clone(current);
        meta::set(&mut updated, "finalizers", json!(remaining));
        Ok(decide_write(resource, updated, current))
    });
    outcome.map(drop)
}

/// Logs an error; the next change of any object triggers another attempt.
fn logged(outcome: Result<(), StatusError>) -> bool {
    outcome
        .inspect_err(|error| {
            tracing::warn!(error = error.message(), "cannot write a definition yet");
        })
        .is_ok()
}
