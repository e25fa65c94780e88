//! delete and deletecollection.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Call, Cause, Reply, StatusError, body, query, read};
use crate::{
    meta,
    resource::{Family, Resource},
    store::{Key, Write},
};

/// The finalizer that stands for "let go of the dependents first"; the garbage collector removes it.
pub(crate) const ORPHAN: &str = "orphan";
/// The finalizer that stands for "the dependents go first"; the garbage collector removes it.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Namespaces that every server has. Clients rely on them.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What becomes of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// What the client asked for, from the query and meta/v1 `DeleteOptions`.
#[derive(Clone, Debug, Default)]
struct Options {
    uid: String,
    resource_version: String,
    /// `None` where neither request nor finalizers say; then they go after it.
    propagation: Option<Propagation>,
    dry_run: bool,
}

/// DELETE on an object.
pub(super) async fn one(call: &Call, bytes: &Bytes, content_type: &str) -> Result<Reply, StatusError> {
    let options = options(call, bytes, content_type)?;
    let key = call.key(&call.at.name);
    let last = remove(call, key, options).await?;
    // Gone, or waiting for its finalizers: the answer of the API server differs. What was written decides: by now the
    // garbage collector may have removed the object.
    let waits = meta::is_deleting(&last) && (call.query.dry_run || !meta::finalizers(&last).is_empty());
    if waits || call.resource.family == Family::Namespace {
        return Ok(Reply::Object(StatusCode::OK, last));
    }
    let mut details =
        json!({"name": meta::name(&last), "kind": call.resource.plural, "uid": meta::uid(&last)});
    if !call.resource.group.is_empty() {
        details["group"] = call.resource.group.clone().into();
    }
    Ok(Reply::Plain(
        StatusCode::OK,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
    ))
}

/// DELETE on a collection: every object that the selectors let through.
pub(super) async fn collection(call: &Call, bytes: &Bytes, content_type: &str) -> Result<Reply, StatusError> {
    let options = options(call, bytes, content_type)?;
    let selector = read::selector(call)?;
    let objects = call
        .api
        .store
        .read()
        .list(&call.resource.id(), &call.at.namespace);
    let mut removed = Vec::new();
    for object in objects.into_iter().filter(|object| selector.matches(object)) {
        let key = Key::new(call.resource.id(), meta::namespace(&object), meta::name(&object));
        match remove(call, key, options.clone()).await {
            Ok(last) => removed.push(last),
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let revision = call.api.store.read().revision();
    Ok(Reply::List(removed, revision))
}

async fn remove(call: &Call, key: Key, options: Options) -> Result<Arc<Value>, StatusError> {
    let (resource, at) = (call.resource.clone(), key.clone());
    if options.dry_run && !call.query.dry_run {
        let object = call.api.store.read().get(&at).cloned();
        return object.ok_or_else(|| StatusError::not_found(&resource, &at.name));
    }
    call.commit(key, move |state| {
        let object = state
            .get(&at)
            .ok_or_else(|| StatusError::not_found(&resource, &at.name))?;
        check_preconditions(&resource, object, &options)?;
        if resource.family == Family::Namespace && IMMORTAL.contains(&at.name.as_str()) {
            return Err(StatusError::immortal(&resource, &at.name));
        }
        Ok(decide(&resource, object, options.propagation))
    })
    .await
}

fn check_preconditions(resource: &Resource, object: &Value, options: &Options) -> Result<(), StatusError> {
    let (uid, version) = (meta::uid(object), meta::resource_version(object));
    let why = if !options.uid.is_empty() && options.uid != uid {
        format!(
            "the UID in the precondition ({}) does not match the UID in record ({uid}). The object might have been deleted and then recreated",
            options.uid
        )
    } else if !options.resource_version.is_empty() && options.resource_version != version {
        format!(
            "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({version}). The object might have been modified",
            options.resource_version
        )
    } else {
        return Ok(());
    };
    Err(StatusError::precondition(resource, meta::name(object), &why))
}

/// An object that something holds is marked, any other goes. A namespace is held by its content.
pub(crate) fn decide(resource: &Resource, object: &Arc<Value>, propagation: Option<Propagation>) -> Write {
    let mut marked = Value::clone(object);
    let finalizers = finalizers(resource, object, propagation);
    let list = if finalizers.is_empty() {
        Value::Null
    } else {
        finalizers.clone().into()
    };
    meta::set(&mut marked, "finalizers", list);
    let held_by_content = resource.family == Family::Namespace && object["spec"]["finalizers"][0].is_string();
    if finalizers.is_empty() && !held_by_content {
        return Write::Remove(marked);
    }
    if meta::is_deleting(object) {
        return if marked == **object {
            Write::Keep(object.clone())
        } else {
            Write::Put(marked)
        };
    }
    meta::set(&mut marked, "deletionTimestamp", meta::now().into());
    if resource.family == Family::Namespace {
        marked["status"]["phase"] = "Terminating".into();
    } else {
        meta::set(&mut marked, "deletionGracePeriodSeconds", json!(0));
    }
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        meta::set(&mut marked, "generation", json!(generation + 1));
    }
    Write::Put(marked)
}

/// The finalizers of a deleted object: the two that stand for a propagation are set as the request says, or stay.
fn finalizers(resource: &Resource, object: &Value, propagation: Option<Propagation>) -> Vec<String> {
    let held = meta::finalizers(object);
    let stands = |name: &str| matches!(name, ORPHAN | FOREGROUND);
    let mut finalizers: Vec<String> = held
        .iter()
        .filter(|name| propagation.is_none() || !stands(name))
        .map(|name| (*name).to_owned())
        .collect();
    match propagation {
        Some(Propagation::Orphan) => finalizers.push(ORPHAN.into()),
        // A namespace goes with its content whatever is asked.
        Some(Propagation::Foreground) if resource.family != Family::Namespace => {
            finalizers.push(FOREGROUND.into());
        }
        _ => {}
    }
    finalizers
}

fn options(call: &Call, bytes: &Bytes, content_type: &str) -> Result<Options, StatusError> {
    let given = if bytes.is_empty() {
        Value::Null
    } else {
        body::value(bytes, content_type)?
    };
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let policy = match text(&given["propagationPolicy"]) {
        none if none.is_empty() => call.query.propagation_policy.clone(),
        some => some,
    };
    if !policy.is_empty() && given["orphanDependents"].is_boolean() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        let cause = Cause::invalid("propagationPolicy", &policy, why);
        return Err(StatusError::invalid_delete_options(cause));
    }
    let propagation = match policy.as_str() {
        "" => given["orphanDependents"].as_bool().map(|orphan| {
            if orphan {
                Propagation::Orphan
            } else {
                Propagation::Background
            }
        }),
        "Background" => Some(Propagation::Background),
        "Orphan" => Some(Propagation::Orphan),
        "Foreground" => Some(Propagation::Foreground),
        other => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            let cause = Cause::not_supported("propagationPolicy", other, &supported);
            return Err(StatusError::invalid_delete_options(cause));
        }
    };
    let mut dry_run = call.query.dry_run;
    for value in meta::strings(&given["dryRun"]) {
        dry_run |= query::dry_run(value, "DeleteOptions")?;
    }
    Ok(Options {
        uid: text(&given["preconditions"]["uid"]),
        resource_version: text(&given["preconditions"]["resourceVersion"]),
        propagation,
        dry_run,
    })
}
