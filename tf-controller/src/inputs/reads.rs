//! Which Secrets and ConfigMaps a stack reads: every reference of its spec. Pure. A change of one of them is a reason to
//! look at the stack; whether anything is run is then told by the content.

use k8s_openapi::api::core::v1::EnvVarSource;
use sluice_api::terraform::{KeySource, Terraform};
use sluice_runtime::schedule::ObjectKey;
use std::collections::BTreeSet;

/// Whether the stack reads this object, or writes its outputs to it. Asked of every stack for every Secret that changes,
/// so nothing is copied.
#[must_use]
pub fn reads(stack: &Terraform, kind: KeySource, object: &ObjectKey) -> bool {
    let (namespace, name) = (object.namespace.as_str(), object.name.as_str());
    if elsewhere(stack, kind) == Some((namespace, name)) {
        return true;
    }
    own(stack) == namespace
        && names(stack, kind)
            .chain(written(stack, kind))
            .any(|named| named == name)
}

/// The objects of a kind that the stack reads.
#[must_use]
pub fn read(stack: &Terraform, kind: KeySource) -> BTreeSet<ObjectKey> {
    names(stack, kind)
        .map(|name| (own(stack), name))
        .chain(elsewhere(stack, kind))
        .map(|(namespace, name)| ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
        .collect()
}

/// The stack's own namespace.
fn own(stack: &Terraform) -> &str {
    stack.metadata.namespace.as_deref().unwrap_or_default()
}

/// The one that may lie in any namespace, and which: the Secret of `cliConfigSecretRef`.
fn elsewhere(stack: &Terraform, kind: KeySource) -> Option<(&str, &str)> {
    let secret = stack.spec.cli_config_secret_ref.as_ref();
    let secret = secret.filter(|_| kind == KeySource::Secret)?;
    let namespace = if secret.namespace.is_empty() {
        own(stack)
    } else {
        secret.namespace.as_str()
    };
    Some((namespace, secret.name.as_str()))
}

/// The names of all others that are read: they lie in the stack's own namespace.
fn names(stack: &Terraform, kind: KeySource) -> impl Iterator<Item = &str> {
    let spec = &stack.spec;
    let vars = spec.vars_from.iter().map(|from| (from.kind, &from.name));
    let backend = spec
        .backend_configs_from
        .iter()
        .map(|from| (from.kind, &from.name));
    let picked = vars.chain(backend).filter(move |(other, _)| *other == kind);
    let files = spec
        .file_mappings
        .iter()
        .map(|mapping| mapping.secret_ref.name.as_str());
    let inputs = spec
        .read_inputs_from_secrets
        .iter()
        .map(|input| input.name.as_str());
    let secrets = files.chain(inputs).filter(move |_| kind == KeySource::Secret);
    picked
        .map(|(_, name)| name.as_str())
        .chain(variables(stack, kind))
        .chain(environment(stack, kind))
        .chain(secrets)
}

/// The name of the Secret that the outputs are written to, in the stack's own namespace.
fn written(stack: &Terraform, kind: KeySource) -> Option<&str> {
    let target = stack.spec.write_outputs_to_secret.as_ref();
    let target = target.filter(|_| kind == KeySource::Secret)?;
    Some(target.name.as_str())
}

/// The Secret or ConfigMap that a value comes from.
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
    let single = pod
        .into_iter()
        .flat_map(|pod| &pod.env)
        .filter_map(|variable| variable.value_from.as_ref());
    let single = single.filter_map(move |from| value_of(from, kind));
    let whole = pod
        .into_iter()
        .flat_map(|pod| &pod.env_from)
        .filter_map(move |from| match kind {
            KeySource::Secret => from.secret_ref.as_ref().map(|reference| reference.name.as_str()),
            KeySource::ConfigMap => from
                .config_map_ref
                .as_ref()
                .map(|reference| reference.name.as_str()),
        });
    single.chain(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
            assert!(reads(&stack, kind, &key("team", "x")), "{spec}");
            assert!(!reads(&stack, other, &key("team", "x")), "{spec}");
            assert!(!reads(&stack, kind, &key("team", "y")), "{spec}");
            assert!(!reads(&stack, kind, &key("other", "x")), "{spec}");
        }
        let elsewhere = stack(&json!({ "cliConfigSecretRef": { "name": "x", "namespace": "shared" } }));
        assert!(reads(&elsewhere, KeySource::Secret, &key("shared", "x")));
        assert!(!reads(&elsewhere, KeySource::Secret, &key("team", "x")));
    }
}
