//! Resolves the inputs of a run: the closure of the artifact, the variables and the backend, as one bundle with one digest.
//!
//! Its steps read Secrets and ConfigMaps with `read_pairs` and `read_secret`, live.

mod artifacts;
mod bundle;
mod cli_inputs;
mod environment;
mod keys;
mod last_applied;
mod tool;
mod variables;

use std::collections::BTreeSet;

pub(crate) use artifacts::Artifacts;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
pub(super) use last_applied::resolve as resolve_last_applied;
use sluice_api::reference::ObjectName;
use sluice_api::source::Artifact;
use sluice_api::terraform::{KeySource, Reason, Terraform};
use sluice_runtime::artifact::{FetchError, UnpackError};
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_core::bundle::{Bundle, RunEnvironment};
use sluice_tf_core::redaction::Redactor;

use super::Context;
use crate::inputs::closure::ClosureError;
use crate::inputs::{self, Pairs, PairsError};

/// The resolved inputs of a stack.
#[derive(Clone)]
pub(super) struct Resolved {
    /// The artifact.
    pub(super) artifact: Artifact,
    /// The bundle, except what depends on earlier runs.
    pub(super) bundle: Bundle,
    /// The digest of everything that a plan depends on.
    pub(super) inputs: String,
    /// The Secrets that were read.
    pub(super) secrets: BTreeSet<ObjectKey>,
}

/// Why the inputs cannot be resolved. Every error may be temporary.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    /// The artifact cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The artifact cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The module cannot be found or read.
    #[error(transparent)]
    Closure(#[from] ClosureError),
    /// The scratch directory failed.
    #[error("cannot use the scratch directory: {0}")]
    Scratch(#[from] std::io::Error),
    /// A Secret or ConfigMap of `varsFrom` cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A `varsFrom` entry cannot be used.
    #[error("varsFrom {name}: {source}")]
    Pairs {
        /// Name of the Secret or ConfigMap.
        name: String,
        /// Why.
        source: PairsError,
    },
    /// Backend arguments, CLI configuration or mapped files cannot be read.
    #[error(transparent)]
    CliInputs(#[from] cli_inputs::CliInputError),
    /// The environment of the CLI cannot be resolved.
    #[error(transparent)]
    Environment(#[from] environment::EnvironmentError),
    /// A variable has no value.
    #[error(transparent)]
    Variable(#[from] variables::VariableError),
    /// The selected version of the CLI is not available.
    #[error(transparent)]
    Tool(#[from] tool::ToolError),
    /// The last applied record cannot be read.
    #[error("cannot read the last applied record: {text}")]
    LastApplied {
        /// Why.
        text: String,
    },
    /// The object's own key cannot be stored or read.
    #[error("cannot use the Secret {name}: {text}")]
    Key {
        /// Its name.
        name: String,
        /// Why.
        text: String,
    },
    /// The keys that seal plans cannot be read: no plan is stored unencrypted instead.
    #[error("cannot use the Secret {name} of --plan-encryption-secret: {text}")]
    PlanKeys {
        /// Its namespace and name.
        name: String,
        /// Why.
        text: String,
    },
}

impl ResolveError {
    /// Returns the reason in `Ready`.
    pub(super) const fn public_reason(&self) -> &'static str {
        match self {
            Self::Fetch(_)
            | Self::Unpack(_)
            | Self::Closure(_)
            | Self::Scratch(_)
            | Self::LastApplied { .. } => "ArtifactFailed",
            Self::CliInputs(error) => error.public_reason(),
            Self::Environment(_) => Reason::TfExecInitFailed.as_str(),
            Self::Read(_) | Self::Pairs { .. } | Self::Variable(_) | Self::Key { .. } => {
                Reason::VarsGenerationFailed.as_str()
            }
            Self::PlanKeys { .. } => Reason::PlanEncryptionFailed.as_str(),
            Self::Tool(_) => "ToolNotInstalled",
        }
    }
}

/// A Secret or ConfigMap that a field of the spec names cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {kind:?} {name} of {field}: {text}")]
pub(super) struct ReadError {
    kind: KeySource,
    name: String,
    field: &'static str,
    text: String,
}

impl ReadError {
    fn new(kind: KeySource, name: &str, field: &'static str, error: &kube::Error) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            field,
            text: api_message(error),
        }
    }
}

/// Returns the values of these Secrets, which a run must not show. A Secret that is missing or forbidden was not part of
/// the inputs.
pub(super) async fn sensitive_values(
    secrets: &BTreeSet<ObjectKey>,
    client: &Client,
) -> Result<Vec<String>, kube::Error> {
    let mut known = Redactor::default();
    for ObjectKey { namespace, name } in secrets {
        match read_secret(name, namespace, client).await {
            Ok(pairs) => pairs
                .iter()
                .for_each(|(key, value)| add_values(&mut known, key, value)),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(known.values())
}

/// Adds the value of one key as text and, if it is JSON, each value in it, since `values` and modules take it apart.
/// The type of another key is not sensitive.
fn add_values(known: &mut Redactor, key: &str, value: &[u8]) {
    let text = String::from_utf8_lossy(value);
    known.add_text(&text);
    let json = serde_json::from_str(&text).ok();
    let parts = json.filter(|json: &serde_json::Value| json.is_array() || json.is_object());
    if let Some(parts) = parts.filter(|_| !key.ends_with("__type")) {
        known.add_json(&parts);
    }
}

/// Resolves all inputs of a stack.
pub(super) async fn resolve(
    stack: &Terraform,
    artifact: &Artifact,
    context: &Context,
) -> Result<Resolved, ResolveError> {
    let mut closure = context
        .artifacts
        .closure(artifact, &stack.spec.path, &stack.spec.tf_vars_files)
        .await?;
    inputs::widen(&mut closure, &stack.spec, &artifact.digest);
    let key = keys::object_key(stack, context).await?;
    let variables = inputs::variables_file(variables::variables(stack, context).await?);
    let mut bundle = bundle::bundle_of(stack, artifact, variables);
    bundle.key = hex::encode(&key);
    bundle.selected_tool = tool::selected(stack, context).await?;
    environment::add_environment(&mut bundle, stack, context).await?;
    let name = ObjectName {
        namespace: bundle.stack.namespace.clone(),
        name: bundle.stack.name.clone(),
    };
    let backend = inputs::backend(&stack.spec, &name, context.cli_location, context.default_backend);
    bundle.run_environment = execution_environment(stack, &name, &key, &backend, context).await?;
    let arguments = &bundle.run_environment.backend_arguments;
    bundle.state_check.location = inputs::state_fields(&key, &stack.spec, &backend, arguments);
    bundle.state_check.secret = inputs::state_secret(&stack.spec, arguments);
    bundle.backend = backend.file;
    bundle.state_copies = context.state_copies.clone();
    keys::seal_keys(stack, context).await?.add_to(&mut bundle);
    bundle.files_limit = stack
        .spec
        .destroys_on_deletion()
        .then_some(context.destroy_files_limit);
    inputs::widen_by_values(&mut closure, &bundle);
    if let Some(why) = &closure.wide {
        tracing::debug!(why, "all files of the artifact are inputs of this stack");
    }
    bundle.closure = bundle::reads(&closure, &bundle);
    let inputs = inputs::digest(&key, &closure, &bundle);
    bundle.inputs_digest.clone_from(&inputs);
    Ok(Resolved {
        artifact: artifact.clone(),
        bundle,
        inputs,
        secrets: inputs::referenced_objects(stack, KeySource::Secret),
    })
}

/// Reads the backend arguments, the CLI configuration and the mapped files.
async fn execution_environment(
    stack: &Terraform,
    name: &ObjectName,
    key: &[u8],
    backend: &inputs::Backend,
    context: &Context,
) -> Result<RunEnvironment, ResolveError> {
    let arguments = cli_inputs::backend_arguments(stack, context).await?;
    let spec = &stack.spec;
    Ok(RunEnvironment {
        backend_off: backend.off,
        state_location: inputs::state_location(spec, backend, &arguments, name),
        former_state_location: inputs::former_state_location(key, spec, backend, &arguments, name),
        backend_arguments: arguments,
        cli_config: cli_inputs::cli_config(stack, context).await?,
        files: cli_inputs::files(stack, context).await?,
    })
}

/// Reads the keys and values of one object.
async fn read_pairs(
    kind: KeySource,
    name: &str,
    namespace: &str,
    client: &Client,
) -> Result<Pairs, kube::Error> {
    match kind {
        KeySource::Secret => read_secret(name, namespace, client).await,
        KeySource::ConfigMap => read_config_map(name, namespace, client).await,
    }
}

/// Reads the keys and values of a Secret.
async fn read_secret(name: &str, namespace: &str, client: &Client) -> Result<Pairs, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let data = api.get(name).await?.data.unwrap_or_default();
    Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
}

async fn read_config_map(name: &str, namespace: &str, client: &Client) -> Result<Pairs, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = api.get(name).await?;
    let text = map.data.unwrap_or_default().into_iter();
    let binary = map.binary_data.unwrap_or_default().into_iter();
    Ok(text
        .map(|(key, value)| (key, value.into_bytes()))
        .chain(binary.map(|(key, value)| (key, value.0)))
        .collect())
}

/// Returns whether `optional` covers this error: the object is missing or forbidden. Other errors are not covered:
/// the stack would run without these inputs now, and with them a moment later.
fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 403 | 404))
}

