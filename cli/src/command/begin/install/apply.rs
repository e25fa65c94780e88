//! Writes and deletes the objects of an installation, and waits for them.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::overlay;
use crate::CliError;
use crate::change::FIELD_MANAGER;
use crate::command::Context;

/// Pause before an object is read again.
const PAUSE: Duration = Duration::from_secs(1);
/// Kinds without a namespace. Kustomize gives one to policies, which it does not know.
const CLUSTER_WIDE: [&str; 6] = [
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// An object with the API of its kind.
struct Target {
    api: Api<DynamicObject>,
    object: DynamicObject,
    /// Kind, namespace and name.
    described: String,
}

impl Target {
    fn new(context: &Context, object: &Value) -> Result<Self, CliError> {
        let mut object: DynamicObject =
            serde_json::from_value(object.clone()).map_err(|error| CliError::Format(error.to_string()))?;
        let types = object.types.clone().unwrap_or_default();
        let kind = GroupVersionKind::try_from(&types).map_err(|error| CliError::Format(error.to_string()))?;
        let resource = ApiResource::from_gvk(&kind);
        let client = context.cluster.client();
        let name = object.name_any();
        let shown = types.kind.to_lowercase();
        let (api, described) = if CLUSTER_WIDE.contains(&types.kind.as_str()) {
            object.metadata.namespace = None;
            (Api::all_with(client, &resource), format!("{shown} {name}"))
        } else {
            let namespace = object.namespace().unwrap_or_default();
            let described = format!("{shown} {namespace}/{name}");
            (Api::namespaced_with(client, &namespace, &resource), described)
        };
        Ok(Self {
            api,
            object,
            described,
        })
    }
}

/// Applies an object on the server side.
///
/// # Errors
/// The API rejects it. With a conflict the message names the other field manager.
pub(super) async fn apply(context: &Context, object: &Value, force: bool) -> Result<(), CliError> {
    let target = Target::new(context, object)?;
    let params = PatchParams {
        force,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let name = target.object.name_any();
    let applied = target
        .api
        .patch(&name, &params, &Patch::Apply(&target.object))
        .await;
    applied.map_err(|source| CliError::Api {
        action: "patch",
        object: target.described.clone(),
        source: Box::new(source),
    })?;
    context.console.note(&format!("{} applied", target.described));
    Ok(())
}

/// Deletes an object, if the field manager of this program is its only one.
///
/// # Errors
/// The API rejects a request.
pub(super) async fn delete(context: &Context, object: &Value) -> Result<(), CliError> {
    let target = Target::new(context, object)?;
    let name = target.object.name_any();
    let failed = |action: &'static str, source: kube::Error| CliError::Api {
        action,
        object: target.described.clone(),
        source: Box::new(source),
    };
    let found = target.api.get_opt(&name).await;
    let Some(found) = found.map_err(|source| failed("get", source))? else {
        return Ok(());
    };
    let managers = serde_json::to_value(found.managed_fields());
    let managers = managers.map_err(|error| CliError::Format(error.to_string()))?;
    let managers = managers.as_array().map(Vec::as_slice).unwrap_or_default();
    let others = overlay::other_appliers(managers, FIELD_MANAGER);
    if !others.is_empty() || !overlay::is_applied_by(managers, FIELD_MANAGER) {
        let owner = if others.is_empty() {
            "others".to_owned()
        } else {
            others.join(", ")
        };
        context
            .console
            .note(&format!("{} is left: {owner} wrote it", target.described));
        return Ok(());
    }
    let deleted = target.api.delete(&name, &DeleteParams::background()).await;
    deleted.map_err(|source| failed("delete", source))?;
    context.console.note(&format!("{} deleted", target.described));
    Ok(())
}

/// Waits until the API serves the definitions.
///
/// # Errors
/// It does not in time.
pub(super) async fn wait_for_definitions(
    context: &Context,
    objects: &[Value],
    timeout: Duration,
) -> Result<(), CliError> {
    for object in objects_of_kind(objects, "CustomResourceDefinition") {
        let api: Api<CustomResourceDefinition> = Api::all(context.cluster.client());
        wait_until(
            &api,
            text(object, "/metadata/name"),
            timeout,
            missing_of_definition,
        )
        .await?;
    }
    Ok(())
}

/// Waits until all Deployments are available.
///
/// # Errors
/// One is not in time.
pub(super) async fn wait_for_deployments(
    context: &Context,
    objects: &[Value],
    timeout: Duration,
) -> Result<(), CliError> {
    for object in objects_of_kind(objects, "Deployment") {
        let api: Api<Deployment> = context.cluster.objects_in(text(object, "/metadata/namespace"));
        wait_until(
            &api,
            text(object, "/metadata/name"),
            timeout,
            missing_of_deployment,
        )
        .await?;
    }
    Ok(())
}

fn objects_of_kind<'a>(objects: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Reads an object until `missing` returns nothing.
async fn wait_until<K>(
    api: &Api<K>,
    name: &str,
    timeout: Duration,
    missing: fn(&K) -> Option<String>,
) -> Result<(), CliError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut state = String::new();
    let waited = tokio::time::timeout(timeout, async {
        loop {
            let found = api.get(name).await.map_err(|source| CliError::Api {
                action: "get",
                object: name.to_owned(),
                source: Box::new(source),
            })?;
            match missing(&found) {
                None => return Ok::<(), CliError>(()),
                Some(text) => state = text,
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
    waited.unwrap_or_else(|_| {
        Err(CliError::TimedOut {
            object: name.to_owned(),
            timeout,
            state,
            next_command: "sluice check".to_owned(),
        })
    })
}

fn missing_of_definition(definition: &CustomResourceDefinition) -> Option<String> {
    let status = definition.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let is_established = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    (!is_established).then(|| "not established".to_owned())
}

fn missing_of_deployment(deployment: &Deployment) -> Option<String> {
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let (updated, available) = (
        status.updated_replicas.unwrap_or_default(),
        status.available_replicas.unwrap_or_default(),
    );
    let is_observed = status.observed_generation >= deployment.metadata.generation;
    (!is_observed || updated < wanted || available < wanted)
        .then(|| format!("{available} of {wanted} replicas are available"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_is_waited_for_until_its_new_pods_are_available() {
        for (status, is_missing) in [
            (json!({}), true),
            (
                json!({"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}),
                true,
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 2}),
                true,
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 1}),
                true,
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2}),
                false,
            ),
        ] {
            let deployment: Deployment = serde_json::from_value(json!({"metadata": {"generation": 2},
                "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status}))
            .unwrap();
            assert_eq!(
                missing_of_deployment(&deployment).is_some(),
                is_missing,
                "{status}"
            );
        }
    }
}
