//! All kinds by group, version and plural, in the order of discovery.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::Version;
use serde_json::Value;

use super::{DefinitionError, Family, Resource, builtin, definition};
use crate::{
    schema::openapi::{self, Published},
    service::StatusError,
};

/// The kinds of one server.
#[derive(Debug)]
pub(crate) struct Registry {
    resources: Vec<Arc<Resource>>,
    /// Made when first asked for: only kubectl does.
    documents: OnceLock<BTreeMap<String, Value>>,
}

impl Registry {
    /// The built-in kinds.
    pub(crate) fn builtin() -> Self {
        Self {
            resources: builtin::all().into_iter().map(Arc::new).collect(),
            documents: OnceLock::new(),
        }
    }

    /// Adds the kinds of a definition.
    pub(crate) fn define(&mut self, crd: &CustomResourceDefinition) -> Result<(), DefinitionError> {
        self.resources
            .extend(definition::resources(crd)?.into_iter().map(Arc::new));
        Ok(())
    }

    /// Every kind.
    pub(crate) fn all(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The kind behind a path.
    pub(crate) fn by_path(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources
            .iter()
            .find(|r| r.group == group && r.version == version && r.plural == plural)
    }

    /// 404 of a path below a group version: a `Status` where built-in kinds live, otherwise a page.
    pub(crate) fn nowhere(&self, group: &str, version: &str) -> StatusError {
        let holds_builtin =
            |r: &Arc<Resource>| r.family != Family::Custom && r.group == group && r.version == version;
        if self.resources.iter().any(holds_builtin) {
            StatusError::no_such_path()
        } else {
            StatusError::no_such_page()
        }
    }

    /// The kind of an `apiVersion` and `kind`, at any served version.
    pub(crate) fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|r| r.group == group && r.kind == kind)
    }

    /// The kind with rules of its own.
    pub(crate) fn by_family(&self, family: Family) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|r| r.family == family)
    }

    /// The kind that the store calls `id`, at the version it is stored in.
    pub(crate) fn by_id(&self, id: &str) -> Option<&Arc<Resource>> {
        self.resources
            .iter()
            .find(|r| r.version == r.storage_version && r.id() == id)
    }

    /// Groups in the order of discovery, core not among them.
    pub(crate) fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for resource in &self.resources {
            if !resource.group.is_empty() && !groups.contains(&resource.group.as_str()) {
                groups.push(&resource.group);
            }
        }
        groups
    }

    /// Versions of a group, most stable and newest first.
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

    /// OpenAPI documents of all group versions, by their paths.
    pub(crate) fn documents(&self) -> &BTreeMap<String, Value> {
        self.documents.get_or_init(|| {
            let mut kinds: BTreeMap<String, Vec<Published<'_>>> = BTreeMap::new();
            for resource in &self.resources {
                let path = openapi::path(&resource.group, &resource.version);
                kinds.entry(path).or_default().push(resource.published());
            }
            kinds
                .into_iter()
                .map(|(path, kinds)| (path, openapi::document(&kinds)))
                .collect()
        })
    }
}
