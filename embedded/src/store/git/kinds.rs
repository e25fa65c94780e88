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

/// Kinds that stay on this machine: secret, short-lived, or made by the program itself.
const LOCAL: [&str; 6] = [
    "secrets",
    "events",
    "serviceaccounts",
    "leases.coordination.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "terraformruns.infra.sluice.dev",
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