/// Returns the message of the API without that of the client.
pub(super) fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use kube::core::Status;

    use super::*;

    #[test]
    fn optional_covers_absent_objects_but_not_other_errors() {
        let api = |code| kube::Error::Api(Status::failure("no", "No").with_code(code).boxed());
        assert!(is_absent(&api(404)) && is_absent(&api(403)));
        for code in [401, 429, 500, 503, 504] {
            assert!(!is_absent(&api(code)), "{code}");
        }
        assert!(!is_absent(&kube::Error::LinesCodecMaxLineLengthExceeded));
    }

    /// Returns an API with one Secret, which answers all other requests with this code.
    fn api(code: u16) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| async move {
            let is_open = request.uri().path().ends_with("/open");
            let body = if is_open {
                serde_json::json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "open" },
                    "data": { "password": "aHVudGVyMi1odW50ZXI=" } })
            } else {
                serde_json::json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
                    "reason": "", "message": "no" })
            };
            let answer = http::Response::builder().status(if is_open { 200 } else { code });
            let response = answer.body(Body::from(body.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(response.unwrap())
        });
        Client::new(service, "team")
    }

    #[tokio::test]
    async fn a_missing_or_forbidden_secret_has_no_sensitive_values() {
        let key = |name: &str| ObjectKey {
            namespace: "team".into(),
            name: name.into(),
        };
        let both = BTreeSet::from([key("closed"), key("open")]);
        for code in [403, 404] {
            let values = sensitive_values(&both, &api(code)).await.unwrap();
            assert_eq!(values, ["hunter2-hunter"], "{code}");
        }
        assert!(sensitive_values(&both, &api(500)).await.is_err());
    }
}
