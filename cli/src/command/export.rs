//! `sluice export`: objects as manifests for a repository, as `flux export` prints them.

use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, TypeMeta};
use serde_json::{Map, Value};
use sluice_api::annotation::{BREAK_THE_GLASS, REQUESTED_AT};
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use super::Context;
use crate::cluster::{ConnectionArgs, SelectionArgs};
use crate::object::{ObjectKind, ObjectsArgs, Words};
use crate::{CliError, ExitStatus};

/// The object as `kubectl apply` saw it last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Fields of the metadata that a manifest has. The server sets all others.
const METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// Arguments of `sluice export`.
#[derive(clap::Args, Debug)]
pub struct ExportArgs {
    /// The objects.
    #[command(flatten)]
    pub objects: ObjectsArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints objects as YAML documents.
pub(super) async fn export(context: &Context, args: &ExportArgs) -> Result<ExitStatus, CliError> {
    let Words { kind, name } = args.objects.words()?;
    let (resource, list_name) = match kind {
        ObjectKind::Stack => (ApiResource::erase::<Terraform>(&()), "terraforms"),
        ObjectKind::Source => (ApiResource::erase::<GitRepository>(&()), "sources"),
    };
    let mut objects = read(
        context,
        &args.objects.selection,
        &resource,
        name.as_deref(),
        list_name,
    )
    .await?;
    objects.sort_by_key(|object| (object.namespace(), object.name_any()));
    let mut text = String::new();
    for object in objects {
        let object = serde_json::to_value(object).map_err(|error| CliError::Format(error.to_string()))?;
        let document = serde_yaml_ng::to_string(&manifest(object))
            .map_err(|error| CliError::Format(error.to_string()))?;
        text.push_str("---\n");
        text.push_str(&document);
    }
    context.console.data(&text)?;
    Ok(ExitStatus::Success)
}

/// Reads the objects with all their fields, also those that this version does not know.
async fn read(
    context: &Context,
    selection: &SelectionArgs,
    resource: &ApiResource,
    name: Option<&str>,
    list_name: &str,
) -> Result<Vec<DynamicObject>, CliError> {
    let (client, namespace) = (context.cluster.client(), context.cluster.namespace());
    let api: Api<DynamicObject> = if selection.all_namespaces {
        Api::all_with(client, resource)
    } else {
        Api::namespaced_with(client, namespace, resource)
    };
    let Some(name) = name else {
        let mut params = ListParams::default();
        params.label_selector.clone_from(&selection.selector);
        let listed = api.list(&params).await.map_err(|source| CliError::Api {
            action: "list",
            object: list_name.to_owned(),
            source: Box::new(source),
        })?;
        // The objects of a list have no kind of their own.
        let with_kind = listed.items.into_iter().map(|object| DynamicObject {
            types: Some(TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            }),
            ..object
        });
        return Ok(with_kind.collect());
    };
    let object = format!("{} {namespace}/{name}", resource.kind.to_lowercase());
    let found = api.get_opt(name).await.map_err(|source| CliError::Api {
        action: "get",
        object: object.clone(),
        source: Box::new(source),
    })?;
    let found = found.ok_or_else(|| CliError::NotFound {
        object,
        list_command: format!("sluice get {list_name} -n {namespace}"),
    })?;
    Ok(vec![found])
}

/// Returns the manifest of an object: without its status, and without what the server and other programs set. Pure.
#[must_use]
fn manifest(object: Value) -> Value {
    let Value::Object(mut object) = object else {
        return object;
    };
    object.remove("status");
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|field, _| METADATA.contains(&field.as_str()));
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            // A manifest with a request would repeat it.
            annotations
                .retain(|key, _| ![LAST_APPLIED, REQUESTED_AT, BREAK_THE_GLASS].contains(&key.as_str()));
        }
        metadata.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_has_what_a_user_writes() {
        let object = json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": {
                "name": "app", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"], "managedFields": [{}],
                "labels": {"team": "net"},
                "annotations": {REQUESTED_AT: "1", LAST_APPLIED: "{}", "note": "kept"},
            },
            "spec": {"interval": "1m", "unknown": [1]},
            "status": {"observedGeneration": 2},
        });
        assert_eq!(
            manifest(object),
            json!({
                "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
                "metadata": {"name": "app", "namespace": "team", "labels": {"team": "net"}, "annotations": {"note": "kept"}},
                "spec": {"interval": "1m", "unknown": [1]},
            })
        );
    }

    #[test]
    fn empty_maps_are_left_out() {
        let object = json!({"metadata": {"name": "app", "annotations": {REQUESTED_AT: "1"}}, "spec": {}});
        assert_eq!(manifest(object), json!({"metadata": {"name": "app"}, "spec": {}}));
    }
}
