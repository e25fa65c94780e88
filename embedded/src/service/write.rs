//! create and update.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::body;
use super::request::{ObjectRequest, decide_write, to_version};
use super::response::Reply;
use crate::admission::{self, Endpoint};
use crate::apply::Writer;
use crate::definitions::{DEFINITIONS, is_own};
use crate::meta;
use crate::resource::{Resource, Strategy};
use crate::status_error::StatusError;
use crate::store::{Key, TransactionView, Write};

/// Attempts with `generateName` before the response is `AlreadyExists`.
const GENERATE_NAME_ATTEMPTS: usize = 8;

/// POST on a collection.
pub(super) async fn create(
    request: &ObjectRequest,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let mut object = body::decode_object(request, bytes, content_type)?;
    set_namespace(request, &mut object)?;
    let base = meta::text(&object, "generateName").to_owned();
    let generates = meta::name(&object).is_empty() && !base.is_empty();
    request.authorize("create", meta::name(&object))?;
    for _ in 1..GENERATE_NAME_ATTEMPTS {
        if generates {
            meta::set(&mut object, "name", admission::generate_name(&base).into());
        }
        match create_object(request, object.clone()).await {
            Err(error) if generates && error.reason() == "AlreadyExists" => {}
            outcome => return outcome.map(created),
        }
    }
    create_object(request, object).await.map(created)
}

fn created(object: Arc<Value>) -> Reply {
    Reply::Object(StatusCode::CREATED, object)
}

/// Sets the namespace of the path. A cluster-scoped object loses its namespace.
pub(super) fn set_namespace(request: &ObjectRequest, object: &mut Value) -> Result<(), StatusError> {
    check_own_namespace(request, object)?;
    let namespace = Some(&request.at.namespace).filter(|namespace| !namespace.is_empty());
    meta::set(object, "namespace", namespace.cloned().into());
    Ok(())
}

/// Checks that an object names no other namespace than the path.
pub(super) fn check_own_namespace(request: &ObjectRequest, object: &Value) -> Result<(), StatusError> {
    let existing = meta::namespace(object);
    if request.resource.namespaced && !existing.is_empty() && existing != request.at.namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

async fn create_object(request: &ObjectRequest, object: Value) -> Result<Arc<Value>, StatusError> {
    // Labels derived from the name need the generated name.
    let mut object = object;
    admission::normalize(&request.resource, &mut object).map_err(StatusError::bad_request)?;
    let key = request.key(meta::name(&object));
    let resource = request.resource.clone();
    let namespace_key = namespace_key(request, &key);
    request.writer(Endpoint::Main).track(None, &mut object);
    let (at, name) = (key.clone(), key.name.clone());
    request
        .write(key, move |state| {
            check_definition(state, &resource, &name)?;
            if let Some(namespace) = &namespace_key {
                check_namespace(state, &resource, namespace, &name)?;
            }
            let object = admission::prepare_create(&resource, object.clone())?;
            if state.get(&at).is_some() {
                return Err(StatusError::already_exists(&resource, &name));
            }
            Ok(Write::Put(object))
        })
        .await
}

/// Returns the key of the namespace of an object; `None` for a cluster-scoped one.
pub(super) fn namespace_key(request: &ObjectRequest, key: &Key) -> Option<Key> {
    let resource = request.registry.by_strategy(Strategy::Namespace)?;
    (!key.namespace.is_empty()).then(|| Key::new(resource.group_resource(), "", &key.namespace))
}

/// Checks that the definition of a new custom object exists and is not terminating: the request may have taken the kinds before.
pub(super) fn check_definition(
    state: &TransactionView<'_>,
    resource: &Resource,
    name: &str,
) -> Result<(), StatusError> {
    if resource.strategy != Strategy::Custom {
        return Ok(());
    }
    let definition = Key::new(DEFINITIONS, "", &resource.group_resource());
    match state.get(&definition) {
        None => Err(StatusError::page_not_found()),
        Some(found) if meta::is_deleting(found) => Err(StatusError::definition_terminating(resource, name)),
        Some(_) => Ok(()),
    }
}

/// Checks that the namespace of a new object exists and is not terminating.
pub(super) fn check_namespace(
    state: &TransactionView<'_>,
    resource: &Resource,
    namespace: &Key,
    name: &str,
) -> Result<(), StatusError> {
    match state.get(namespace) {
        None => Err(StatusError::namespace_not_found(&namespace.name)),
        Some(found) if meta::is_deleting(found) => Err(StatusError::namespace_terminating(
            resource,
            name,
            &namespace.name,
        )),
        Some(_) => Ok(()),
    }
}

/// PUT on an object or a subresource.
pub(super) async fn update(
    request: &ObjectRequest,
    endpoint: Endpoint,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let mut object = body::decode_object(request, bytes, content_type)?;
    check_name(request, &object)?;
    set_namespace(request, &mut object)?;
    let key = request.key(&request.at.name);
    if endpoint == Endpoint::Main
        && creates_on_update(request.resource.strategy)
        && request.api.store.read().get(&key).is_none()
    {
        return create_on_update(request, object).await;
    }
    let (resource, at) = (request.resource.clone(), key.clone());
    let writer = request.writer(endpoint);
    let stored = request.write(key, move |state| {
        let old = state
            .get(&at)
            .ok_or_else(|| StatusError::not_found(&resource, &at.name))?;
        decide_update(&resource, object.clone(), old, endpoint, Some(&writer))
    });
    Ok(Reply::Object(StatusCode::OK, stored.await?))
}

/// Whether an update creates a missing object: `AllowCreateOnUpdate` of kube-apiserver's registry strategies.
fn creates_on_update(strategy: Strategy) -> bool {
    matches!(
        strategy,
        Strategy::Lease | Strategy::Event | Strategy::Role | Strategy::RoleBinding
    )
}

/// Creates the missing object of an update, with the right to create it. As in kube-apiserver, its resourceVersion does not count,
/// but its uid is one of an object that has been deleted.
async fn create_on_update(request: &ObjectRequest, mut object: Value) -> Result<Reply, StatusError> {
    let name = &request.at.name;
    if !meta::uid(&object).is_empty() {
        return Err(uid_conflict(&request.resource, &object, &object, ""));
    }
    request.authorize("create", name)?;
    meta::set(&mut object, "resourceVersion", Value::Null);
    create_object(request, object).await.map(created)
}

/// Checks that an object has the name of the path.
pub(super) fn check_name(request: &ObjectRequest, object: &Value) -> Result<(), StatusError> {
    match meta::name(object) {
        name if name == request.at.name => Ok(()),
        "" => Err(StatusError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            request.at.name
        ))),
        name => Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            request.at.name
        ))),
    }
}

