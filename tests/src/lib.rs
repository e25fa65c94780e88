//! The end-to-end suites, the demo and the benchmark: real git, a real kube-apiserver, the real CLI.

pub mod audit;
pub mod compatibility;
#[cfg(test)]
mod links;
pub mod page;
pub mod program;
pub mod scenario;

use std::path::PathBuf;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};

/// The error of a demo or test.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Waits until the API server serves all definitions. `kubectl wait` fails for one that has no condition yet, and an established
/// one is served only when its cache is filled: until then requests time out.
///
/// # Errors
/// When it does not within [`scenario::TIMEOUT`].
pub async fn wait_for_definitions(client: Client) -> Result<(), BoxError> {
    let (definitions, all): (Api<CustomResourceDefinition>, _) =
        (Api::all(client.clone()), ListParams::default());
    for definition in definitions.list(&all).await?.items {
        let name = definition.name_any();
        let served = await_condition(definitions.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(scenario::TIMEOUT, served).await??;
        for version in definition.spec.versions.iter().filter(|version| version.served) {
            let (group, kind) = (&definition.spec.group, &definition.spec.names.kind);
            let kind = GroupVersionKind::gvk(group, &version.name, kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, &definition.spec.names.plural);
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            scenario::retry(|| objects.list(&all)).await?;
        }
    }
    Ok(())
}

/// Returns the path of a program of this workspace; cargo puts programs into one folder, and tests into `deps` below it.
///
/// # Errors
/// When it is not built.
pub fn binary(name: &str) -> Result<PathBuf, BoxError> {
    let own = std::env::current_exe()?;
    let folder_of_program = own.parent().unwrap_or(&own);
    let folder = if folder_of_program.ends_with("deps") {
        folder_of_program.parent().unwrap_or(folder_of_program)
    } else {
        folder_of_program
    };
    let program = folder.join(name);
    if program.is_file() {
        return Ok(program);
    }
    let missing = format!(
        "{} is not built: run `cargo build --workspace --bins` first",
        program.display()
    );
    Err(missing.into())
}
