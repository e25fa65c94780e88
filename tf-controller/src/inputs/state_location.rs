//! Identifies the location of a state, so that an errored state is only pushed to where it belongs. Pure.
//!
//! Only what names the location counts: a renewed credential does not change it.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use sluice_api::reference::ObjectName;
use sluice_api::terraform::TerraformSpec;

use super::Backend;

/// Arguments that name the location, of all backends of both CLIs.
const LOCATION_ARGUMENTS: [&str; 24] = [
    "address",
    "bucket",
    "config_path",
    "container_name",
    "endpoint",
    "host",
    "hostname",
    "instance_name",
    "key",
    "name",
    "namespace",
    "namespace_name",
    "organization",
    "path",
    "prefix",
    "region",
    "resource_group_name",
    "schema_name",
    "secret_suffix",
    "storage_account_name",
    "tablestore_table",
    "workspace_dir",
    "workspace_key_prefix",
    "workspaces",
];

/// Returns the digest of the location. It has no key, so that a new object of the same name, or one whose key was lost, finds the
/// stored state.
pub(crate) fn state_location(
    spec: &TerraformSpec,
    backend: &Backend,
    arguments: &BTreeMap<String, String>,
    stack: &ObjectName,
) -> String {
    let mut hash = Sha256::new();
    for part in parts(spec, backend, arguments, stack) {
        hash.update(length(part));
        hash.update(part.as_bytes());
    }
    format!("sha256:{}", hex::encode(&hash.finalize()[..16]))
}

/// Returns the digest of the location as earlier versions stored it, with the key of the object.
pub(crate) fn former_state_location(
    key: &[u8],
    spec: &TerraformSpec,
    backend: &Backend,
    arguments: &BTreeMap<String, String>,
    stack: &ObjectName,
) -> String {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    for part in parts(spec, backend, arguments, stack) {
        mac.update(&length(part));
        mac.update(part.as_bytes());
    }
    hex::encode(&mac.finalize().into_bytes()[..16])
}

fn length(part: &str) -> [u8; 8] {
    u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes()
}

/// Returns everything that names the location.
fn parts<'a>(
    spec: &'a TerraformSpec,
    backend: &'a Backend,
    arguments: &'a BTreeMap<String, String>,
    stack: &'a ObjectName,
) -> Vec<&'a str> {
    let mut parts = spec_parts(spec, backend, stack);
    let named = arguments
        .iter()
        .filter(|(name, _)| LOCATION_ARGUMENTS.contains(&name.as_str()));
    parts.extend(named.flat_map(|(argument, value)| [argument.as_str(), value.as_str()]));
    parts
}

fn spec_parts<'a>(spec: &'a TerraformSpec, backend: &'a Backend, stack: &'a ObjectName) -> Vec<&'a str> {
    if let Some(cloud) = &spec.cloud {
        let mut parts = vec![
            "cloud",
            &cloud.hostname,
            &cloud.organization,
            &cloud.workspaces.name,
        ];
        parts.extend(cloud.workspaces.tags.iter().map(String::as_str));
        return parts;
    }
    match (&spec.backend_config, &backend.file) {
        // The module's own backend: the module names the location.
        (_, None) => vec!["own", &spec.path],
        (Some(config), Some(file)) if !config.custom_configuration.is_empty() => vec!["custom", file],
        (Some(config), Some(_)) => vec![
            "kubernetes",
            &stack.namespace,
            &config.secret_suffix,
            &config.config_path,
        ],
        (None, Some(file)) if !file.contains("\"kubernetes\"") => vec!["local", &spec.path],
        (None, Some(_)) => vec!["kubernetes", &stack.namespace, &stack.name, ""],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{CliLocation, DefaultBackend, backend};
    use super::*;

    fn location(more: Value, arguments: &[(&str, &str)], cli: CliLocation) -> String {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
        let Value::Object(more) = more else {
            panic!("an object")
        };
        spec.as_object_mut().unwrap().extend(more);
        let spec: TerraformSpec = serde_json::from_value(spec).unwrap();
        let stack = ObjectName {
            namespace: "team".into(),
            name: "app".into(),
        };
        let backend = backend(&spec, &stack, cli, DefaultBackend::Kubernetes);
        let arguments = arguments
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        state_location(&spec, &backend, &arguments, &stack)
    }

    #[test]
    fn another_state_location_is_detected_but_a_renewed_credential_is_not() {
        let of = |spec, arguments: &[(&str, &str)]| location(spec, arguments, CliLocation::Outside);
        let base = of(json!({}), &[]);
        assert_eq!(
            location(json!({}), &[], CliLocation::Pod),
            base,
            "in a pod or not"
        );
        assert_eq!(
            of(
                json!({ "backendConfig": { "secretSuffix": "app", "labels": { "a": "b" } } }),
                &[]
            ),
            base,
            "the default, spelled out"
        );
        let cloud = |token| json!({ "cloud": { "organization": "o", "workspaces": { "name": "w" }, "token": token } });
        assert_eq!(of(cloud("a"), &[]), of(cloud("b"), &[]));
        let custom = json!({ "backendConfig": { "customConfiguration": "backend \"s3\" {}" } });
        let bucket = |bucket, key| of(custom.clone(), &[("bucket", bucket), ("secret_key", key)]);
        assert_eq!(bucket("x", "1"), bucket("x", "2"));
        let all = [
            base,
            of(json!({ "backendConfig": {} }), &[]),
            of(json!({ "backendConfig": { "disable": true } }), &[]),
            of(
                json!({ "backendConfig": { "disable": true }, "path": "other" }),
                &[],
            ),
            of(cloud("a"), &[]),
            bucket("x", "1"),
            bucket("y", "1"),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
    }
}