/// Decides an update: compares versions and identity, and applies admission. The changes belong to `writer`; without one the new
/// object has its `managedFields` already.
pub(super) fn decide_update(
    resource: &Resource,
    new: Value,
    old: &Arc<Value>,
    endpoint: Endpoint,
    writer: Option<&Writer>,
) -> Result<Write, StatusError> {
    let name = meta::name(old);
    if resource.strategy == Strategy::Definition && is_own(old) {
        return Err(StatusError::own_definition(resource, name));
    }
    let (uid, existing) = (meta::uid(&new), meta::uid(old));
    if !uid.is_empty() && uid != existing {
        return Err(uid_conflict(resource, &new, old, existing));
    }
    match meta::resource_version(&new) {
        "" if matches!(
            resource.strategy,
            Strategy::Custom | Strategy::Definition | Strategy::Lease
        ) =>
        {
            return Err(StatusError::resource_version_required(resource, name));
        }
        "" => {}
        version if version != meta::resource_version(old) => {
            return Err(StatusError::stale_resource_version(resource, name));
        }
        _ => {}
    }
    let before = to_version(resource, old);
    let managed_fields = new["metadata"]["managedFields"].clone();
    let mut new = admission::prepare_update(resource, new, &before, endpoint)?;
    // A subresource keeps the metadata of the old object, but not its managers.
    meta::set(&mut new, "managedFields", managed_fields);
    if let Some(writer) = writer {
        writer.track(Some(&before), &mut new);
    }
    Ok(decide_write(resource, new, old))
}

/// Returns 409 for an update whose uid is not the `existing` one of the object at its key.
fn uid_conflict(resource: &Resource, new: &Value, at: &Value, existing: &str) -> StatusError {
    let uid = meta::uid(new);
    let reason = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {existing}");
    let detail = storage_error(resource, at, &reason);
    StatusError::conflict(resource, meta::name(at), &detail)
}

/// Returns etcd's message for a failed precondition, which kube-apiserver passes on. Its keys have the groups of apiextensions only.
fn storage_error(resource: &Resource, object: &Value, reason: &str) -> String {
    let has_group = matches!(resource.strategy, Strategy::Custom | Strategy::Definition);
    let parts = [
        if has_group { resource.group.as_str() } else { "" },
        &*resource.plural,
        meta::namespace(object),
        meta::name(object),
    ];
    let path: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: {reason}",
        path.join("/")
    )
}
