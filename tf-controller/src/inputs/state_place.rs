//! Tells one place of state from another (pure), so that a state which could not be written goes back to its own place.
//!
//! Only what names the place counts: a credential that is renewed does not move the state.

use super::Backend;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use sluice_api::terraform::TerraformSpec;
use std::collections::BTreeMap;

/// Backend arguments that name a place, over the backends of both CLIs.
const PLACES: [&str; 24] = [
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

/// The place of a stack's state, as a digest without a key: an object that takes the place of a deleted one finds the state that
/// was kept for it, and so does one whose key was lost.
#[must_use]
pub fn state_place(
    spec: &TerraformSpec,
    backend: &Backend,
    arguments: &BTreeMap<String, String>,
    namespace: &str,
    name: &str,
) -> String {
    let mut hash = Sha256::new();
    for part in parts(spec, backend, arguments, namespace, name) {
        hash.update(length(part));
        hash.update(part.as_bytes());
    }
    format!("sha256:{}", hex::encode(&hash.finalize()[..16]))
}

/// The place as states were marked with it before, keyed with the key of the object.
#[must_use]
pub fn former_state_place(
    key: &[u8],
    spec: &TerraformSpec,
    backend: &Backend,
    arguments: &BTreeMap<String, String>,
    namespace: &str,
    name: &str,
) -> String {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    for part in parts(spec, backend, arguments, namespace, name) {
        mac.update(&length(part));
        mac.update(part.as_bytes());
    }
    hex::encode(&mac.finalize().into_bytes()[..16])
}

fn length(part: &str) -> [u8; 8] {
    u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes()
}

/// What names the place.
fn parts<'a>(
    spec: &'a TerraformSpec,
    backend: &'a Backend,
    arguments: &'a BTreeMap<String, String>,
    namespace: &'a str,
    name: &'a str,
) -> Vec<&'a str> {
    let mut parts = named(spec, backend, namespace, name);
    let places = arguments
        .iter()
        .filter(|(name, _)| PLACES.contains(&name.as_str()));
    parts.extend(places.flat_map(|(argument, value)| [argument.as_str(), value.as_str()]));
    parts
}

fn named<'a>(
    spec: &'a TerraformSpec,
    backend: &'a Backend,
    namespace: &'a str,
    name: &'a str,
) -> Vec<&'a str> {
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
        // The module's own backend: the module tells.
        (_, None) => vec!["own", &spec.path],
        (Some(config), Some(file)) if !config.custom_configuration.is_empty() => vec!["custom", file],
        (Some(config), Some(_)) => vec![
            "kubernetes",
            namespace,
            &config.secret_suffix,
            &config.config_path,
        ],
        (None, Some(file)) if !file.contains("\"kubernetes\"") => vec!["local", &spec.path],
        (None, Some(_)) => vec!["kubernetes", namespace, name, ""],
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DefaultBackend, Named, Place, backend};
    use super::*;
    use serde_json::{Value, json};

    fn place(more: Value, arguments: &[(&str, &str)], place: Place) -> String {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
        let Value::Object(more) = more else {
            panic!("an object")
        };
        spec.as_object_mut().unwrap().extend(more);
        let spec: TerraformSpec = serde_json::from_value(spec).unwrap();
        let stack = Named {
            name: "app",
            namespace: "team",
        };
        let made = backend(&spec, stack, place, DefaultBackend::Kubernetes);
        let arguments = arguments
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        state_place(&spec, &made, &arguments, "team", "app")
    }

    #[test]
    fn another_place_is_told_and_a_renewed_credential_is_none() {
        let of = |spec, arguments: &[(&str, &str)]| place(spec, arguments, Place::Outside);
        let base = of(json!({}), &[]);
        assert_eq!(place(json!({}), &[], Place::Pod), base, "in a pod or not");
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
