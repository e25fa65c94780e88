//! A request for objects: path, parameters, response format, warnings and permissions.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::api::Api;
use super::escalation::EscalationCheck;
use super::event;
use super::negotiation::ResponseFormat;
use super::query::Query;
use super::route::ObjectPath;
use super::user_fields::UserFieldsCheck;
use crate::admission::{self, Endpoint};
use crate::apply::{Writer, differ_only_in_times};
use crate::depth::{self, MAX_DEPTH};
use crate::grant::ResourceAttributes;
use crate::meta;
use crate::rbac::{self, Attributes, Decision};
use crate::requester::Requester;
use crate::resource::{Registry, Resource, Strategy};
use crate::selector;
use crate::status_error::StatusError;
use crate::store::{Key, Origin, TransactionView, Write};

/// A request for objects.
#[derive(Clone, Debug)]
pub(crate) struct ObjectRequest {
    pub(crate) api: Arc<Api>,
    /// The kinds when the request began.
    pub(crate) registry: Arc<Registry>,
    /// The stored kind.
    pub(crate) resource: Arc<Resource>,
    /// The requested kind. It differs for `events.k8s.io`, a view of the core group's Events.
    pub(crate) requested_resource: Arc<Resource>,
    pub(crate) at: ObjectPath,
    pub(crate) query: Query,
    pub(crate) format: ResponseFormat,
    pub(crate) warnings: Warnings,
    /// Name of the field manager of a write; empty if unknown.
    pub(crate) field_manager: String,
    /// Verb of a write, for the history of the store: that of its authorization, or `apply`.
    pub(crate) write_verb: &'static str,
    /// Who sent it.
    pub(crate) requester: Arc<Requester>,
}

/// Texts of `Warning` headers, collected during a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Creates the warnings of a request; a deprecated version adds one.
    pub(super) fn of(resource: &Resource) -> Self {
        let warnings = Self::default();
        if let Some(text) = &resource.deprecation_warning {
            warnings.push(text.clone());
        }
        warnings
    }

    /// Adds a warning, once: a write that decides again repeats its warnings.
    pub(crate) fn push(&self, text: String) {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }

    /// Returns all warnings.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ObjectRequest {
    /// Authorizes the request for the object of this name, or for a collection. Returns the label selector to apply.
    pub(crate) fn authorize(&self, verb: &str, name: &str) -> Result<String, StatusError> {
        let selector = &self.query.label_selector;
        let plural = &self.resource.plural;
        let resource = match self.at.subresource.as_str() {
            "" => plural.clone(),
            sub => format!("{plural}/{sub}"),
        };
        let attributes = ResourceAttributes {
            verb,
            group: &self.requested_resource.group,
            resource: &resource,
            namespace: self.attribute_namespace(),
            name,
            selector,
        };
        match &*self.requester {
            Requester::Limited(grant) => {
                let allowed = grant.allows(ResourceAttributes {
                    group: &self.resource.group,
                    namespace: &self.at.namespace,
                    ..attributes
                });
                allowed.ok_or_else(|| StatusError::forbidden(&self.resource, name, verb))
            }
            Requester::User(user) if user.is_administrator() => Ok(selector.clone()),
            Requester::User(user) => {
                let attributes = Attributes::Resource(attributes);
                match rbac::authorize(user, attributes, &self.api.roles()) {
                    Decision::Allowed(_) => Ok(selector.clone()),
                    Decision::Denied(reason) => Err(StatusError::denied(user, attributes, &reason)),
                }
            }
        }
    }

    /// Returns the namespace for authorization. As in kube-apiserver, a namespace is in itself.
    fn attribute_namespace(&self) -> &str {
        if self.resource.strategy == Strategy::Namespace {
            &self.at.name
        } else {
            &self.at.namespace
        }
    }

    /// Returns the name for the authorization of a user: that of the path, or for a collection the one that a field selector
    /// requires, as in kube-apiserver.
    pub(crate) fn attribute_name(&self, verb: &str) -> Cow<'_, str> {
        if !self.at.name.is_empty() || !matches!(verb, "list" | "watch" | "deletecollection") {
            return Cow::Borrowed(&self.at.name);
        }
        match selector::required_name(&self.query.field_selector) {
            Some(name) if !name.contains(['/', '%', '\\']) => Cow::Owned(name),
            _ => Cow::Borrowed(""),
        }
    }

    /// Returns the endpoint of a write; 404 for a subresource that the kind does not have.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, StatusError> {
        match self.at.subresource.as_str() {
            "" => Ok(Endpoint::Main),
            "status" if self.resource.has_status => Ok(Endpoint::Status),
            "finalize" if self.resource.strategy == Strategy::Namespace => Ok(Endpoint::Finalize),
            _ if self.resource.strategy == Strategy::Custom => {
                Err(StatusError::not_found(&self.resource, &self.at.name))
            }
            _ => Err(StatusError::resource_not_found()),
        }
    }

    /// Returns the writer of a request, for the ownership of fields.
    pub(crate) fn writer(&self, endpoint: Endpoint) -> Writer {
        Writer {
            resource: self.resource.clone(),
            endpoint,
            manager: self.field_manager.clone(),
            served_versions: self.registry.served_versions(&self.resource),
        }
    }

    /// Returns the key of the object with this name.
    pub(crate) fn key(&self, name: &str) -> Key {
        Key::new(self.resource.group_resource(), &self.at.namespace, name)
    }

    /// Returns 405 with the message for this kind.
    pub(crate) fn method_not_allowed(&self, verb: &str) -> StatusError {
        let is_custom = self.resource.strategy == Strategy::Custom;
        StatusError::method_not_allowed(is_custom.then_some((&*self.resource, verb)))
    }

    /// Runs a write; a dry run only decides it. A write of a role or binding is checked for privilege escalation, and one of fields that
    /// name the user for other names.
    pub(crate) async fn write<F>(&self, key: Key, decide: F) -> Result<Arc<Value>, StatusError>
    where
        F: Fn(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'static,
    {
        let decide = with_checks(WriteChecks::of(self), key.clone(), decide);
        if !self.query.dry_run {
            return self.api.store.write_as(self.origin(), key, decide).await;
        }
        match decide(&TransactionView::of(&self.api.store.read()))? {
            Write::Put(object) | Write::Remove(object) => Ok(Arc::new(object)),
            Write::Unchanged(object) => Ok(object),
        }
    }

    fn origin(&self) -> Origin {
        Origin {
            user: self.requester.user().name.clone(),
            manager: self.field_manager.clone(),
            subresource: self.at.subresource.clone(),
            verb: self.write_verb,
        }
    }

    /// Converts a stored object to the requested version, without renaming fields: the input of columns.
    pub(crate) fn to_requested_version(&self, object: &Arc<Value>) -> Arc<Value> {
        to_version(&self.resource, object)
    }

    /// Converts a stored object to the requested kind and version.
    pub(crate) fn to_requested(&self, object: &Arc<Value>) -> Arc<Value> {
        let object = self.to_requested_version(object);
        if self.resource.group == self.requested_resource.group {
            object
        } else {
            Arc::new(event::to_events_v1(&object))
        }
    }
}

