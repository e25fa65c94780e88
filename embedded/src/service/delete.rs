//! delete and deletecollection.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::request::ObjectRequest;
use super::response::Reply;
use super::{body, page, query};
use crate::cause::Cause;
use crate::definitions::{CLEANUP, is_own, set_deletion_pending};
use crate::meta;
use crate::resource::{Resource, Strategy};
use crate::status_error::StatusError;
use crate::store::{Key, Write};

/// The finalizer of the policy `Orphan`; the garbage collector removes it.
pub(crate) const ORPHAN: &str = "orphan";
/// The finalizer of the policy `Foreground`; the garbage collector removes it.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Namespaces that cannot be deleted, as in kube-apiserver.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The deletion propagation policy: what happens to the dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PropagationPolicy {
    /// They are deleted after the object.
    Background,
    /// They are deleted before the object.
    Foreground,
    /// They remain.
    Orphan,
}

/// Delete options of a request, from the query and from meta/v1 `DeleteOptions`.
#[derive(Clone, Debug, Default)]
struct DeleteOptions {
    uid: String,
    resource_version: String,
    /// `None` if unset: existing finalizers decide, otherwise background.
    propagation: Option<PropagationPolicy>,
}

/// DELETE on an object.
pub(super) async fn delete_object(
    request: &ObjectRequest,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let (request, delete_options) = &with_delete_options(request, bytes, content_type)?;
    let key = request.key(&request.at.name);
    let last = remove(request, key, delete_options.clone()).await?;
    // kube-apiserver responds differently if finalizers delay the deletion. The written object shows whether they do: the garbage collector
    // may have removed the stored one by now.
    let is_terminating =
        meta::is_deleting(&last) && (request.query.dry_run || !meta::finalizers(&last).is_empty());
    if is_terminating || request.resource.strategy == Strategy::Namespace {
        return Ok(Reply::Object(StatusCode::OK, last));
    }
    let mut details =
        json!({"name": meta::name(&last), "kind": request.resource.plural, "uid": meta::uid(&last)});
    if !request.resource.group.is_empty() {
        details["group"] = request.resource.group.clone().into();
    }
    Ok(Reply::Plain(
        StatusCode::OK,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
    ))
}

/// DELETE on a collection: each object that matches the selectors, or those of the first page if there is a limit. As in
/// kube-apiserver the response shows the objects before their deletion.
pub(super) async fn delete_collection(
    request: &ObjectRequest,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let (request, delete_options) = &with_delete_options(request, bytes, content_type)?;
    let mut page = page::read(request)?;
    if request.resource.strategy == Strategy::Definition {
        page.objects.retain(|object| !is_own(object));
    }
    let kind = request.resource.group_resource();
    for object in &page.objects {
        let key = Key::new(kind.as_str(), meta::namespace(object), meta::name(object));
        match remove(request, key, delete_options.clone()).await {
            Err(error) if error.code() != 404 => return Err(error),
            _ => {}
        }
    }
    Ok(Reply::List(page))
}

async fn remove(
    request: &ObjectRequest,
    key: Key,
    delete_options: DeleteOptions,
) -> Result<Arc<Value>, StatusError> {
    let (resource, at) = (request.resource.clone(), key.clone());
    request
        .write(key, move |state| {
            let object = state
                .get(&at)
                .ok_or_else(|| StatusError::not_found(&resource, &at.name))?;
            check_preconditions(&resource, object, &delete_options)?;
            if resource.strategy == Strategy::Namespace && IMMORTAL_NAMESPACES.contains(&at.name.as_str()) {
                return Err(StatusError::immortal_namespace(&resource, &at.name));
            }
            if resource.strategy == Strategy::Definition && is_own(object) {
                return Err(StatusError::own_definition(&resource, &at.name));
            }
            Ok(decide_deletion(&resource, object, delete_options.propagation))
        })
        .await
}

fn check_preconditions(
    resource: &Resource,
    object: &Value,
    delete_options: &DeleteOptions,
) -> Result<(), StatusError> {
    let (uid, version) = (meta::uid(object), meta::resource_version(object));
    let reason = if !delete_options.uid.is_empty() && delete_options.uid != uid {
        format!(
            "the UID in the precondition ({}) does not match the UID in record ({uid}). The object might have been deleted and then recreated",
            delete_options.uid
        )
    } else if !delete_options.resource_version.is_empty() && delete_options.resource_version != version {
        format!(
            "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({version}). The object might have been modified",
            delete_options.resource_version
        )
    } else {
        return Ok(());
    };
    let name = meta::name(object);
    Err(StatusError::precondition_failed(resource, name, &reason))
}

