//! Ownership of fields: `metadata.managedFields` and server-side apply, after structured-merge-diff and apimachinery's
//! `managedfields`. Pure except for the time of entries.
//!
//! * [`Writer::track`] records a create, update or patch: its changes belong to the writer.
//! * [`Writer::apply`] merges a configuration: its fields belong to the writer, and fields that it no longer contains are removed.

mod compare;
mod field_set;
mod fields_of;
mod last_applied;
mod list;
mod managers;
mod merge;
#[cfg(test)]
mod merge_tests;
mod path;
#[cfg(test)]
mod property_tests;
mod shape;
mod update;

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use self::field_set::FieldSet;
pub(crate) use self::managers::differ_only_in_times;
use self::managers::{Identity, Managers, Operation};
use self::path::Element;
pub(crate) use self::shape::{Shape, builtin_schema};
use self::update::{Conflict, Rules, UpdateError};
use crate::admission::Endpoint;
use crate::cause::Cause;
use crate::meta;
use crate::resource::{Resource, Strategy};
use crate::status_error::StatusError;

/// The manager of the fields that an object had before its first apply, if none was known.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager of `kubectl apply --server-side`, which may take over what `kubectl apply` wrote.
const KUBECTL: &str = "kubectl";

static NULL: Value = Value::Null;

/// Fields without managers.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    let top = ["apiVersion", "kind", "metadata"].map(|name| vec![Element::field(name)]);
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let metadata = metadata.map(|name| vec![Element::field("metadata"), Element::field(name)]);
    FieldSet::of(top.into_iter().chain(metadata))
});

/// The writer of an object, for the ownership of fields.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    /// Kind of the object, in the version of the request.
    pub(crate) resource: Arc<Resource>,
    /// Endpoint of the write.
    pub(crate) endpoint: Endpoint,
    /// Name of the field manager; empty if unknown.
    pub(crate) manager: String,
    /// The served `apiVersion`s of the kind: entries of other versions are dropped.
    pub(crate) served_versions: Vec<String>,
}

impl Writer {
    /// Records a write other than apply in `new.metadata.managedFields`. `live` is the stored object in the version of the request;
    /// `None` for a creation. An object without managers stays without until its first apply.
    pub(crate) fn track(&self, live: Option<&Value>, new: &mut Value) {
        let given = take_managed_fields(new);
        let stored = live.map_or(&NULL, |live| &live["metadata"]["managedFields"]);
        let mut managers = self.managers_of_update(&given, stored);
        if managers.is_empty() && live.is_some() {
            return;
        }
        let empty = live.is_none().then(|| self.empty_object());
        let before = live.or(empty.as_ref()).unwrap_or(&NULL);
        let encoded = match self.record(before, new, &mut managers, &self.manager) {
            Ok(()) => managers::encode(&managers),
            // As upstream, an error of ownership fails no write.
            Err(_) => stored.clone(),
        };
        meta::set(new, "managedFields", encoded);
    }

    /// Returns the managers before an update. Clients may write `managedFields` at the main endpoint; an empty list or entry resets
    /// them, and what does not decode is ignored.
    fn managers_of_update(&self, given: &Value, stored: &Value) -> Managers {
        let is_reset = given
            .as_array()
            .is_some_and(|entries| entries.is_empty() || (entries.len() == 1 && entries[0] == json!({})));
        let mut managers = if self.endpoint == Endpoint::Main && is_reset {
            Managers::new()
        } else if self.endpoint == Endpoint::Main
            && let Some(given) = managers::decode(given).filter(|given| !given.is_empty())
        {
            given
        } else {
            managers::decode(stored).unwrap_or_default()
        };
        self.drop_unserved(&mut managers);
        managers
    }

    fn drop_unserved(&self, managers: &mut Managers) {
        managers.retain(|_, owned| self.served_versions.contains(&owned.api_version));
    }

    /// Adds the changes between two objects to the entry of `manager`.
    fn record(
        &self,
        before: &Value,
        new: &Value,
        managers: &mut Managers,
        manager: &str,
    ) -> Result<(), UpdateError> {
        let current = Identity::current();
        self.rules().update(before, new, managers, &current)?;
        if let Some(mut owned) = managers.remove(&current) {
            owned.set = owned.set.difference(&UNOWNED);
            if !owned.set.is_empty() {
                let identity = self.identity(manager, Operation::Update);
                if let Some(previous) = managers.get(&identity) {
                    owned.set = owned.set.union(&previous.set);
                }
                owned.time = Some(meta::now());
                managers.insert(identity, owned);
            }
        }
        managers::cap(managers);
        Ok(())
    }

    /// Applies a configuration. Returns the new object with its `managedFields`; it is not normalized. `live` is the stored object
    /// in the version of the request; `None` for a creation.
    ///
    /// # Errors
    /// 400 if the configuration has another kind or `managedFields`; 409 for conflicts without `force`; 500 for fields that the schema
    /// does not declare, as in kube-apiserver.
    pub(crate) fn apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<Value, StatusError> {
        self.check(config)?;
        let empty = self.empty_object();
        let before = live.map_or_else(|| empty.clone(), without_managed_fields);
        let stored = live.map_or(&NULL, |live| &live["metadata"]["managedFields"]);
        let mut managers = managers::decode(stored).unwrap_or_default();
        self.drop_unserved(&mut managers);
        if managers.is_empty() {
            self.record(&empty, &before, &mut managers, BEFORE_FIRST_APPLY)
                .map_err(|error| apply_error(&error))?;
        }
        let outcome = match self.apply_once(&before, config, &managers, force) {
            Err(UpdateError::Conflicts(conflicts)) if self.manager == KUBECTL => {
                match self.conflicts_of_others(&before, conflicts) {
                    remaining if remaining.is_empty() => self.apply_once(&before, config, &managers, true),
                    remaining => Err(UpdateError::Conflicts(remaining)),
                }
            }
            outcome => outcome,
        };
        let mut new = outcome.map_err(|error| apply_error(&error))?;
        if self.manager == KUBECTL {
            last_applied::update(&mut new, config);
        }
        Ok(new)
    }

