//! The start check: does the API server serve the kinds, and does the definition of `Repo` declare what this program uses? That of 2019
//! has the same name. It lacks the subresource `status`, so nothing could be reported, and fields such as `approval`.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use sluice_api::definition::missing_fields;
use sluice_api::repo::Repo;
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_runtime::probes::Readiness;
use sluice_runtime::shutdown::Token;

/// What to do about the definition of `Repo`. Forced, because the installer of the one of 2019 still owns its fields.
const ADVICE: &str =
    "apply it: kubectl apply --server-side --force-conflicts -k config/components/repo-controller/crd";

/// Why a kind cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// The definition of `Repo` is not installed.
    #[error("the definition {name} is not installed; {ADVICE}")]
    NotInstalled {
        /// Name of the definition.
        name: String,
    },
    /// The definition of `Repo` is that of 2019, or older than this program.
    #[error("the definition {name} does not declare {fields}; {ADVICE}")]
    Outdated {
        /// Name of the definition.
        name: String,
        /// What it lacks.
        fields: String,
    },
    /// The definition of `Repo` cannot be read.
    #[error(
        "cannot read the definition {name} to check that it declares all fields; the controller needs `get` on \
         customresourcedefinitions (config/repo-controller/rbac.yaml) or on /openapi/v3 (ClusterRole system:discovery): \
         {source}"
    )]
    Unreadable {
        /// Name of the definition.
        name: String,
        /// The error of the API.
        source: Box<kube::Error>,
    },
    /// Another kind is not installed.
    #[error(
        "the kind {kind} is not installed; install source-controller and tf-controller with their definitions"
    )]
    NotServed {
        /// The kind.
        kind: String,
    },
    /// A kind cannot be listed.
    #[error("cannot list objects of the kind {kind}: {source}")]
    Unlisted {
        /// The kind.
        kind: String,
        /// The error of the API.
        source: Box<kube::Error>,
    },
}

/// Waits until all kinds are usable, then sets the program ready. `/readyz` returns why it is not; changes are logged.
pub async fn wait(client: &Client, namespace: Option<&str>, ready: &Readiness, stop: &Token) {
    ready.set_after(|| check(client, namespace), stop).await;
}

/// Checks all kinds once.
///
/// # Errors
/// [`DefinitionError`] of the first one that cannot be used.
pub async fn check(client: &Client, namespace: Option<&str>) -> Result<(), DefinitionError> {
    for required in sluice_api::optional_crds() {
        let name = required.metadata.name.clone().unwrap_or_default();
        match sluice_runtime::definition::find(client, &required).await {
            Ok(Some(installed)) => compare(name, &required, &installed)?,
            Ok(None) => return Err(DefinitionError::NotInstalled { name }),
            Err(error) => {
                let source = Box::new(error);
                return Err(DefinitionError::Unreadable { name, source });
            }
        }
    }
    list::<Repo>(client, namespace).await?;
    list::<GitRepository>(client, namespace).await?;
    list::<Terraform>(client, namespace).await?;
    list::<TerraformRun>(client, namespace).await
}

/// Compares the installed definition with ours.
fn compare(
    name: String,
    required: &CustomResourceDefinition,
    installed: &CustomResourceDefinition,
) -> Result<(), DefinitionError> {
    let mut missing = missing_fields(required, installed);
    if !has_status(required, installed) {
        missing.push("the subresource status".to_owned());
    }
    if missing.is_empty() {
        return Ok(());
    }
    let fields = missing.join(", ");
    Err(DefinitionError::Outdated { name, fields })
}

/// Whether the installed definition has a status that can be written on its own, in each version that ours stores.
fn has_status(required: &CustomResourceDefinition, installed: &CustomResourceDefinition) -> bool {
    let mut stored = required.spec.versions.iter().filter(|version| version.storage);
    stored.all(|version| {
        let mut found = installed.spec.versions.iter();
        let found = found.find(|found| found.name == version.name);
        let subresources = found.and_then(|found| found.subresources.as_ref());
        subresources.is_some_and(|subresources| subresources.status.is_some())
    })
}

/// Lists one object at most: the kind exists, and the account may read it.
async fn list<K>(client: &Client, namespace: Option<&str>) -> Result<(), DefinitionError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let kind = K::kind(&()).into_owned();
    match api.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(DefinitionError::NotServed { kind }),
        Err(error) => {
            let source = Box::new(error);
            Err(DefinitionError::Unlisted { kind, source })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ours() -> CustomResourceDefinition {
        sluice_api::optional_crds().remove(0)
    }

    /// Returns what a definition lacks.
    fn missing(installed: &Value) -> String {
        let installed: CustomResourceDefinition = serde_json::from_value(installed.clone()).unwrap();
        match compare("repos".to_owned(), &ours(), &installed) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_definition_of_2019_is_outdated() {
        // As API servers return it now, converted from v1beta1.
        let old = json!({ "metadata": { "name": "repos.terraform.gitops.k8s.io" }, "spec": {
            "group": "terraform.gitops.k8s.io", "scope": "Namespaced", "preserveUnknownFields": true,
            "names": { "kind": "Repo", "plural": "repos", "singular": "repo" },
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "properties": { "spec": { "required": ["url"], "properties": { "url": { "type": "string" } } } } } } }],
        } });
        let text = missing(&old);
        for word in ["spec.approval, ", "the subresource status; ", "--force-conflicts"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn only_what_is_missing_is_named() {
        let current = serde_json::to_value(ours()).unwrap();
        assert_eq!(missing(&current), "");
        let mut without_status = current.clone();
        without_status["spec"]["versions"][0]["subresources"] = Value::Null;
        assert_eq!(
            missing(&without_status),
            format!("the definition repos does not declare the subresource status; {ADVICE}")
        );
        let mut without_field = current;
        let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let fields = without_field.pointer_mut(fields).unwrap();
        fields.as_object_mut().unwrap().remove("approval").unwrap();
        assert_eq!(
            missing(&without_field),
            format!("the definition repos does not declare spec.approval; {ADVICE}")
        );
    }
}
