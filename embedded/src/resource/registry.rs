//! All kinds by group, version and plural, in discovery order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::Version;
use serde_json::Value;

use super::discovery_document::{self, DiscoveryDocument};
use super::{DefinitionError, Resource, Strategy, builtin, definition};
use crate::schema::openapi::{self, PublishedKind};

/// The kinds of one server at one time.
#[derive(Debug)]
pub(crate) struct Registry {
    resources: Vec<Arc<Resource>>,
    /// Built on first use: only kubectl requests them.
    openapi_documents: OnceLock<BTreeMap<String, Value>>,
    /// Built on first use: for the core group, and for the others.
    discovery_documents: OnceLock<(DiscoveryDocument, DiscoveryDocument)>,
}

impl Registry {
    /// Creates a registry of the built-in kinds.
    pub(crate) fn builtin() -> Self {
        Self {
            resources: builtin::all().into_iter().map(Arc::new).collect(),
            openapi_documents: OnceLock::new(),
            discovery_documents: OnceLock::new(),
        }
    }

    /// Adds the kinds of a definition.
    pub(crate) fn add_definition(&mut self, crd: &CustomResourceDefinition) -> Result<(), DefinitionError> {
        self.resources
            .extend(definition::resources(crd)?.into_iter().map(Arc::new));
        Ok(())
    }

    /// Returns a registry with more kinds.
    pub(crate) fn extended(&self, more: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        let mut resources = self.resources.clone();
        resources.extend(more);
        Self {
            resources,
            openapi_documents: OnceLock::new(),
            discovery_documents: OnceLock::new(),
        }
    }

    /// Returns every kind.
    pub(crate) fn all(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// Returns the kind of a path.
    pub(crate) fn by_path(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources
            .iter()
            .find(|r| r.group == group && r.version == version && r.plural == plural)
    }

    /// Returns the kind of a group, in any served version.
    pub(crate) fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|r| r.group == group && r.kind == kind)
    }

    /// Returns the first kind with a strategy.
    pub(crate) fn by_strategy(&self, strategy: Strategy) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|r| r.strategy == strategy)
    }

    /// Returns the kind of a group resource, in its storage version.
    pub(crate) fn by_group_resource(&self, id: &str) -> Option<&Arc<Resource>> {
        self.resources
            .iter()
            .find(|r| r.version == r.storage_version && r.group_resource() == id)
    }

    /// Returns the groups in discovery order, without core.
    pub(crate) fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for resource in &self.resources {
            if !resource.group.is_empty() && !groups.contains(&resource.group.as_str()) {
                groups.push(&resource.group);
            }
        }
        groups
    }

    /// Returns the versions of a group, most stable and newest first.
    pub(crate) fn versions(&self, group: &str) -> Vec<&str> {
        let mut versions: Vec<&str> = Vec::new();
        for resource in self.resources.iter().filter(|r| r.group == group) {
            if !versions.contains(&resource.version.as_str()) {
                versions.push(&resource.version);
            }
        }
        versions.sort_by_cached_key(|version| Reverse(Version::parse(version).priority()));
        versions
    }

    /// Returns the `apiVersion`s of a kind that are served.
    pub(crate) fn served_versions(&self, resource: &Resource) -> Vec<String> {
        let versions = self
            .resources
            .iter()
            .filter(|r| r.group == resource.group && r.plural == resource.plural);
        versions.map(|r| r.api_version()).collect()
    }

    /// Returns the aggregated discovery of the core group, or of all other groups.
    pub(crate) fn discovery_document(&self, is_core: bool) -> &DiscoveryDocument {
        let (core, groups) = self.discovery_documents.get_or_init(|| {
            let core = discovery_document::of_groups(self, &[""]);
            (core, discovery_document::of_groups(self, &self.groups()))
        });
        if is_core { core } else { groups }
    }

    /// Returns the OpenAPI documents of all group versions, by path.
    pub(crate) fn openapi_documents(&self) -> &BTreeMap<String, Value> {
        self.openapi_documents.get_or_init(|| {
            let mut kinds: BTreeMap<String, Vec<PublishedKind<'_>>> = BTreeMap::new();
            for resource in &self.resources {
                let path = openapi::path(&resource.group, &resource.version);
                kinds.entry(path).or_default().push(resource.published_kind());
            }
            kinds
                .into_iter()
                .map(|(path, kinds)| (path, openapi::document(&kinds)))
                .collect()
        })
    }
}