    fn apply_once(
        &self,
        before: &Value,
        config: &Value,
        managers: &Managers,
        force: bool,
    ) -> Result<Value, UpdateError> {
        let mut managers = managers.clone();
        let identity = self.identity(&self.manager, Operation::Apply);
        let mut new = self
            .rules()
            .apply(before, config, &mut managers, &identity, force)?;
        if let Some(owned) = managers.get_mut(&identity) {
            owned.set = owned.set.difference(&UNOWNED);
            if new != *before {
                owned.time = Some(meta::now());
            }
        }
        managers.retain(|_, owned| !owned.set.is_empty());
        meta::set(&mut new, "managedFields", managers::encode(&managers));
        Ok(new)
    }

    /// Returns the conflicts with fields that `kubectl apply` did not write.
    fn conflicts_of_others(&self, before: &Value, conflicts: Vec<Conflict>) -> Vec<Conflict> {
        let rules = self.rules();
        let Some(allowed) = last_applied::fields(rules.shape, rules.api_version, before) else {
            return conflicts;
        };
        let others = conflicts.into_iter();
        others.filter(|conflict| !allowed.has(&conflict.path)).collect()
    }

    /// Checks a configuration before it is merged.
    fn check(&self, config: &Value) -> Result<(), StatusError> {
        let text = |field: &str| config[field].as_str().unwrap_or("");
        let (version, kind) = (text("apiVersion"), text("kind"));
        let expected = self.resource.api_version();
        if version != expected || kind != self.resource.kind {
            return Err(StatusError::bad_request(format!(
                "invalid object type: {version}, Kind={kind}"
            )));
        }
        if !config["metadata"]["managedFields"].is_null() {
            return Err(StatusError::bad_request("metadata.managedFields must be nil"));
        }
        let errors = fields_of::errors(self.resource.shape(), config);
        let listed = match errors.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            many => format!("errors:\n  {}", many.join("\n  ")),
        };
        Err(StatusError::not_typed(format!(
            "failed to create typed patch object ({}/{}; {version}, Kind={kind}): {listed}",
            meta::namespace(config),
            meta::name(config)
        )))
    }

    fn identity(&self, manager: &str, operation: Operation) -> Identity {
        let subresource = match self.endpoint {
            Endpoint::Main => "",
            Endpoint::Status => "status",
            Endpoint::Scale => "scale",
            Endpoint::Finalize => "finalize",
        };
        Identity::new(manager, operation, &self.resource.api_version(), subresource)
    }

    fn rules(&self) -> Rules<'_> {
        let is_custom = self.resource.strategy == Strategy::Custom;
        let stores: fn(&str) -> bool = match self.endpoint {
            Endpoint::Main | Endpoint::Scale if self.resource.has_status => |field| field != "status",
            Endpoint::Main | Endpoint::Scale => |_| true,
            Endpoint::Status if is_custom => |field| !matches!(field, "metadata" | "spec"),
            Endpoint::Status => |field| field != "spec",
            Endpoint::Finalize => |field| field != "status",
        };
        Rules {
            shape: self.resource.shape(),
            api_version: self.served_version(),
            stores,
        }
    }

    /// Returns the version of the request, which is served.
    fn served_version(&self) -> &str {
        let version = self.resource.api_version();
        let served = self.served_versions.iter().find(|served| **served == version);
        served.map_or("", String::as_str)
    }

    /// Returns the object that a creation starts from.
    fn empty_object(&self) -> Value {
        let mut object = json!({"apiVersion": self.resource.api_version(), "kind": self.resource.kind});
        if self.resource.strategy == Strategy::Event {
            // Fields that Go's type writes also if they are empty.
            for (field, empty) in [
                ("involvedObject", json!({})),
                ("source", json!({})),
                ("reportingComponent", json!("")),
                ("reportingInstance", json!("")),
                ("firstTimestamp", Value::Null),
                ("lastTimestamp", Value::Null),
                ("eventTime", Value::Null),
            ] {
                object[field] = empty;
            }
        }
        object
    }
}

fn take_managed_fields(object: &mut Value) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    metadata
        .and_then(|metadata| metadata.remove("managedFields"))
        .unwrap_or_default()
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    drop(take_managed_fields(&mut object));
    object
}

fn apply_error(error: &UpdateError) -> StatusError {
    match error {
        UpdateError::Merge(text) => StatusError::not_typed(format!("failed to merge config: {text}")),
        UpdateError::Conflicts(conflicts) => {
            let causes: Vec<Cause> = conflicts
                .iter()
                .map(|conflict| Cause {
                    reason: "FieldManagerConflict",
                    field: path::display(&conflict.path),
                    message: format!("conflict with {}", conflict.owner),
                })
                .collect();
            StatusError::apply_conflict(update::conflict_message(conflicts), &causes)
        }
    }
}
