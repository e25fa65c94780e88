//! The start check: do the definitions in the cluster declare every field that this program knows? An older one
//! prunes fields silently, and a pruned `hold` applies deletes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use sluice_api::definition::missing_fields;
use sluice_runtime::definition;
use sluice_runtime::probes::Readiness;
use sluice_runtime::shutdown::Token;

/// Groups of the kinds that this controller writes.
const GROUPS: [&str; 2] = [sluice_api::terraform::GROUP, sluice_api::run::GROUP];
/// Missing fields that a message lists.
const MAX_LISTED_FIELDS: usize = 20;

/// All definitions that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct UnusableDefinitions(pub Vec<DefinitionError>);

/// Why a definition cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// It is not installed.
    #[error("the definition {name} is not installed; {advice}", advice = advice(name))]
    NotInstalled {
        /// Name of the definition.
        name: String,
    },
    /// It is older than this program.
    #[error(
        "the definition {name} does not declare {fields}, which would be dropped silently; {advice}",
        advice = advice(name)
    )]
    Outdated {
        /// Name of the definition.
        name: String,
        /// The missing fields.
        fields: String,
    },
    /// It cannot be read.
    #[error(
        "cannot read the definition {name} to check that it declares all fields; the controller needs `get` on \
         customresourcedefinitions (config/tf-controller/rbac.yaml) or on /openapi/v3 (ClusterRole system:discovery): \
         {source}"
    )]
    Unreadable {
        /// Name of the definition.
        name: String,
        /// The error of the API.
        source: Box<kube::Error>,
    },
}

/// Returns how to correct a definition.
fn advice(name: &str) -> String {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    // Force conflicts: the installer of the older one still owns its fields.
    format!(
        "apply the definition of this version: kubectl apply --server-side --force-conflicts -f \
         config/crd/bases/{group}_{plural}.yaml"
    )
}

/// Waits until the definitions are usable, then sets the program ready. `/readyz` returns the current errors; they
/// are logged when they change.
pub async fn wait(client: &Client, ready: &Readiness, stop: &Token) {
    ready.set_after(|| check(client), stop).await;
}

/// Checks the installed definitions once.
///
/// # Errors
/// [`UnusableDefinitions`] with the error of each.
pub async fn check(client: &Client) -> Result<(), UnusableDefinitions> {
    let ours = sluice_api::crds();
    let mut errors = Vec::new();
    for required in ours
        .iter()
        .filter(|crd| GROUPS.contains(&crd.spec.group.as_str()))
    {
        errors.extend(compare(client, required).await.err());
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(UnusableDefinitions(errors))
    }
}

/// Compares the installed definition of this name.
async fn compare(client: &Client, required: &CustomResourceDefinition) -> Result<(), DefinitionError> {
    let name = required.metadata.name.clone().unwrap_or_default();
    let installed = match definition::find(client, required).await {
        Ok(Some(installed)) => installed,
        Ok(None) => return Err(DefinitionError::NotInstalled { name }),
        Err(error) => {
            let source = Box::new(error);
            return Err(DefinitionError::Unreadable { name, source });
        }
    };
    let mut missing = missing_fields(required, &installed);
    missing.retain(|field| is_read(field));
    if missing.is_empty() {
        return Ok(());
    }
    let fields = list_fields(&missing);
    Err(DefinitionError::Outdated { name, fields })
}

/// Returns whether a definition must have a field. What is below the fields of a runner's pod depends on the Kubernetes version that
/// a definition was generated from; only the environment is read as a whole.
fn is_read(field: &str) -> bool {
    field
        .strip_prefix("spec.runnerPodTemplate.spec.")
        .is_none_or(|field| field.starts_with("env") || !field.contains(['.', '[']))
}

/// Lists the first fields, and the number of the others.
fn list_fields(fields: &[String]) -> String {
    let first = fields
        .iter()
        .take(MAX_LISTED_FIELDS)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match fields.len().saturating_sub(MAX_LISTED_FIELDS) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
