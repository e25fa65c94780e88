//! Decides which documents are served objects, and which file a new object gets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::sharing::Sharing;
use super::yaml::ParsedFile;
use crate::definitions::DEFINITIONS;
use crate::meta;
use crate::resource::{Registry, Resource, resources_of_spec};
use crate::store::state::Key;

/// The directory of cluster-scoped objects.
pub(super) const CLUSTER: &str = "_cluster";
/// The directory of the core group.
const CORE: &str = "core";

/// The served kinds: those of the program, and those of the definitions in the repository.
#[derive(Debug)]
pub(super) struct Kinds {
    /// The kinds of the program.
    own: Arc<Registry>,
    /// Names of their definitions, which are not in the repository.
    own_definitions: BTreeSet<String>,
    /// Definitions in the repository, oldest first: if two have the same kind, an object is one of the older definition.
    definitions: Vec<Definition>,
    /// All kinds.
    all: Arc<Registry>,
    /// Group resources of all kinds.
    served: BTreeSet<String>,
    /// Kinds of programs that are in the repository by option.
    sharing: Sharing,
}

/// A definition in the repository.
#[derive(Debug)]
struct Definition {
    name: String,
    spec: Value,
    resources: Vec<Arc<Resource>>,
}

/// What a file contains.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Identities of the objects, in the order of the documents.
    pub(super) keys: Vec<Key>,
    /// The objects, of several documents of one the first.
    pub(super) objects: BTreeMap<Key, Value>,
    /// API groups of all documents, also of those whose kind is not served.
    pub(super) groups: BTreeSet<String>,
    /// Why a document does not parse.
    pub(super) problem: Option<String>,
}

impl Definition {
    fn new(name: &str, spec: &Value) -> Self {
        // The definition was admitted, so this fails only for one that an earlier program could serve.
        let resources = resources_of_spec(spec).unwrap_or_else(|error| {
            tracing::error!(
                definition = name,
                error,
                "a definition of the repository cannot be served"
            );
            Vec::new()
        });
        Self {
            name: name.to_owned(),
            spec: spec.clone(),
            resources,
        }
    }
}

impl Kinds {
    /// Creates the kinds of a server with these definitions. The error is the reason.
    pub(super) fn new(crds: &[CustomResourceDefinition]) -> Result<Self, String> {
        let mut registry = Registry::builtin();
        for crd in crds {
            registry.add_definition(crd).map_err(|error| error.to_string())?;
        }
        let names = crds.iter().filter_map(|crd| crd.metadata.name.clone());
        let sharing = Sharing::default();
        Ok(Self::of_program(Arc::new(registry), names.collect(), sharing))
    }

    /// Shares kinds that would stay on this machine.
    pub(super) fn with_sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Returns the kinds that are shared by option.
    pub(super) const fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    fn of_program(own: Arc<Registry>, own_definitions: BTreeSet<String>, sharing: Sharing) -> Self {
        let mut kinds = Self {
            all: own.clone(),
            own,
            own_definitions,
            definitions: Vec::new(),
            served: BTreeSet::new(),
            sharing,
        };
        kinds.serve();
        kinds
    }

    /// Returns the kinds before the first commit.
    pub(super) fn before_history(&self) -> Self {
        Self::of_program(
            self.own.clone(),
            self.own_definitions.clone(),
            self.sharing.clone(),
        )
    }

    fn serve(&mut self) {
        let more = self
            .definitions
            .iter()
            .flat_map(|definition| definition.resources.iter().cloned());
        self.all = Arc::new(self.own.extended(more));
        let all = self.all.all().iter();
        self.served = all.map(|resource| resource.group_resource()).collect();
    }

