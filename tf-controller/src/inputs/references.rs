//! The Secrets and ConfigMaps that the spec of a stack references. A change of one triggers a reconciliation; its content then
//! determines whether a run is needed. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::EnvVarSource;
use sluice_api::terraform::{KeySource, Terraform};
use sluice_runtime::schedule::ObjectKey;

/// Returns whether the stack reads this object or writes its outputs to it. Called for each stack when a Secret changes, so it
/// copies nothing.
pub(crate) fn is_referenced(stack: &Terraform, kind: KeySource, object: &ObjectKey) -> bool {
    let (namespace, name) = (object.namespace.as_str(), object.name.as_str());
    if cli_config(stack, kind) == Some((namespace, name)) {
        return true;
    }
    own(stack) == namespace
        && names(stack, kind)
            .chain(outputs(stack, kind))
            .any(|named| named == name)
}

/// Returns the objects of a kind that the stack reads.
pub(crate) fn referenced_objects(stack: &Terraform, kind: KeySource) -> BTreeSet<ObjectKey> {
    names(stack, kind)
        .map(|name| (own(stack), name))
        .chain(cli_config(stack, kind))
        .map(|(namespace, name)| ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
        .collect()
}

/// Returns the namespace of the stack.
fn own(stack: &Terraform) -> &str {
    stack.metadata.namespace.as_deref().unwrap_or_default()
}

/// Returns namespace and name of the Secret of `cliConfigSecretRef`, the only reference to another namespace.
fn cli_config(stack: &Terraform, kind: KeySource) -> Option<(&str, &str)> {
    let secret = stack.spec.cli_config_secret_ref.as_ref();
    let secret = secret.filter(|_| kind == KeySource::Secret)?;
    let namespace = if secret.namespace.is_empty() {
        own(stack)
    } else {
        secret.namespace.as_str()
    };
    Some((namespace, secret.name.as_str()))
}

/// Returns the names of the other objects that the stack reads, all in its namespace.
fn names(stack: &Terraform, kind: KeySource) -> impl Iterator<Item = &str> {
    let spec = &stack.spec;
    let vars = spec.vars_from.iter().map(|from| (from.kind, &from.name));
    let backend = spec
        .backend_configs_from
        .iter()
        .map(|from| (from.kind, &from.name));
    let selected = vars.chain(backend).filter(move |(other, _)| *other == kind);
    let files = spec
        .file_mappings
        .iter()
        .map(|mapping| mapping.secret_ref.name.as_str());
    let inputs = spec
        .read_inputs_from_secrets
        .iter()
        .map(|input| input.name.as_str());
    let secrets = files.chain(inputs).filter(move |_| kind == KeySource::Secret);
    selected
        .map(|(_, name)| name.as_str())
        .chain(variables(stack, kind))
        .chain(environment(stack, kind))
        .chain(secrets)
}

/// Returns the name of the outputs Secret, in the stack's namespace.
fn outputs(stack: &Terraform, kind: KeySource) -> Option<&str> {
    let target = stack.spec.write_outputs_to_secret.as_ref();
    let target = target.filter(|_| kind == KeySource::Secret)?;
    Some(target.name.as_str())
}

/// Returns the Secret or ConfigMap of a `valueFrom`.
fn value_of(from: &EnvVarSource, kind: KeySource) -> Option<&str> {
    match kind {
        KeySource::Secret => from
            .secret_key_ref
            .as_ref()
            .map(|selected| selected.name.as_str()),
        KeySource::ConfigMap => from
            .config_map_key_ref
            .as_ref()
            .map(|selected| selected.name.as_str()),
    }
}

/// `vars[].valueFrom`.
fn variables(stack: &Terraform, kind: KeySource) -> impl Iterator<Item = &str> {
    let from = stack
        .spec
        .vars
        .iter()
        .filter_map(|variable| variable.value_from.as_ref());
    from.filter_map(move |from| value_of(from, kind))
}

/// `runnerPodTemplate.spec.env[].valueFrom` and `envFrom`.
fn environment(stack: &Terraform, kind: KeySource) -> impl Iterator<Item = &str> {
    let pod = stack
        .spec
        .runner_pod_template
        .as_ref()
        .and_then(|template| template.spec.as_ref());
    let values = pod
        .into_iter()
        .flat_map(|pod| &pod.env)
        .filter_map(|variable| variable.value_from.as_ref());
    let values = values.filter_map(move |from| value_of(from, kind));
    let objects = pod
        .into_iter()
        .flat_map(|pod| &pod.env_from)
        .filter_map(move |from| match kind {
            KeySource::Secret => from.secret_ref.as_ref().map(|reference| reference.name.as_str()),
            KeySource::ConfigMap => from
                .config_map_ref
                .as_ref()
                .map(|reference| reference.name.as_str()),
        });
    values.chain(objects)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stack(spec: &Value) -> Terraform {
        let mut whole = json!({ "metadata": { "name": "net", "namespace": "team" },
            "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "code" } } });
        whole["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn every_reference_of_the_spec_counts_by_its_kind_name_and_namespace() {
        let secret = [
            json!({ "varsFrom": [{ "kind": "Secret", "name": "x" }] }),
            json!({ "backendConfigsFrom": [{ "kind": "Secret", "name": "x" }] }),
            json!({ "vars": [{ "name": "a", "valueFrom": { "secretKeyRef": { "name": "x", "key": "k" } } }] }),
            json!({ "runnerPodTemplate": { "spec": { "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "x", "key": "k" } } }] } } }),
            json!({ "runnerPodTemplate": { "spec": { "envFrom": [{ "secretRef": { "name": "x" } }] } } }),
            json!({ "cliConfigSecretRef": { "name": "x" } }),
            json!({ "cliConfigSecretRef": { "name": "x", "namespace": "team" } }),
            json!({ "fileMappings": [{ "location": "home", "path": "p", "secretRef": { "name": "x", "key": "k" } }] }),
            json!({ "readInputsFromSecrets": [{ "name": "x", "as": "a" }] }),
            json!({ "writeOutputsToSecret": { "name": "x" } }),
        ];
        let config = [
            json!({ "varsFrom": [{ "kind": "ConfigMap", "name": "x" }] }),
            json!({ "backendConfigsFrom": [{ "kind": "ConfigMap", "name": "x" }] }),
            json!({ "vars": [{ "name": "a", "valueFrom": { "configMapKeyRef": { "name": "x", "key": "k" } } }] }),
            json!({ "runnerPodTemplate": { "spec": { "env": [{ "name": "A", "valueFrom": { "configMapKeyRef": { "name": "x", "key": "k" } } }] } } }),
            json!({ "runnerPodTemplate": { "spec": { "envFrom": [{ "configMapRef": { "name": "x" } }] } } }),
        ];
        let all = secret
            .iter()
            .map(|spec| (KeySource::Secret, KeySource::ConfigMap, spec));
        for (kind, other, spec) in all.chain(
            config
                .iter()
                .map(|spec| (KeySource::ConfigMap, KeySource::Secret, spec)),
        ) {
            let stack = stack(spec);
            assert!(is_referenced(&stack, kind, &key("team", "x")), "{spec}");
            assert!(!is_referenced(&stack, other, &key("team", "x")), "{spec}");
            assert!(!is_referenced(&stack, kind, &key("team", "y")), "{spec}");
            assert!(!is_referenced(&stack, kind, &key("other", "x")), "{spec}");
        }
        let shared = stack(&json!({ "cliConfigSecretRef": { "name": "x", "namespace": "shared" } }));
        assert!(is_referenced(&shared, KeySource::Secret, &key("shared", "x")));
        assert!(!is_referenced(&shared, KeySource::Secret, &key("team", "x")));
    }
}
