//! The inputs of a stack for a plan outside of a run, such as that of a directory which is not pushed yet. They are read with the rights
//! of a user, and the files are those of the user.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, ResourceExt as _};
use sluice_api::reference::{CrossNamespace, ObjectName};
use sluice_api::source::Artifact;
use sluice_api::terraform::Terraform;
use sluice_tf_core::bundle::{Bundle, RunEnvironment, SelectedTool};

use super::{InputReader, ResolveError, bundle, cli_inputs, environment, variables};
use crate::inputs::{self, CliLocation, DefaultBackend};

/// The inputs of a stack cannot be resolved. The text names the object and the field; it contains no value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LocalInputsError(String);

/// Returns the bundle of a stack as a run would have it, but without an artifact, without keys, and without what depends on earlier runs:
/// variables, backend, environment, mapped files and options. Where runs have no other backend, the generated one is that of
/// a CLI outside of a pod. Variables whose values only the pod of a run has are in `pod_environment`, without a value.
///
/// # Errors
/// A Secret or ConfigMap that the spec names is missing or forbidden to the user, or has no usable value.
pub async fn local_bundle(stack: &Terraform, client: &Client) -> Result<Bundle, LocalInputsError> {
    let reader = InputReader::of_user(client, stack.namespace().unwrap_or_default());
    let resolved = resolve(stack, &reader).await;
    resolved.map_err(|error| LocalInputsError(error.to_string()))
}

async fn resolve(stack: &Terraform, reader: &InputReader) -> Result<Bundle, ResolveError> {
    let variables = inputs::variables_file(variables::variables(stack, reader).await?);
    let mut bundle = bundle::bundle_of(stack, &no_artifact(), variables);
    environment::add_environment(&mut bundle, stack, (reader, true)).await?;
    let name = ObjectName {
        namespace: bundle.stack.namespace.clone(),
        name: bundle.stack.name.clone(),
    };
    let backend = inputs::backend(
        &stack.spec,
        &name,
        CliLocation::Outside,
        DefaultBackend::Kubernetes,
    );
    bundle.run_environment = RunEnvironment {
        backend_off: backend.off,
        backend_arguments: cli_inputs::backend_arguments(stack, reader).await?,
        // The rights of the user are the limit.
        cli_config: cli_inputs::cli_config(stack, CrossNamespace::Allowed, reader).await?,
        files: cli_inputs::files(stack, reader).await?,
        ..RunEnvironment::default()
    };
    bundle.backend = backend.file;
    bundle.selected_tool = stack.spec.tool.as_ref().map(|tool| SelectedTool {
        name: tool.name.as_str().to_owned(),
        version: tool.version.clone(),
    });
    Ok(bundle)
}

/// An artifact without files, for the parts of a bundle that do not depend on it.
const fn no_artifact() -> Artifact {
    Artifact {
        digest: String::new(),
        last_update_time: Time(Timestamp::UNIX_EPOCH),
        metadata: None,
        path: String::new(),
        revision: String::new(),
        size: None,
        url: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API with the Secret `inputs`.
    fn api() -> Client {
        let service = tower::service_fn(|request: http::Request<Body>| async move {
            let is_known = request.uri().path().ends_with("/secrets/inputs");
            let body = if is_known {
                json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "inputs" }, "data": { "size": "dHdv" } })
            } else {
                json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no" })
            };
            let answer = http::Response::builder().status(if is_known { 200 } else { 403 });
            let response = answer.body(Body::from(body.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(response.unwrap())
        });
        Client::new(service, "team")
    }

    fn stack(spec: &Value) -> Terraform {
        let mut object = json!({ "metadata": { "name": "net", "namespace": "team" }, "spec": {
            "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "code" }, "path": "./infra" } });
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[tokio::test]
    async fn the_bundle_has_what_the_spec_and_its_secrets_say() {
        let spec = json!({ "vars": [{ "name": "size", "value": "one" }, { "name": "count", "value": 3 }],
            "varsFrom": [{ "kind": "Secret", "name": "inputs" }], "tool": { "name": "tofu" }, "targets": ["a.b"] });
        let bundle = local_bundle(&stack(&spec), &api()).await.unwrap();
        let variables: Value = serde_json::from_str(&bundle.variables).unwrap();
        assert_eq!(variables, json!({ "size": "two", "count": 3 }));
        assert_eq!(
            (bundle.path.as_str(), bundle.workspace.as_str()),
            ("./infra", "default")
        );
        assert_eq!(bundle.options.targets, ["a.b"]);
        assert_eq!(bundle.selected_tool.unwrap().name, "tofu");
        let backend = bundle.backend.unwrap();
        assert!(backend.contains("in_cluster_config = false"), "{backend}");
        assert!(backend.contains("namespace         = \"team\""), "{backend}");
    }

    #[tokio::test]
    async fn a_forbidden_secret_is_an_error_also_if_it_is_optional() {
        for optional in [false, true] {
            let from = json!([{ "kind": "Secret", "name": "login", "optional": optional }]);
            let error = local_bundle(&stack(&json!({ "varsFrom": from })), &api()).await;
            let text = error.unwrap_err().to_string();
            assert!(
                text.starts_with("you may not get Secret team/login of varsFrom"),
                "{text}"
            );
        }
    }
}
