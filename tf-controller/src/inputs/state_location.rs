//! Identifies the location of a state, so that an errored state is only pushed to where it belongs. Pure.
//!
//! Only what names the location counts: a renewed credential does not change it.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use sluice_api::reference::ObjectName;
use sluice_api::run::state::DIGEST_PREFIX;
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

/// Returns the fields of the spec that determine where the state is, to name what changed. Values that may be sensitive or long are
/// digests, under the key of the object.
pub(crate) fn state_fields(
    key: &[u8],
    spec: &TerraformSpec,
    backend: &Backend,
    arguments: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut fields = vec![("workspace", spec.workspace_name().to_owned())];
    let config = spec.backend_config.as_ref();
    if let Some(cloud) = &spec.cloud {
        fields.extend([
            ("cloud.hostname", cloud.hostname.clone()),
            ("cloud.organization", cloud.organization.clone()),
            ("cloud.workspaces.name", cloud.workspaces.name.clone()),
            ("cloud.workspaces.tags", cloud.workspaces.tags.join(",")),
        ]);
    } else if backend.file.is_none() {
        fields.extend([
            ("backendConfig.disable", "true".to_owned()),
            ("path", spec.path.clone()),
        ]);
    } else if let Some(config) = config {
        let labels = config.labels.iter();
        let labels: Vec<_> = labels.map(|(label, value)| format!("{label}={value}")).collect();
        fields.extend([
            ("backendConfig.secretSuffix", config.secret_suffix.clone()),
            ("backendConfig.configPath", config.config_path.clone()),
            ("backendConfig.labels", labels.join(",")),
        ]);
        if !config.custom_configuration.is_empty() {
            let text = config.custom_configuration.as_str();
            fields.push(("backendConfig.customConfiguration", keyed_digest(key, [text])));
        }
    }
    if !arguments.is_empty() {
        let parts = arguments
            .iter()
            .flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        fields.push(("backendConfigsFrom", keyed_digest(key, parts)));
    }
    let set = fields.into_iter().filter(|(_, value)| !value.is_empty());
    set.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn keyed_digest<'a>(key: &[u8], parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    for part in parts {
        mac.update(&length(part));
        mac.update(part.as_bytes());
    }
    format!(
        "{DIGEST_PREFIX}{}",
        hex::encode(&mac.finalize().into_bytes()[..8])
    )
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

    fn spec_of(more: Value) -> TerraformSpec {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
        let Value::Object(more) = more else {
            panic!("an object")
        };
        spec.as_object_mut().unwrap().extend(more);
        serde_json::from_value(spec).unwrap()
    }

    fn stack() -> ObjectName {
        ObjectName {
            namespace: "team".into(),
            name: "app".into(),
        }
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn location(more: Value, arguments: &[(&str, &str)], cli: CliLocation) -> String {
        let (spec, stack) = (spec_of(more), stack());
        let backend = backend(&spec, &stack, cli, DefaultBackend::Kubernetes);
        state_location(&spec, &backend, &map(arguments), &stack)
    }

    fn fields(more: Value, arguments: &[(&str, &str)]) -> BTreeMap<String, String> {
        let (spec, stack) = (spec_of(more), stack());
        let backend = backend(&spec, &stack, CliLocation::Pod, DefaultBackend::Kubernetes);
        state_fields(b"key", &spec, &backend, &map(arguments))
    }

    #[test]
    fn the_fields_of_the_location_have_values_or_digests() {
        assert_eq!(fields(json!({}), &[]), map(&[("workspace", "default")]));
        let kubernetes = json!({ "workspace": "blue", "backendConfig": { "secretSuffix": "net", "labels": { "a": "b", "c": "d" } } });
        assert_eq!(
            fields(kubernetes, &[]),
            map(&[
                ("workspace", "blue"),
                ("backendConfig.secretSuffix", "net"),
                ("backendConfig.labels", "a=b,c=d"),
            ])
        );
        let cloud =
            json!({ "cloud": { "organization": "o", "workspaces": { "name": "w" }, "token": "hunter2" } });
        let cloud = fields(cloud, &[]);
        assert_eq!(cloud["cloud.workspaces.name"], "w");
        assert!(!format!("{cloud:?}").contains("hunter2"));
        let custom = json!({ "backendConfig": { "customConfiguration": "backend \"s3\" {}" } });
        let s3 = |bucket| fields(custom.clone(), &[("bucket", bucket)]);
        assert_eq!(s3("x"), s3("x"));
        assert_ne!(s3("x"), s3("y"));
        for field in ["backendConfig.customConfiguration", "backendConfigsFrom"] {
            assert!(s3("x")[field].starts_with(DIGEST_PREFIX), "{field}");
        }
        let own = fields(
            json!({ "backendConfig": { "disable": true }, "path": "infra" }),
            &[],
        );
        assert_eq!(own["path"], "infra");
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
