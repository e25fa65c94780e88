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
         customresourcedefinitions (config/rbac/tf-controller.yaml): {source}"
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
    format!("apply config/crd/bases/{group}_{plural}.yaml of this version (kubectl apply --server-side -f)")
}

/// Waits until the definitions are as needed, then says that the program is ready. What is wrong is logged when it is found
/// and when it changes.
pub async fn wait(client: &Client, ready: &Readiness, stop: &Token) {
    let mut told = String::new();
    loop {
        match check(client).await {
            Ok(()) => {
                ready.set(true);
                return;
            }
            Err(error) => {
                ready.set(false);
                let text = error.to_string();
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
/// [`DefinitionError`] for the first that cannot be relied on.
pub async fn check(client: &Client) -> Result<(), DefinitionError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let ours = sluice_api::crds();
    for wanted in ours
        .iter()
        .filter(|crd| GROUPS.contains(&crd.spec.group.as_str()))
    {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let installed = api
            .get_opt(&name)
            .await
            .map_err(|source| DefinitionError::Unreadable {
                name: name.clone(),
                source: Box::new(source),
            })?;
        let Some(installed) = installed else {
            return Err(DefinitionError::Absent { name });
        };
        let missing = missing(wanted, &installed);
        if !missing.is_empty() {
            return Err(DefinitionError::Older {
                name,
                fields: few(&missing),
            });
        }
    }
    Ok(())
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
