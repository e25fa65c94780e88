//! Which objects of files are served, and where a new object gets its file.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::yaml;
use crate::meta;
use crate::resource::{Registry, Resource};
use crate::store::state::Key;

/// The directory of cluster-scoped objects.
const CLUSTER: &str = "_cluster";
/// The directory of the core group.
const CORE: &str = "core";

/// Kinds that stay on this machine: secret, short-lived, made by the program itself, or about the users of the machine. A push must not
/// give permissions that its author does not have.
const LOCAL: [&str; 10] = [
    "secrets",
    "events",
    "serviceaccounts",
    "leases.coordination.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "terraformruns.infra.sluice.dev",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
];

/// Whether the object is kept in the repository.
pub(super) fn is_shared(key: &Key) -> bool {
    let is_initial = key.resource == "namespaces" && (key.name == "default" || key.name.starts_with("kube-"));
    !is_initial && !LOCAL.contains(&key.resource.as_str())
}

/// The served kinds.
#[derive(Debug)]
pub(super) struct Kinds(Registry);

impl Kinds {
    /// Creates the kinds of a server with these definitions. The error is the reason.
    pub(super) fn new(crds: &[CustomResourceDefinition]) -> Result<Self, String> {
        let mut registry = Registry::builtin();
        for crd in crds {
            registry.add_definition(crd).map_err(|error| error.to_string())?;
        }
        Ok(Self(registry))
    }

    /// Returns the kind of an object, in the version of the object; `None` if it is not served.
    pub(super) fn of(&self, object: &Value) -> Option<&Arc<Resource>> {
        let version = object["apiVersion"].as_str()?;
        let kind = object["kind"].as_str()?;
        let mut served = self.0.all().iter();
        served.find(|resource| resource.kind == kind && resource.api_version() == version)
    }

    /// Returns the identity of an object in a file; `None` if its kind is not served or it has no name.
    pub(super) fn key(&self, object: &Value) -> Option<Key> {
        let resource = self.of(object)?;
        let name = meta::name(object);
        let namespace = match meta::namespace(object) {
            _ if !resource.namespaced => "",
            "" => "default",
            namespace => namespace,
        };
        (!name.is_empty()).then(|| Key::new(resource.group_resource(), namespace, name))
    }

    /// Returns the identities of the objects in a file, and the documents that do not parse. Other documents are left out: an
    /// unknown kind is not an object.
    pub(super) fn keys(&self, text: &str) -> (Vec<Key>, Option<String>) {
        if text.contains(char::REPLACEMENT_CHARACTER) {
            return (Vec::new(), Some("it is not UTF-8".to_owned()));
        }
        let (mut keys, mut problem) = (Vec::new(), None);
        for range in yaml::documents(text) {
            match yaml::parse(&text[range]) {
                Ok(object) => keys.extend(self.key(&object)),
                Err(reason) => problem = Some(reason),
            }
        }
        (keys, problem)
    }

    /// Returns the default path of an object: `<group or core>/<version>/<plural>/<namespace or _cluster>/<name>.yaml`.
    pub(super) fn path(&self, key: &Key) -> Option<String> {
        let resource = self.0.by_group_resource(&key.resource)?;
        Some(format!(
            "{}/{}/{}/{}/{}.yaml",
            non_empty(&resource.group, CORE),
            resource.storage_version,
            resource.plural,
            non_empty(&key.namespace, CLUSTER),
            key.name
        ))
    }
}

fn non_empty<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_path_follows_from_the_identity() {
        let kinds = Kinds::new(&[]).unwrap();
        let path = |resource: &str, namespace: &str| kinds.path(&Key::new(resource, namespace, "a"));
        let expected = "core/v1/configmaps/default/a.yaml";
        assert_eq!(path("configmaps", "default").as_deref(), Some(expected));
        let expected = "core/v1/namespaces/_cluster/a.yaml";
        assert_eq!(path("namespaces", "").as_deref(), Some(expected));
        assert_eq!(path("widgets.example.dev", "default"), None, "never a guess");
    }

    #[test]
    fn the_content_of_a_file_names_its_objects() {
        let kinds = Kinds::new(&[]).unwrap();
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: a.example/v1\nkind: Unknown\nmetadata: {name: b}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: c, namespace: ignored}\n";
        let (keys, problem) = kinds.keys(text);
        assert_eq!(problem, None);
        let expected = [
            Key::new("configmaps", "default", "a"),
            Key::new("namespaces", "", "c"),
        ];
        assert_eq!(keys, expected);
        assert!(kinds.keys("a: [\n").1.is_some());
        assert!(kinds.keys("a: \u{fffd}\n").1.is_some());
    }

    #[test]
    fn secrets_and_what_the_program_makes_stay_here() {
        let shared = |resource: &str, name: &str| is_shared(&Key::new(resource, "", name));
        assert!(shared("terraforms.infra.contrib.fluxcd.io", "a") && shared("namespaces", "prod"));
        assert!(!shared("secrets", "a") && !shared("leases.coordination.k8s.io", "a"));
        assert!(!shared("clusterroles.rbac.authorization.k8s.io", "view"));
        assert!(!shared("rolebindings.rbac.authorization.k8s.io", "a"));
        assert!(!shared("terraformruns.infra.sluice.dev", "a") && !shared("namespaces", "default"));
    }
}