    /// Takes over a definition of the repository; `None` if it is removed. Returns its group if that changes the served kinds.
    pub(super) fn define(&mut self, name: &str, definition: Option<&Value>) -> Option<String> {
        let spec = definition.map(|definition| &definition["spec"]);
        let at = self.definitions.iter().position(|known| known.name == name);
        let known = at.and_then(|at| self.definitions.get(at));
        if known.map(|known| &known.spec) == spec {
            return None;
        }
        match (at, spec) {
            (Some(at), None) => {
                self.definitions.remove(at);
            }
            (Some(at), Some(spec)) => {
                if let Some(known) = self.definitions.get_mut(at) {
                    *known = Definition::new(name, spec);
                }
            }
            (None, Some(spec)) => self.definitions.push(Definition::new(name, spec)),
            (None, None) => {}
        }
        self.serve();
        // The name of a definition is `<plural>.<group>`.
        name.split_once('.').map(|(_, group)| group.to_owned())
    }

    /// Returns the number of definitions, with those of the program.
    pub(super) fn definition_count(&self) -> usize {
        self.own_definitions.len() + self.definitions.len()
    }

    /// Whether the object is kept in the repository.
    pub(super) fn is_shared(&self, key: &Key) -> bool {
        let is_initial =
            key.resource == "namespaces" && (key.name == "default" || key.name.starts_with("kube-"));
        let is_own = key.resource == DEFINITIONS && self.own_definitions.contains(&key.name);
        !is_initial && !is_own && !self.sharing.is_local(&key.resource)
    }

    /// Whether the whole object is in the journal, so that no file of the branch is read as it.
    pub(super) fn is_in_journal(&self, key: &Key) -> bool {
        self.sharing.is_in_journal(&key.resource)
    }

    /// Whether the definition of an object's kind is in the repository.
    pub(super) fn is_defined_in_repository(&self, key: &Key) -> bool {
        // The name of a definition is `<plural>.<group>`.
        self.definitions
            .iter()
            .any(|definition| definition.name == key.resource)
    }

    /// Whether the kind of an object is served, in any version.
    pub(super) fn is_served(&self, key: &Key) -> bool {
        self.served.contains(&key.resource)
    }

    /// Returns the kind of an object, in the version of the object; `None` if it is not served.
    pub(super) fn of(&self, object: &Value) -> Option<&Arc<Resource>> {
        let version = object["apiVersion"].as_str()?;
        let kind = object["kind"].as_str()?;
        self.by_kind(version, kind)
    }

    fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let mut served = self.all.all().iter();
        served.find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    /// Returns the identity of an object in a file of the branch; `None` if its kind is not served or in the journal, or it has no name.
    pub(super) fn key(&self, object: &Value) -> Option<Key> {
        self.identity(object).filter(|key| !self.is_in_journal(key))
    }

    /// Returns the identity of an object; `None` if its kind is not served or it has no name.
    pub(super) fn identity(&self, object: &Value) -> Option<Key> {
        let resource = self.of(object)?;
        let name = meta::name(object);
        let namespace = match meta::namespace(object) {
            _ if !resource.namespaced => "",
            "" => "default",
            namespace => namespace,
        };
        (!name.is_empty()).then(|| Key::new(resource.group_resource(), namespace, name))
    }

    /// Returns what a file contains. Documents that are not objects are left out: an unknown kind is not one.
    pub(super) fn content(&self, file: ParsedFile) -> Content {
        let mut content = Content {
            problem: file.problem,
            ..Content::default()
        };
        for document in file.documents {
            let version = document["apiVersion"].as_str().unwrap_or_default();
            let group = version.split_once('/').map(|(group, _)| group.to_owned());
            content.groups.extend(group);
            if let Some(key) = self.key(&document) {
                content.keys.push(key.clone());
                content.objects.entry(key).or_insert(document);
            }
        }
        content
    }

    /// Returns the default path of an object: `<group or core>/<version>/<plural>/<namespace or _cluster>/<name>.yaml`. `None` if its
    /// kind is not served, or if a document of that version and kind would not be read as this object.
    pub(super) fn path(&self, key: &Key) -> Option<String> {
        let resource = self.all.by_group_resource(&key.resource)?;
        let read = self.by_kind(&resource.storage_api_version(), &resource.kind)?;
        if read.plural != resource.plural {
            return None;
        }
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
        let content = kinds.content(ParsedFile::parse(text));
        assert_eq!(content.problem, None);
        let expected = [
            Key::new("configmaps", "default", "a"),
            Key::new("namespaces", "", "c"),
        ];
        assert_eq!(content.keys, expected);
        assert!(content.objects.keys().eq(&expected));
        let broken = kinds.content(ParsedFile::parse("a: [\n"));
        assert!(broken.problem.is_some());
    }

