//! The initial objects of a server: namespaces, roles and CustomResourceDefinitions.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::definitions::{ORIGIN, PROGRAM, is_own};
use crate::rbac::Reconciliation;
use crate::resource::{Resource, Strategy};
use crate::service::Api;
use crate::status_error::StatusError;
use crate::store::{Key, Write};
use crate::{admission, meta, rbac};

/// Namespaces that every server has.
const NAMESPACES: [&str; 2] = ["default", "kube-system"];

/// Creates missing objects, updates changed definitions and removes definitions that the program no longer contains.
pub(crate) fn create_initial_objects(
    api: &Api,
    crds: &[CustomResourceDefinition],
) -> Result<(), StatusError> {
    let registry = api.registry();
    if let Some(resource) = registry.by_strategy(Strategy::Namespace) {
        for name in NAMESPACES {
            create_namespace(api, resource, name)?;
        }
    }
    for object in rbac::default_roles() {
        let kind = object["kind"].as_str().unwrap_or("");
        if let Some(resource) = registry.by_kind(rbac::GROUP, kind) {
            reconcile_role(api, resource, &object)?;
        }
    }
    let Some(resource) = registry.by_strategy(Strategy::Definition) else {
        return Ok(());
    };
    let existing: Vec<String> = api
        .store
        .read()
        .list(&resource.group_resource(), "")
        .iter()
        .filter(|existing| is_own(existing))
        .map(|existing| meta::name(existing).to_owned())
        .collect();
    for crd in crds {
        apply_definition(api, resource, crd)?;
    }
    let served = |name: &String| crds.iter().any(|crd| crd.metadata.name.as_ref() == Some(name));
    for name in existing.iter().filter(|name| !served(name)) {
        let key = Key::new(resource.group_resource(), "", name);
        let at = key.clone();
        api.store.write_now(&key, move |state| match state.get(&at) {
            Some(last) => Ok(Write::Remove(Value::clone(last))),
            None => Err(StatusError::internal("a definition disappeared during startup")),
        })?;
    }
    Ok(())
}

fn create_namespace(api: &Api, resource: &Resource, name: &str) -> Result<(), StatusError> {
    let key = Key::new(resource.group_resource(), "", name);
    api.store.write_now(&key, |state| {
        if let Some(existing) = state.get(&key) {
            return Ok(Write::Unchanged(existing.clone()));
        }
        let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        admission::normalize(resource, &mut object).map_err(StatusError::bad_request)?;
        admission::prepare_create(resource, object).map(Write::Put)
    })?;
    Ok(())
}

/// Creates a default role or binding, or adds what an existing one lacks.
fn reconcile_role(api: &Api, resource: &Resource, expected: &Value) -> Result<(), StatusError> {
    let mut expected = expected.clone();
    admission::normalize(resource, &mut expected).map_err(StatusError::bad_request)?;
    let key = Key::new(resource.group_resource(), "", meta::name(&expected));
    // A binding to another role is deleted first.
    for _ in 0..2 {
        api.store.write_now(&key, |state| {
            let Some(existing) = state.get(&key) else {
                return admission::prepare_create(resource, expected.clone()).map(Write::Put);
            };
            Ok(match rbac::reconcile(existing, &expected) {
                Reconciliation::Keep => Write::Unchanged(Arc::clone(existing)),
                Reconciliation::Update(updated) => Write::Put(updated),
                Reconciliation::Recreate => Write::Remove(Value::clone(existing)),
            })
        })?;
        if api.store.read().get(&key).is_some() {
            break;
        }
    }
    Ok(())
}

fn apply_definition(
    api: &Api,
    resource: &Resource,
    crd: &CustomResourceDefinition,
) -> Result<(), StatusError> {
    let mut desired = serde_json::to_value(crd).map_err(|error| StatusError::internal(error.to_string()))?;
    // A default that kube-apiserver stores.
    desired["spec"]["conversion"] = json!({"strategy": "None"});
    desired["metadata"]["annotations"][ORIGIN] = PROGRAM.into();
    let key = Key::new(resource.group_resource(), "", meta::name(&desired));
    api.store.write_now(&key, |state| {
        let existing = state.get(&key);
        let is_current = |existing: &&Arc<Value>| is_own(existing) && existing["spec"] == desired["spec"];
        if let Some(existing) = existing.filter(is_current) {
            return Ok(Write::Unchanged(Arc::clone(existing)));
        }
        let status = status(crd, &desired);
        let mut object = admission::prepare_create(resource, desired.clone())?;
        if let Some(existing) = existing {
            for field in ["uid", "creationTimestamp"] {
                meta::set(&mut object, field, existing["metadata"][field].clone());
            }
        }
        let generation = existing
            .and_then(|existing| existing["metadata"]["generation"].as_i64())
            .unwrap_or(0);
        meta::set(&mut object, "generation", json!(generation + 1));
        object["status"] = status;
        Ok(Write::Put(object))
    })?;
    Ok(())
}

fn status(crd: &CustomResourceDefinition, desired: &Value) -> Value {
    let condition = |type_: &str, reason: &str, message: &str| json!({"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": meta::now()});
    let stored: Vec<&str> = crd
        .spec
        .versions
        .iter()
        .filter(|v| v.storage)
        .map(|v| v.name.as_str())
        .collect();
    json!({
        "acceptedNames": desired["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    })
}
