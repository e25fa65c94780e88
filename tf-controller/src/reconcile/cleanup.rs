//! Letting go of runs that nobody needs any more, and of what they were given.

use super::{
    Context,
    history::{STALE, in_order},
    report::phase,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::DeleteParams};
use sluice_api::{run::TerraformRun, terraform::Terraform};
use sluice_tf_runner::bundle;

/// Runs that are kept beside the last plan and the last apply.
const KEPT_RUNS: usize = 20;

/// Deletes an object that may be gone already.
pub(super) async fn remove<K>(api: &Api<K>, name: &str) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// Deletes the bundle of the newest run, once it has ended: it holds variables, and nobody reads it any more. One that is
/// missed goes with its run.
pub(super) async fn drop_bundle(stack: &Terraform, runs: &[TerraformRun], context: &Context) {
    let Some(run) = in_order(runs).pop().filter(|run| phase(run).is_final()) else {
        return;
    };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    if let Err(error) = remove(&api, &bundle::secret_name(&run.name_any())).await {
        tracing::debug!(run = run.name_any(), %error, "the bundle of an ended run could not be deleted");
    }
}

/// Deletes the oldest ended runs beyond [`KEPT_RUNS`]; the last plan and the last apply stay always. A failure is tried
/// again by the next pass.
pub(super) async fn prune(stack: &Terraform, runs: &[TerraformRun], context: &Context) {
    let api: Api<TerraformRun> =
        Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    for name in superfluous(runs) {
        if let Err(error) = remove(&api, &name).await {
            tracing::debug!(run = name, %error, "an old run could not be deleted");
        }
    }
}

/// The names of the runs that go.
fn superfluous(runs: &[TerraformRun]) -> Vec<String> {
    let ended: Vec<_> = in_order(runs)
        .into_iter()
        .filter(|run| phase(run).is_final())
        .collect();
    let planned = |run: &&TerraformRun| run.status.as_ref().is_some_and(|s| s.has_changes.is_some());
    // One whose plan was stale applied nothing: plan ids are bound to the one before it.
    let applied = |run: &&TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|s| s.attempted_apply && s.reason != STALE)
    };
    let last = |test: &dyn Fn(&&TerraformRun) -> bool| {
        ended.iter().rev().find(|run| test(run)).map(|run| run.name_any())
    };
    let (plan, apply) = (last(&planned), last(&applied));
    let old = ended.len().saturating_sub(KEPT_RUNS);
    let names = ended.iter().take(old).map(|run| run.name_any());
    names
        .filter(|name| Some(name) != plan.as_ref() && Some(name) != apply.as_ref())
        .collect()
}