    #[test]
    fn the_first_of_two_documents_of_an_object_counts() {
        let kinds = Kinds::new(&[]).unwrap();
        let document = |data: &str| {
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{a: {data}}}\n")
        };
        let text = format!("{}---\n{}", document("first"), document("second"));
        let content = kinds.content(ParsedFile::parse(&text));
        let key = Key::new("configmaps", "default", "a");
        assert_eq!(content.keys, [key.clone(), key.clone()]);
        assert_eq!(content.objects[&key]["data"]["a"], "first");
    }

    #[test]
    fn secrets_and_what_the_program_makes_stay_here() {
        let kinds = Kinds::new(&[]).unwrap();
        let shared = |resource: &str, name: &str| kinds.is_shared(&Key::new(resource, "", name));
        assert!(shared("terraforms.infra.contrib.fluxcd.io", "a") && shared("namespaces", "prod"));
        assert!(!shared("secrets", "a") && !shared("leases.coordination.k8s.io", "a"));
        assert!(!shared("clusterroles.rbac.authorization.k8s.io", "view"));
        assert!(!shared("rolebindings.rbac.authorization.k8s.io", "a"));
        assert!(!shared("terraformruns.infra.sluice.dev", "a") && !shared("namespaces", "default"));
    }

    fn tools(plural: &str) -> CustomResourceDefinition {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.tools.dev")},
            "spec": {
                "group": "tools.dev", "scope": "Namespaced", "names": {"plural": plural, "kind": "Tool"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn definitions_of_the_program_stay_here_and_others_make_kinds() {
        let mut kinds = Kinds::new(&[tools("tools")]).unwrap();
        assert!(!kinds.is_shared(&Key::new(DEFINITIONS, "", "tools.tools.dev")));
        assert!(kinds.is_shared(&Key::new(DEFINITIONS, "", "gears.tools.dev")));
        assert_eq!(kinds.definition_count(), 1);
        let mut gears = serde_json::to_value(tools("gears")).unwrap();
        gears["spec"]["names"]["kind"] = "Gear".into();
        let key = Key::new("gears.tools.dev", "default", "a");
        assert!(!kinds.is_served(&key));
        let group = kinds.define("gears.tools.dev", Some(&gears));
        assert_eq!(group.as_deref(), Some("tools.dev"));
        assert!(kinds.is_served(&key));
        let expected = "tools.dev/v1/gears/default/a.yaml";
        assert_eq!(kinds.path(&key).as_deref(), Some(expected));
        gears["status"] = serde_json::json!({"storedVersions": ["v1"]});
        assert_eq!(
            kinds.define("gears.tools.dev", Some(&gears)),
            None,
            "a status changes no kind"
        );
        assert!(!kinds.before_history().is_served(&key));
        assert_eq!(
            kinds.define("gears.tools.dev", None).as_deref(),
            Some("tools.dev")
        );
        assert_eq!(kinds.path(&key), None);
    }

    #[test]
    fn a_kind_belongs_to_the_older_definition() {
        let mut kinds = Kinds::new(&[]).unwrap();
        for plural in ["tools", "gears"] {
            let definition = serde_json::to_value(tools(plural)).unwrap();
            kinds.define(&format!("{plural}.tools.dev"), Some(&definition));
        }
        let text = "apiVersion: tools.dev/v1\nkind: Tool\nmetadata: {name: a}\n";
        let content = kinds.content(ParsedFile::parse(text));
        assert_eq!(content.keys, [Key::new("tools.tools.dev", "default", "a")]);
        assert_eq!(content.groups, BTreeSet::from(["tools.dev".to_owned()]));
        let path = kinds.path(&Key::new("gears.tools.dev", "default", "a"));
        assert_eq!(path, None, "its file would be read as a tool");
    }
}
