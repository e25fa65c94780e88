//! The objects that a server starts with: namespaces and its definitions.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::{
    admit, meta,
    resource::{Family, Resource},
    service::{Api, StatusError},
    store::{Key, Write},
};

/// Namespaces that are always there.
const NAMESPACES: [&str; 2] = ["default", "kube-system"];

/// Creates what is missing, brings definitions up to date and removes those that are no longer served.
pub(crate) fn plant(api: &Api, crds: &[CustomResourceDefinition]) -> Result<(), StatusError> {
    if let Some(resource) = api.registry.by_family(Family::Namespace) {
        for name in NAMESPACES {
            namespace(api, resource, name)?;
        }
    }
    let Some(resource) = api.registry.by_family(Family::Definition) else {
        return Ok(());
    };
    let held: Vec<String> = api
        .store
        .read()
        .list(&resource.id(), "")
        .iter()
        .map(|held| meta::name(held).to_owned())
        .collect();
    for crd in crds {
        definition(api, resource, crd)?;
    }
    let served = |name: &String| crds.iter().any(|crd| crd.metadata.name.as_ref() == Some(name));
    for name in held.iter().filter(|name| !served(name)) {
        let key = Key::new(resource.id(), "", name);
        let at = key.clone();
        api.store.write_now(&key, move |state| match state.get(&at) {
            Some(last) => Ok(Write::Remove(Value::clone(last))),
            None => Err(StatusError::internal("a definition went away during the start")),
        })?;
    }
    Ok(())
}

fn namespace(api: &Api, resource: &Resource, name: &str) -> Result<(), StatusError> {
    let key = Key::new(resource.id(), "", name);
    api.store.write_now(&key, |state| {
        if let Some(held) = state.get(&key) {
            return Ok(Write::Keep(held.clone()));
        }
        let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        admit::form(resource, &mut object).map_err(StatusError::bad_request)?;
        admit::create(resource, object).map(Write::Put)
    })?;
    Ok(())
}

fn definition(api: &Api, resource: &Resource, crd: &CustomResourceDefinition) -> Result<(), StatusError> {
    let mut wanted = serde_json::to_value(crd).map_err(|error| StatusError::internal(error.to_string()))?;
    // What the API server's defaulting writes out.
    wanted["spec"]["conversion"] = json!({"strategy": "None"});
    let key = Key::new(resource.id(), "", meta::name(&wanted));
    api.store.write_now(&key, |state| {
        let held = state.get(&key);
        if let Some(held) = held.filter(|held| held["spec"] == wanted["spec"]) {
            return Ok(Write::Keep(Arc::clone(held)));
        }
        let status = status(crd, &wanted);
        let mut object = admit::create(resource, wanted.clone())?;
        if let Some(held) = held {
            for field in ["uid", "creationTimestamp"] {
                meta::set(&mut object, field, held["metadata"][field].clone());
            }
        }
        let generation = held
            .and_then(|held| held["metadata"]["generation"].as_i64())
            .unwrap_or(0);
        meta::set(&mut object, "generation", json!(generation + 1));
        object["status"] = status;
        Ok(Write::Put(object))
    })?;
    Ok(())
}

fn status(crd: &CustomResourceDefinition, wanted: &Value) -> Value {
    let condition = |type_: &str, reason: &str, message: &str| json!({"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": meta::now()});
    let stored: Vec<&str> = crd
        .spec
        .versions
        .iter()
        .filter(|v| v.storage)
        .map(|v| v.name.as_str())
        .collect();
    json!({
        "acceptedNames": wanted["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    })
}
