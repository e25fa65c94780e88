//! One request on objects: who is asked, where, how, and what must be warned about.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::{Api, StatusError, event, negotiate::Wanted, query::Query, route::Objects};
use crate::{
    admit::Part,
    grant::{Asked, Grant},
    meta,
    resource::{Family, Resource},
    store::{Key, View, Write},
};

/// A request on objects.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) api: Arc<Api>,
    /// The kind that is stored.
    pub(crate) resource: Arc<Resource>,
    /// The kind that was asked for: another one for `events.k8s.io`, which shows Events of the core group.
    pub(crate) shown: Arc<Resource>,
    pub(crate) at: Objects,
    pub(crate) query: Query,
    pub(crate) wanted: Wanted,
    pub(crate) warnings: Warnings,
    /// What the caller may do; nothing for one who may do everything.
    pub(crate) grant: Option<Arc<Grant>>,
}

/// Texts of `Warning` headers, gathered while a request is worked on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a text.
    pub(crate) fn push(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// All texts so far.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Call {
    /// A request, warned about a deprecated version.
    pub(crate) fn new(
        api: Arc<Api>,
        resource: Arc<Resource>,
        shown: Arc<Resource>,
        at: Objects,
        query: Query,
        wanted: Wanted,
    ) -> Self {
        let warnings = Warnings::default();
        if let Some(text) = &resource.deprecation {
            warnings.push(text.clone());
        }
        Self {
            api,
            resource,
            shown,
            at,
            query,
            wanted,
            warnings,
            grant: None,
        }
    }

    /// Refuses what the caller may not do on an object of this name, or on a collection; gives the label selector that a list is
    /// answered with.
    pub(crate) fn allowed(&self, verb: &str, name: &str) -> Result<String, StatusError> {
        let Some(grant) = &self.grant else {
            return Ok(self.query.labels.clone());
        };
        let resource = match self.at.subresource.as_str() {
            "" => self.resource.plural.clone(),
            sub => format!("{}/{sub}", self.resource.plural),
        };
        let allowed = grant.allows(Asked {
            verb,
            group: &self.resource.group,
            resource: &resource,
            namespace: &self.at.namespace,
            name,
            selector: &self.query.labels,
        });
        allowed.ok_or_else(|| StatusError::forbidden(&self.resource, name, verb))
    }

    /// The part of the object that a write is about; 404 for a subresource that the kind does not have.
    pub(crate) fn part(&self) -> Result<Part, StatusError> {
        match self.at.subresource.as_str() {
            "" => Ok(Part::Main),
            "status" if self.resource.status => Ok(Part::Status),
            "finalize" if self.resource.family == Family::Namespace => Ok(Part::Finalize),
            _ if self.resource.family == Family::Custom => {
                Err(StatusError::not_found(&self.resource, &self.at.name))
            }
            _ => Err(StatusError::no_such_path()),
        }
    }

    /// The key of the object with this name.
    pub(crate) fn key(&self, name: &str) -> Key {
        Key::new(self.resource.id(), &self.at.namespace, name)
    }

    /// 405, worded as the API server words it for this family of kinds.
    pub(crate) fn not_allowed(&self, verb: &str) -> StatusError {
        let custom = self.resource.family == Family::Custom;
        StatusError::method_not_allowed(custom.then_some((&*self.resource, verb)))
    }

    /// Runs a write, or only its decision when the request is a dry run.
    pub(crate) async fn commit<F>(&self, key: Key, decide: F) -> Result<Arc<Value>, StatusError>
    where
        F: FnOnce(&View<'_>) -> Result<Write, StatusError> + Send + 'static,
    {
        if !self.query.dry_run {
            return self.api.store.write(key, decide).await;
        }
        match decide(&View::of(&self.api.store.read()))? {
            Write::Put(object) | Write::Remove(object) => Ok(Arc::new(object)),
            Write::Keep(object) => Ok(object),
        }
    }

    /// A stored object in the version that was asked for, with the fields of the stored kind: what columns read.
    pub(crate) fn versioned(&self, object: &Arc<Value>) -> Arc<Value> {
        present(&self.resource, object)
    }

    /// A stored object in the version that was asked for.
    pub(crate) fn present(&self, object: &Arc<Value>) -> Arc<Value> {
        let object = self.versioned(object);
        if self.resource.group == self.shown.group {
            object
        } else {
            Arc::new(event::shown(&object))
        }
    }
}

/// A stored object in the version of `resource`: conversion strategy `None`, with the fields of that version.
pub(crate) fn present(resource: &Resource, object: &Arc<Value>) -> Arc<Value> {
    let version = resource.api_version();
    if object["apiVersion"] == version.as_str() {
        return object.clone();
    }
    let mut object = Value::clone(object);
    object["apiVersion"] = version.into();
    if let Some(schema) = &resource.schema {
        schema.prune(&mut object);
        schema.default(&mut object);
    }
    Arc::new(object)
}

/// What a settled write does to the store: nothing new is kept, an object without its last finalizer goes.
pub(crate) fn settle(resource: &Resource, new: Value, old: &Arc<Value>) -> Write {
    let mut new = new;
    new["apiVersion"] = resource.stored_api_version().into();
    let kept_by_spec = resource.family == Family::Namespace
        && new["spec"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
    if meta::is_deleting(&new) && meta::finalizers(&new).is_empty() && !kept_by_spec {
        return Write::Remove(new);
    }
    meta::set(
        &mut new,
        "resourceVersion",
        old["metadata"]["resourceVersion"].clone(),
    );
    if new == **old {
        Write::Keep(old.clone())
    } else {
        Write::Put(new)
    }
}
