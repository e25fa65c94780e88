//! Resolves `runnerPodTemplate.spec.env` and `.envFrom` as the kubelet would: `envFrom` first, the last of a name wins.
//!
//! The controller does this and not a pod, since the inputs digest covers it, and runs may be processes. Fields and resources of a
//! pod are left to the pod of the run, if it has one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, EnvVarSource};
use kube::ResourceExt;
use sluice_api::terraform::{KeySource, Terraform};
use sluice_tf_core::bundle::Bundle;

use super::{InputReader, ReadError};
use crate::inputs::Pairs;

const ENV: &str = "runnerPodTemplate.spec.env";
const ENV_FROM: &str = "runnerPodTemplate.spec.envFrom";

/// Why the environment cannot be resolved. Never contains a value.
#[derive(Debug, thiserror::Error)]
pub(in crate::reconcile) enum EnvironmentError {
    /// A Secret or ConfigMap cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A variable takes its value from a source that only a pod has.
    #[error(
        "{ENV}: {name} takes its value from {from}, which is available only in a pod; use a value, a Secret or a ConfigMap"
    )]
    PodOnly {
        /// The variable.
        name: String,
        /// The source.
        from: String,
    },
    /// Not a valid name of a variable.
    #[error("{ENV}: {0:?} is not a valid variable name")]
    Name(String),
    /// Not a valid value of a variable.
    #[error("the value of environment variable {0} is not valid text")]
    Value(String),
}

/// Sets the environment of the CLI in the bundle. `has_pods`: each run has a pod, with fields that a variable may name.
pub(super) async fn add_environment(
    bundle: &mut Bundle,
    stack: &Terraform,
    (reader, has_pods): (&InputReader, bool),
) -> Result<(), EnvironmentError> {
    let template = stack.spec.runner_pod_template.as_ref();
    let Some(pod) = template.and_then(|template| template.spec.as_ref()) else {
        return Ok(());
    };
    let (mut all, mut of_pod) = (BTreeMap::new(), BTreeMap::new());
    for from in &pod.env_from {
        all.extend(object_variables(from, reader).await?);
    }
    for variable in &pod.env {
        if !is_name(&variable.name) {
            return Err(EnvironmentError::Name(variable.name.clone()));
        }
        let name = variable.name.clone();
        if let Some(source) = pod_source(variable).filter(|_| has_pods) {
            all.remove(&name);
            of_pod.insert(name, source);
        } else if let Some(value) = variable_value(variable, stack, reader).await? {
            of_pod.remove(&name);
            all.insert(name, value);
        }
    }
    if let Some((name, _)) = all.iter().find(|(_, value)| value.contains('\0')) {
        return Err(EnvironmentError::Value(name.clone()));
    }
    bundle.environment = all;
    bundle.pod_environment = of_pod;
    Ok(())
}

/// Returns the field or resource of the pod that a variable takes its value from.
fn pod_source(variable: &EnvVar) -> Option<String> {
    let from = variable.value_from.as_ref()?;
    let field = from.field_ref.as_ref().map(|field| field.field_path.clone());
    field.or_else(|| {
        let resource = from.resource_field_ref.as_ref()?;
        let container = resource.container_name.as_deref().unwrap_or_default();
        Some(format!("{container}/{}", resource.resource))
    })
}

/// Returns the variables of a whole object; invalid names are omitted, as by the kubelet.
async fn object_variables(
    from: &EnvFromSource,
    reader: &InputReader,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    let secret = from
        .secret_ref
        .as_ref()
        .map(|r| (KeySource::Secret, &r.name, r.optional));
    let map = from
        .config_map_ref
        .as_ref()
        .map(|r| (KeySource::ConfigMap, &r.name, r.optional));
    let mut all = Vec::new();
    for (kind, object, optional) in [map, secret].into_iter().flatten() {
        let Some(pairs) = read((kind, object, optional), ENV_FROM, reader).await? else {
            continue;
        };
        for (key, value) in pairs {
            let name = format!("{}{key}", from.prefix.as_deref().unwrap_or_default());
            if is_name(&name) {
                let value = String::from_utf8(value).map_err(|_| EnvironmentError::Value(name.clone()))?;
                all.push((name, value));
            }
        }
    }
    Ok(all)
}

/// Returns the value of one variable. A key that its object lacks is an empty value, as upstream.
async fn variable_value(
    variable: &EnvVar,
    stack: &Terraform,
    reader: &InputReader,
) -> Result<Option<String>, EnvironmentError> {
    let Some(from) = &variable.value_from else {
        return Ok(Some(variable.value.clone().unwrap_or_default()));
    };
    let secret = from
        .secret_key_ref
        .as_ref()
        .map(|r| ((KeySource::Secret, &r.name, r.optional), &r.key));
    let map = from
        .config_map_key_ref
        .as_ref()
        .map(|r| ((KeySource::ConfigMap, &r.name, r.optional), &r.key));
    let Some((object, key)) = secret.or(map) else {
        return known_field(variable, from, stack).map(Some);
    };
    let Some(pairs) = read(object, ENV, reader).await? else {
        return Ok(None);
    };
    let value = pairs.get(key).cloned().unwrap_or_default();
    let value = String::from_utf8(value).map_err(|_| EnvironmentError::Value(variable.name.clone()))?;
    Ok(Some(value))
}

/// Returns a pod field that is known without a pod.
fn known_field(
    variable: &EnvVar,
    from: &EnvVarSource,
    stack: &Terraform,
) -> Result<String, EnvironmentError> {
    let field = from.field_ref.as_ref().map(|field| field.field_path.as_str());
    match field {
        Some("metadata.namespace") => Ok(stack.namespace().unwrap_or_default()),
        Some("spec.serviceAccountName") => Ok(stack.spec.service_account_name.clone()),
        field => Err(EnvironmentError::PodOnly {
            name: variable.name.clone(),
            from: field.map_or_else(|| "a resource or a file".to_owned(), str::to_owned),
        }),
    }
}

/// Reads the pairs of an object; `None` for an optional one that is missing.
async fn read(
    (kind, object, optional): (KeySource, &String, Option<bool>),
    field: &'static str,
    reader: &InputReader,
) -> Result<Option<Pairs>, EnvironmentError> {
    match reader.read(kind, object, field).await {
        Ok(pairs) => Ok(Some(pairs)),
        Err(error) if optional == Some(true) && error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}