/// The checks of a write that need the object as it is stored.
#[derive(Default)]
struct WriteChecks {
    escalation: Option<EscalationCheck>,
    user_fields: Option<UserFieldsCheck>,
    /// The warnings of the request, if its kind gets those about finalizers.
    warnings: Option<Warnings>,
}

impl WriteChecks {
    fn of(request: &ObjectRequest) -> Self {
        let is_custom = request.resource.strategy == Strategy::Custom;
        Self {
            escalation: EscalationCheck::of(request),
            user_fields: UserFieldsCheck::of(request),
            warnings: is_custom.then(|| request.warnings.clone()),
        }
    }

    fn check(&self, old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
        check_depth(old, new)?;
        if let Some(check) = &self.escalation {
            check.check(old, new)?;
        }
        if let Some(check) = &self.user_fields {
            check.check(old, new)?;
        }
        if let Some(warnings) = &self.warnings {
            for text in admission::finalizer_warnings(old, new) {
                warnings.push(text);
            }
        }
        Ok(())
    }
}

/// Adds checks to the decision of a write.
fn with_checks<F>(
    checks: WriteChecks,
    key: Key,
    decide: F,
) -> impl Fn(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'static
where
    F: Fn(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'static,
{
    move |state| {
        let decision = decide(state)?;
        if let Write::Put(object) = &decision {
            checks.check(state.get(&key).map(|old| &**old), object)?;
        }
        Ok(decision)
    }
}

/// Checks that a write does not make an object so deep that it could not be read again.
fn check_depth(old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
    let is_deep = |object: &Value| !depth::is_within(object, MAX_DEPTH);
    if is_deep(new) && !old.is_some_and(is_deep) {
        let reason = format!("the object has more than {MAX_DEPTH} levels of lists and maps");
        return Err(StatusError::bad_request(reason));
    }
    Ok(())
}

/// Converts a stored object to the version of `resource`: conversion strategy `None`, pruned and defaulted by that version.
pub(crate) fn to_version(resource: &Resource, object: &Arc<Value>) -> Arc<Value> {
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

/// Decides the write of an update: an unchanged object is kept, a terminating one without finalizers removed.
pub(crate) fn decide_write(resource: &Resource, new: Value, old: &Arc<Value>) -> Write {
    let mut new = new;
    new["apiVersion"] = resource.storage_api_version().into();
    let finalizers = new["spec"]["finalizers"].as_array();
    let has_spec_finalizers =
        resource.strategy == Strategy::Namespace && finalizers.is_some_and(|list| !list.is_empty());
    if meta::is_deleting(&new) && meta::finalizers(&new).is_empty() && !has_spec_finalizers {
        return Write::Remove(new);
    }
    let version = old["metadata"]["resourceVersion"].clone();
    meta::set(&mut new, "resourceVersion", version);
    if new == **old || differ_only_in_times(&new, old) {
        Write::Unchanged(old.clone())
    } else {
        Write::Put(new)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Store;

    #[test]
    fn a_write_stores_no_deep_object() {
        let store = Store::memory();
        let code = |levels: usize| {
            let object = (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
            let put = move |_: &TransactionView<'_>| Ok(Write::Put(object.clone()));
            let decide = with_checks(
                WriteChecks::default(),
                Key::new("configmaps", "default", "a"),
                put,
            );
            let decision = decide(&TransactionView::of(&store.read()));
            decision.map_or_else(|error| error.code(), |_| 200)
        };
        assert_eq!(code(MAX_DEPTH), 200);
        assert_eq!(code(MAX_DEPTH + 1), 400);
    }
}
