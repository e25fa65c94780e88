//! The kinds of the load: a built-in one, and a custom one with a schema.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_tests::{BoxError, wait_for_definitions};

/// Namespace of all objects.
const NAMESPACE: &str = "load";
/// API group of the custom kind.
const GROUP: &str = "bench.example.dev";
/// What fills an object: with it, an object has about 1 KiB.
const LINE: &str = "a line of configuration ";
const LINES: usize = 20;

/// A kind of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    ConfigMap,
    /// A custom kind.
    Item,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 2] = [Self::ConfigMap, Self::Item];

    /// Returns the name of several objects.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMaps",
            Self::Item => "custom objects",
        }
    }

    /// Creates the namespace and, for a custom kind, the definition. Returns the API of the objects.
    pub(crate) async fn prepare(self, client: &Client) -> Result<Api<DynamicObject>, BoxError> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        let (kind, plural) = match self {
            Self::ConfigMap => (GroupVersionKind::gvk("", "v1", "ConfigMap"), "configmaps"),
            Self::Item => {
                define(client).await?;
                (GroupVersionKind::gvk(GROUP, "v1", "Item"), "items")
            }
        };
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Ok(Api::namespaced_with(client.clone(), NAMESPACE, &resource))
    }

    /// Returns an object.
    pub(crate) fn object(self, number: usize) -> Result<DynamicObject, BoxError> {
        let metadata = json!({ "name": name(number) });
        let text = LINE.repeat(LINES);
        let object = match self {
            Self::ConfigMap => json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": { "text": text } }),
            Self::Item => json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Item", "metadata": metadata,
                "spec": { "number": number, "text": text } }),
        };
        Ok(serde_json::from_value(object)?)
    }

    /// Returns the merge patch of a change. No other number leads to the same object.
    pub(crate) fn change(self, number: usize) -> Value {
        match self {
            Self::ConfigMap => json!({ "data": { "change": number.to_string() } }),
            Self::Item => json!({ "spec": { "change": number } }),
        }
    }
}

/// Returns the name of an object.
pub(crate) fn name(number: usize) -> String {
    format!("object-{number}")
}

/// Creates the definition of the custom kind, and waits until it is served.
async fn define(client: &Client) -> Result<(), BoxError> {
    let number = json!({ "type": "integer", "minimum": 0 });
    let spec = json!({ "type": "object", "required": ["number"], "properties": {
        "number": number, "change": number, "text": { "type": "string", "maxLength": 1000 } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    let definition = json!({
        "metadata": { "name": format!("items.{GROUP}") },
        "spec": { "group": GROUP, "scope": "Namespaced", "names": { "kind": "Item", "plural": "items" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] },
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = serde_json::from_value(definition)?;
    definitions.create(&PostParams::default(), &definition).await?;
    wait_for_definitions(client.clone()).await
}
