//! Reads an installed `CustomResourceDefinition`, or its schema as the API server publishes it in `OpenAPI` version 3. Every account
//! may read the latter (the role `system:discovery`); a Role of one namespace cannot permit to read the definition itself.

use http::Request;
use http::header::ACCEPT;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Returns the installed definition of the name of `required`. An account that may not read it gets the published one, which has only
/// the version that `required` stores. `None`: there is none.
///
/// # Errors
/// The API server does not answer, or refuses both.
pub async fn find(
    client: &Client,
    required: &CustomResourceDefinition,
) -> Result<Option<CustomResourceDefinition>, kube::Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = required.metadata.name.as_deref().unwrap_or_default();
    match api.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => find_published(client, required).await,
        read => read,
    }
}

/// Returns the definition with the published schema of the version that `required` stores; `None`: the API server does not serve
/// that version of the kind.
async fn find_published(
    client: &Client,
    required: &CustomResourceDefinition,
) -> Result<Option<CustomResourceDefinition>, kube::Error> {
    let group = &required.spec.group;
    let Some(stored) = required.spec.versions.iter().find(|version| version.storage) else {
        return Ok(None);
    };
    let request = Request::get(format!("/openapi/v3/apis/{group}/{}", stored.name))
        .header(ACCEPT, "application/json")
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        Ok(document) => published(required, stored, &document),
        // The API server answers this path with a plain text, without a reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the definition with the schema and the status of a document. Pure.
fn published(
    required: &CustomResourceDefinition,
    stored: &CustomResourceDefinitionVersion,
    document: &Value,
) -> Result<Option<CustomResourceDefinition>, kube::Error> {
    let kind =
        json!({ "group": required.spec.group, "kind": required.spec.names.kind, "version": stored.name });
    let is_of_kind = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.contains(&kind))
    };
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
    let Some(schema) = schemas.and_then(|schemas| schemas.values().find(is_of_kind)) else {
        return Ok(None);
    };
    let schema: JSONSchemaProps = serde_json::from_value(schema.clone()).map_err(kube::Error::SerdeError)?;
    let has_status = has_status(&required.spec.names.plural, document);
    let mut definition = required.clone();
    definition.spec.versions = vec![CustomResourceDefinitionVersion {
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(schema),
        }),
        subresources: stored.subresources.clone().filter(|_| has_status),
        ..stored.clone()
    }];
    Ok(Some(definition))
}

/// Returns whether a document has the path of the subresource `status`.
fn has_status(plural: &str, document: &Value) -> bool {
    let path_end = format!("/{plural}/{{name}}/status");
    let paths = document.get("paths").and_then(Value::as_object);
    paths.is_some_and(|paths| paths.keys().any(|path| path.ends_with(&path_end)))
}
