//! The controllers in a cluster, as their Deployments show them.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde::Serialize;

use crate::CliError;
use crate::cluster::Cluster;
use crate::command::Context;

/// The controllers of Sluice and of Flux by their label, which the overlays, the chart and Flux have.
const BY_LABEL: &str = "app.kubernetes.io/component in (source-controller,tf-controller,repo-controller)";
/// tofu-controller has different labels in its chart and in its manifests, and one name.
const BY_NAME: &str = "metadata.name=tofu-controller";
/// The variable with the image of runs.
const RUNNER_IMAGE: &str = "RUNNER_POD_IMAGE";

/// A controller, or the image of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Component {
    /// Name of the Deployment; `tf-runner` for runs.
    pub(super) name: String,
    /// Namespace of the Deployment.
    pub(super) namespace: String,
    /// The image.
    pub(super) image: String,
    /// Tag or digest of the image.
    pub(super) version: String,
    /// Replicas that are available; absent for runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) available: Option<i32>,
    /// Replicas that are wanted; absent for runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wanted: Option<i32>,
}

/// Reads the controllers of all namespaces. An API without Deployments, as `sluice up` serves it, has none.
///
/// # Errors
/// The API rejects the request.
pub(super) async fn read(cluster: &Cluster) -> Result<Vec<Component>, CliError> {
    let api: Api<Deployment> = Api::all(cluster.client());
    let lists = tokio::try_join!(
        cluster.list_with(&api, ListParams::default().labels(BY_LABEL)),
        cluster.list_with(&api, ListParams::default().fields(BY_NAME)),
    );
    match lists {
        Ok((mut deployments, by_name)) => {
            deployments.extend(by_name);
            Ok(of_deployments(&deployments))
        }
        Err(CliError::Api { source, .. }) if is_absent(&source) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads the controllers as [`read`]; without the right to list them it says so and returns none.
///
/// # Errors
/// The API rejects the request for another reason.
pub(super) async fn read_if_permitted(context: &Context) -> Result<Vec<Component>, CliError> {
    match read(&context.cluster).await {
        Err(CliError::Api { source, .. }) if is_forbidden(&source) => {
            context
                .console
                .note("You may not list Deployments in all namespaces: controllers are not shown.");
            Ok(Vec::new())
        }
        other => other,
    }
}

/// Returns whether the API forbids the request.
pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Returns whether the API does not know the kind.
pub(super) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Returns the components of Deployments by namespace and name.
#[must_use]
fn of_deployments(deployments: &[Deployment]) -> Vec<Component> {
    let mut components = Vec::new();
    for deployment in deployments {
        let name = deployment.name_any();
        let namespace = deployment.namespace().unwrap_or_default();
        let spec = deployment.spec.as_ref();
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        let Some(container) = pod.and_then(|pod| pod.containers.first()) else {
            continue;
        };
        let status = deployment.status.as_ref();
        let available = status.and_then(|status| status.available_replicas);
        let wanted = spec.and_then(|spec| spec.replicas);
        let image = container.image.clone().unwrap_or_default();
        components.push(Component {
            version: version_of(&image).to_owned(),
            image,
            name,
            namespace: namespace.clone(),
            available: Some(available.unwrap_or_default()),
            wanted: Some(wanted.unwrap_or(1)),
        });
        if let Some(image) = runner_image(container) {
            components.push(Component {
                name: "tf-runner".to_owned(),
                namespace,
                version: version_of(image).to_owned(),
                image: image.to_owned(),
                available: None,
                wanted: None,
            });
        }
    }
    components.sort_by_key(|component| (component.namespace.clone(), component.name.clone()));
    components.dedup();
    components
}

fn runner_image(container: &Container) -> Option<&str> {
    let variables = container.env.as_deref().unwrap_or_default();
    let variable = variables.iter().find(|variable| variable.name == RUNNER_IMAGE)?;
    variable.value.as_deref().filter(|image| !image.is_empty())
}

/// Returns the tag of an image without its digest, else its digest, else `latest`.
#[must_use]
fn version_of(image: &str) -> &str {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash is that of the port of a registry.
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), digest) {
        (Some((_, tag)), _) => tag,
        (None, Some(digest)) => digest,
        (None, None) => "latest",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_version_of_an_image_is_its_tag_or_its_digest() {
        for (image, version) in [
            ("sluice.invalid/tf-controller:0.1.0", "0.1.0"),
            ("registry.example:5000/a/tf-controller", "latest"),
            ("registry.example:5000/tf-controller:1@sha256:ab", "1"),
            ("tf-controller@sha256:ab", "sha256:ab"),
        ] {
            assert_eq!(version_of(image), version, "{image}");
        }
    }

    #[test]
    fn a_controller_is_listed_once_and_with_the_image_of_its_runs() {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "tf-controller", "namespace": "sluice-system"},
            "spec": {"replicas": 2, "selector": {}, "template": {"spec": {"containers": [{
                "name": "manager", "image": "r/tf-controller:0.1.0", "env": [{"name": "RUNNER_POD_IMAGE", "value": "r/tf-runner:0.2.0"}]}]}}},
            "status": {"availableReplicas": 1},
        }))
        .unwrap();
        let components = of_deployments(&[deployment.clone(), deployment]);
        let shown: Vec<_> = components
            .iter()
            .map(|component| {
                (
                    component.name.as_str(),
                    component.version.as_str(),
                    component.available,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [("tf-controller", "0.1.0", Some(1)), ("tf-runner", "0.2.0", None)]
        );
    }
}