/// Decides a deletion: an object with finalizers gets a deletion timestamp, any other is removed. Namespaces have spec finalizers.
pub(crate) fn decide_deletion(
    resource: &Resource,
    object: &Arc<Value>,
    propagation: Option<PropagationPolicy>,
) -> Write {
    let mut terminating = Value::clone(object);
    let finalizers = finalizers(resource, object, propagation);
    let list = Some(finalizers.clone()).filter(|list| !list.is_empty());
    meta::set(&mut terminating, "finalizers", list.into());
    let has_spec_finalizers =
        resource.strategy == Strategy::Namespace && object["spec"]["finalizers"][0].is_string();
    if finalizers.is_empty() && !has_spec_finalizers {
        return Write::Remove(terminating);
    }
    if meta::is_deleting(object) {
        return if terminating == **object {
            Write::Unchanged(object.clone())
        } else {
            Write::Put(terminating)
        };
    }
    meta::set(&mut terminating, "deletionTimestamp", meta::now().into());
    if resource.strategy == Strategy::Definition {
        // As in kube-apiserver, which leaves grace period and generation here.
        set_deletion_pending(&mut terminating);
        return Write::Put(terminating);
    }
    if resource.strategy == Strategy::Namespace {
        terminating["status"]["phase"] = "Terminating".into();
    } else {
        meta::set(&mut terminating, "deletionGracePeriodSeconds", json!(0));
    }
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        meta::set(&mut terminating, "generation", json!(generation + 1));
    }
    Write::Put(terminating)
}

/// Returns the finalizers of a deleted object. A requested policy replaces the finalizers of earlier policies.
fn finalizers(resource: &Resource, object: &Value, propagation: Option<PropagationPolicy>) -> Vec<String> {
    let existing = meta::finalizers(object);
    let is_propagation = |name: &str| matches!(name, ORPHAN | FOREGROUND);
    let mut finalizers: Vec<String> = existing
        .iter()
        .filter(|name| propagation.is_none() || !is_propagation(name))
        .map(|name| (*name).to_owned())
        .collect();
    match propagation {
        Some(PropagationPolicy::Orphan) => finalizers.push(ORPHAN.into()),
        // The content of a namespace is always deleted first.
        Some(PropagationPolicy::Foreground) if resource.strategy != Strategy::Namespace => {
            finalizers.push(FOREGROUND.into());
        }
        _ => {}
    }
    // The objects of a definition are deleted before it.
    if resource.strategy == Strategy::Definition && !meta::is_deleting(object) && !existing.contains(&CLEANUP)
    {
        finalizers.push(CLEANUP.into());
    }
    finalizers
}

/// Returns the delete options of a request, and the request with the dry run that they ask for.
fn with_delete_options(
    request: &ObjectRequest,
    bytes: &Bytes,
    content_type: &str,
) -> Result<(ObjectRequest, DeleteOptions), StatusError> {
    let mut request = request.clone();
    let body = if bytes.is_empty() {
        Value::Null
    } else {
        body::value(bytes, content_type)?
    };
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let policy = match text(&body["propagationPolicy"]) {
        none if none.is_empty() => request.query.propagation_policy.clone(),
        some => some,
    };
    if !policy.is_empty() && body["orphanDependents"].is_boolean() {
        let reason = "orphanDependents and deletionPropagation cannot be both set";
        let cause = Cause::invalid("propagationPolicy", &policy, reason);
        return Err(StatusError::invalid_delete_options(cause));
    }
    let propagation = match (policy.as_str(), body["orphanDependents"].as_bool()) {
        ("", None) => None,
        ("Background", _) | ("", Some(false)) => Some(PropagationPolicy::Background),
        ("Orphan", _) | ("", Some(true)) => Some(PropagationPolicy::Orphan),
        ("Foreground", _) => Some(PropagationPolicy::Foreground),
        (other, _) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            let cause = Cause::not_supported("propagationPolicy", other, &supported);
            return Err(StatusError::invalid_delete_options(cause));
        }
    };
    for value in meta::strings(&body["dryRun"]) {
        query::check_dry_run(value, "DeleteOptions")?;
        request.query.dry_run = true;
    }
    let options = DeleteOptions {
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        propagation,
    };
    Ok((request, options))
}
