//! Resolves the inputs of a run: the closure of the artifact, the variables and the backend, as one bundle with one digest.
//!
//! Its steps read the Secrets and ConfigMaps of the stack with an [`InputReader`].

mod artifacts;
mod bundle;
mod cli_inputs;
mod environment;
mod keys;
mod last_applied;
mod local;
mod read_error;
mod reader;
mod tool;
mod variables;

use std::collections::BTreeSet;

pub(crate) use artifacts::Artifacts;
pub(super) use last_applied::resolve as resolve_last_applied;
pub use local::{LocalInputsError, local_bundle};
pub(super) use read_error::ReadError;
pub(super) use reader::InputReader;
use sluice_api::reference::ObjectName;
use sluice_api::source::Artifact;
use sluice_api::terraform::{KeySource, Reason, Terraform};
use sluice_runtime::artifact::{FetchError, UnpackError};
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_core::bundle::{Bundle, RunEnvironment};

use super::Context;
use crate::inputs::closure::ClosureError;
use crate::inputs::{self, PairsError};

/// The resolved inputs of a stack.
#[derive(Clone)]
pub(super) struct Resolved {
    /// The artifact.
    pub(super) artifact: Artifact,
    /// The bundle, except what depends on earlier runs.
    pub(super) bundle: Bundle,
    /// The digest of everything that a plan depends on.
    pub(super) inputs: String,
    /// The Secrets that the spec names.
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
    /// A Secret or ConfigMap cannot be read.
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
    pub(super) fn public_reason(&self) -> &'static str {
        if self.read_error().is_some_and(ReadError::is_refused) {
            return Reason::AccessDenied.as_str();
        }
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
            Self::Tool(_) => Reason::ToolNotInstalled.as_str(),
        }
    }

    /// Returns the error of the Secret or ConfigMap that cannot be read.
    const fn read_error(&self) -> Option<&ReadError> {
        match self {
            Self::Read(error)
            | Self::CliInputs(cli_inputs::CliInputError::Read(error))
            | Self::Environment(environment::EnvironmentError::Read(error))
            | Self::Variable(variables::VariableError::Read(error)) => Some(error),
            _ => None,
        }
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
    let reader = InputReader::new(stack, context)?;
    let variables = inputs::variables_file(variables::variables(stack, &reader).await?);
    let mut bundle = bundle::bundle_of(stack, artifact, variables);
    bundle.key = hex::encode(&key);
    bundle.selected_tool = tool::selected(stack, context).await?;
    environment::add_environment(&mut bundle, stack, (&reader, context.executor.has_pods())).await?;
    let name = ObjectName {
        namespace: bundle.stack.namespace.clone(),
        name: bundle.stack.name.clone(),
    };
    let backend = inputs::backend(&stack.spec, &name, context.cli_location, context.default_backend);
    bundle.run_environment =
        execution_environment(stack, (&name, &key), &backend, (&reader, context)).await?;
    let arguments = &bundle.run_environment.backend_arguments;
    let secrets = inputs::referenced_objects(stack, KeySource::Secret);
    reader.check_unused(&secrets).await?;
    bundle.state_check.location = inputs::state_fields(&key, &stack.spec, &backend, arguments);
    bundle.state_check.secrets = inputs::state_secrets(&stack.spec, &name.namespace, arguments);
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
        secrets,
    })
}

/// Reads the backend arguments, the CLI configuration and the mapped files.
async fn execution_environment(
    stack: &Terraform,
    (name, key): (&ObjectName, &[u8]),
    backend: &inputs::Backend,
    (reader, context): (&InputReader, &Context),
) -> Result<RunEnvironment, ResolveError> {
    let arguments = cli_inputs::backend_arguments(stack, reader).await?;
    let spec = &stack.spec;
    Ok(RunEnvironment {
        backend_off: backend.off,
        state_location: inputs::state_location(spec, backend, &arguments, name),
        former_state_location: inputs::former_state_location(key, spec, backend, &arguments, name),
        backend_arguments: arguments,
        cli_config: cli_inputs::cli_config(stack, context.cross_namespace, reader).await?,
        files: cli_inputs::files(stack, reader).await?,
    })
}

/// Returns the message of the API without that of the client.
pub(super) fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
