//! Before anything is done: do the definitions in the cluster declare every field that this program knows? An older one
//! prunes fields silently, and a `hold` that is pruned is a delete that is applied.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use sluice_api::definition::missing;
use sluice_runtime::{probes::Readiness, shutdown::Token};
use std::time::Duration;

/// Time between looks while a definition is not as needed.
const AGAIN: Duration = Duration::from_secs(5);
/// Groups of the kinds that this controller writes.
const GROUPS: [&str; 2] = [sluice_api::terraform::GROUP, sluice_api::run::GROUP];
/// Missing fields that a message names.
const NAMED: usize = 20;

/// The definitions that cannot be relied on, all of them.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Unreliable(pub Vec<DefinitionError>);

/// Why a definition cannot be relied on.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// There is none.
    #[error("the definition {name} is not installed; {advice}", advice = advice(name))]
    Absent {
        /// Name of the definition.
        name: String,
    },
    /// It is older than this program.
    #[error(
        "the definition {name} does not declare {fields}, which would be dropped without a word; {advice}",
        advice = advice(name)
    )]
    Older {
        /// Name of the definition.
        name: String,
        /// What it lacks.
        fields: String,
    },
    /// It cannot be read.
    #[error(
        "cannot read the definition {name}, so it is not known whether it keeps all fields; the controller needs `get` on \
         customresourcedefinitions (config/tf-controller/rbac.yaml): {source}"
    )]
    Unreadable {
        /// Name of the definition.
        name: String,
        /// What the API said.
        source: Box<kube::Error>,
    },
}

/// What to do about a definition.
fn advice(name: &str) -> String {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    // By force: whoever installed the older one still counts as the owner of its fields.
    format!(
        "apply the one of this version: kubectl apply --server-side --force-conflicts -f \
         config/crd/bases/{group}_{plural}.yaml"
    )
}

/// Waits until the definitions are as needed, then says that the program is ready. What is wrong is what `/readyz` answers,
/// and is logged when it is found and when it changes.
pub async fn wait(client: &Client, ready: &Readiness, stop: &Token) {
    let mut told = String::new();
    loop {
        match check(client).await {
            Ok(()) => {
                ready.set();
                return;
            }
            Err(error) => {
                let text = error.to_string();
                ready.hinder(&text);
                if text != told {
                    tracing::error!(error = text, "not ready");
                    told = text;
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Looks at the installed definitions once.
///
/// # Errors
/// [`Unreliable`] with what is wrong with each that cannot be relied on.
pub async fn check(client: &Client) -> Result<(), Unreliable> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let ours = sluice_api::crds();
    let mut faults = Vec::new();
    for wanted in ours
        .iter()
        .filter(|crd| GROUPS.contains(&crd.spec.group.as_str()))
    {
        faults.extend(compare(&api, wanted).await.err());
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Unreliable(faults))
    }
}

/// Looks at the installed one of this name.
async fn compare(
    api: &Api<CustomResourceDefinition>,
    wanted: &CustomResourceDefinition,
) -> Result<(), DefinitionError> {
    let name = wanted.metadata.name.clone().unwrap_or_default();
    let installed = match api.get_opt(&name).await {
        Ok(Some(installed)) => installed,
        Ok(None) => return Err(DefinitionError::Absent { name }),
        Err(error) => {
            let source = Box::new(error);
            return Err(DefinitionError::Unreadable { name, source });
        }
    };
    let mut missing = missing(wanted, &installed);
    missing.retain(|field| is_read(field));
    if missing.is_empty() {
        return Ok(());
    }
    let fields = few(&missing);
    Err(DefinitionError::Older { name, fields })
}

/// Whether a field has an effect. Of a runner's pod the environment is read and nothing else, and what a pod may have follows the
/// version of Kubernetes with which a definition was made.
fn is_read(field: &str) -> bool {
    field
        .strip_prefix("spec.runnerPodTemplate.spec.")
        .is_none_or(|field| field.starts_with("env"))
}

/// The first of the fields, and how many more there are.
fn few(fields: &[String]) -> String {
    let first = fields
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match fields.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
