//! create and update.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::{
    Call, Reply, StatusError, body,
    call::{present, settle},
};
use crate::{
    admit::{self, Part},
    meta,
    resource::{Family, Resource},
    store::{Key, View, Write},
};

/// Tries of `generateName` before the client is told that names run out.
const GENERATED_TRIES: usize = 8;

/// POST on a collection.
pub(super) async fn create(call: &Call, bytes: &Bytes, content_type: &str) -> Result<Reply, StatusError> {
    let validation = call.query.field_validation;
    let mut object = body::object(&call.resource, bytes, content_type, validation, &call.warnings)?;
    place(call, &mut object)?;
    let base = meta::text(&object, "generateName").to_owned();
    let generates = meta::name(&object).is_empty() && !base.is_empty();
    call.allowed("create", meta::name(&object))?;
    for _ in 1..GENERATED_TRIES {
        if generates {
            meta::set(&mut object, "name", admit::generated(&base).into());
        }
        match insert(call, object.clone()).await {
            Err(error) if generates && error.reason() == "AlreadyExists" => {}
            outcome => return outcome.map(|object| Reply::Object(StatusCode::CREATED, object)),
        }
    }
    insert(call, object)
        .await
        .map(|object| Reply::Object(StatusCode::CREATED, object))
}

/// Puts the object into the namespace of the path.
fn place(call: &Call, object: &mut Value) -> Result<(), StatusError> {
    let held = meta::namespace(object);
    if !held.is_empty() && held != call.at.namespace {
        return Err(StatusError::bad_request(if call.resource.namespaced {
            "the namespace of the provided object does not match the namespace sent on the request"
        } else {
            "namespace is not allowed on a cluster-scoped object"
        }));
    }
    let namespace = if call.at.namespace.is_empty() {
        Value::Null
    } else {
        call.at.namespace.clone().into()
    };
    meta::set(object, "namespace", namespace);
    Ok(())
}

async fn insert(call: &Call, object: Value) -> Result<Arc<Value>, StatusError> {
    // Labels made from the name want the generated one.
    let mut object = object;
    admit::form(&call.resource, &mut object).map_err(StatusError::bad_request)?;
    let key = call.key(meta::name(&object));
    let resource = call.resource.clone();
    let namespace_key = call
        .api
        .registry
        .by_family(Family::Namespace)
        .map(|r| Key::new(r.id(), "", &key.namespace));
    let (at, name) = (key.clone(), key.name.clone());
    call.commit(key, move |state| {
        if let Some(namespace) = namespace_key.filter(|key| !key.name.is_empty()) {
            check_namespace(state, &resource, &namespace, &name)?;
        }
        let object = admit::create(&resource, object)?;
        if state.get(&at).is_some() {
            return Err(StatusError::already_exists(&resource, &name));
        }
        Ok(Write::Put(object))
    })
    .await
}

fn check_namespace(
    state: &View<'_>,
    resource: &Resource,
    namespace: &Key,
    name: &str,
) -> Result<(), StatusError> {
    match state.get(namespace) {
        None => Err(StatusError::namespace_not_found(&namespace.name)),
        Some(found) if meta::is_deleting(found) => {
            Err(StatusError::terminating(resource, name, &namespace.name))
        }
        Some(_) => Ok(()),
    }
}

/// PUT on an object or a subresource.
pub(super) async fn replace(
    call: &Call,
    part: Part,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let validation = call.query.field_validation;
    let mut object = body::object(&call.resource, bytes, content_type, validation, &call.warnings)?;
    check_name(call, &object)?;
    place(call, &mut object)?;
    let key = call.key(&call.at.name);
    if part == Part::Main
        && matches!(call.resource.family, Family::Lease | Family::Event)
        && call.api.store.read().get(&key).is_none()
    {
        // These kinds are created by an update, as the API server does.
        return insert(call, object)
            .await
            .map(|object| Reply::Object(StatusCode::CREATED, object));
    }
    let (resource, at) = (call.resource.clone(), key.clone());
    let stored = call.commit(key, move |state| {
        let old = state
            .get(&at)
            .ok_or_else(|| StatusError::not_found(&resource, &at.name))?;
        update(&resource, object, old, part)
    });
    Ok(Reply::Object(StatusCode::OK, stored.await?))
}

fn check_name(call: &Call, object: &Value) -> Result<(), StatusError> {
    match meta::name(object) {
        name if name == call.at.name => Ok(()),
        "" => Err(StatusError::bad_request("name must be provided")),
        name => Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.at.name
        ))),
    }
}

/// Decides an update: versions and identity compared, rules applied, the rest settled.
pub(super) fn update(
    resource: &Resource,
    new: Value,
    old: &Arc<Value>,
    part: Part,
) -> Result<Write, StatusError> {
    let name = meta::name(old);
    let (uid, held) = (meta::uid(&new), meta::uid(old));
    if !uid.is_empty() && uid != held {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {held}");
        return Err(StatusError::conflict(
            resource,
            name,
            &storage_error(resource, old, &why),
        ));
    }
    match meta::resource_version(&new) {
        "" if matches!(resource.family, Family::Custom | Family::Lease) => {
            return Err(StatusError::version_required(resource, name));
        }
        "" => {}
        version if version != meta::resource_version(old) => {
            return Err(StatusError::modified(resource, name));
        }
        _ => {}
    }
    let before = present(resource, old);
    let new = admit::update(resource, new, &before, part)?;
    Ok(settle(resource, new, old))
}

/// etcd's words for a failed precondition, as they show through kube-apiserver.
fn storage_error(resource: &Resource, object: &Value, why: &str) -> String {
    let group = if resource.group.is_empty() {
        String::new()
    } else {
        format!("{}/", resource.group)
    };
    let namespace = meta::namespace(object);
    let namespace = if namespace.is_empty() {
        String::new()
    } else {
        format!("{namespace}/")
    };
    format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{namespace}{}, ResourceVersion: 0, AdditionalErrorMsg: {why}",
        resource.plural,
        meta::name(object)
    )
}
