//! Releases a deleted stack: deletes its stored data, its outputs, with `deletionPolicy: Orphan` its state, its finalizers on
//! dependencies, and last its own. Everything may already be gone, as in a namespace that is being deleted.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use sluice_api::annotation::PLAN_NAME;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{DeletionPolicy, FINALIZER, Terraform, is_label_value, label_value};
use sluice_runtime::finalizer;
use sluice_runtime::watch::Requeue;
use sluice_tf_core::{errored_state, last_applied, state_copy};

use super::cleanup::{self, remove};
use super::history::by_sequence;
use super::{Context, ReconcileError, dependencies};
use crate::decide::Trigger;

/// Deletes all data of the stack, then its finalizers. Kubernetes deletes its runs and bundles.
pub(super) async fn release(
    api: &Api<Terraform>,
    stack: &Terraform,
    runs: &[TerraformRun],
    context: &Context,
) -> Result<Requeue, ReconcileError> {
    let failed = |error: kube::Error| ReconcileError::Dispatch {
        stack: stack.name_any(),
        text: error.to_string(),
    };
    delete_stored(stack, context).await.map_err(failed)?;
    delete_outputs(stack, context).await.map_err(failed)?;
    if matches!(
        stack.spec.on_deletion(),
        Ok(DeletionPolicy::Destroy | DeletionPolicy::Orphan)
    ) {
        let workspace = released_workspace(stack, runs);
        delete_state_copies(stack, workspace, context)
            .await
            .map_err(failed)?;
    }
    let state = state_suffix(stack).filter(|_| stack.spec.on_deletion() == Ok(DeletionPolicy::Orphan));
    if let Some(suffix) = state {
        delete_state(stack, &suffix, context).await.map_err(failed)?;
    } else if !stack.spec.destroys_on_deletion() {
        orphan_errored_state(stack, runs, context).await.map_err(failed)?;
    }
    for run in runs {
        cleanup::forget_run(stack, run.name_any(), context).await;
    }
    finalizer::remove(api, stack, FINALIZER).await?;
    // Last, because this triggers the dependencies: one that still sees the stack would keep waiting. If this fails,
    // they remove the finalizer themselves.
    dependencies::remove_finalizers(stack, context).await?;
    tracing::info!("stack released");
    Ok(Requeue::OnChange)
}

/// Deletes the plans of all workspaces, their readable forms, and the last applied record.
async fn delete_stored(stack: &Terraform, context: &Context) -> Result<(), kube::Error> {
    let name = stack.name_any();
    for selector in [
        format!("{PLAN_NAME}={}", label_value(&name)),
        format!("{PLAN_NAME}={}", label_value(&format!("{name}.json"))),
        last_applied::selector(&name),
    ] {
        remove_owned::<Secret>(stack, &selector, context).await?;
        remove_owned::<ConfigMap>(stack, &selector, context).await?;
    }
    Ok(())
}

/// Deletes the objects with these labels that this very object owns: another stack may have the same labels.
async fn remove_owned<K>(stack: &Terraform, selector: &str, context: &Context) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = context.api_of(stack);
    let uid = stack.uid().unwrap_or_default();
    for object in api.list(&ListParams::default().labels(selector)).await? {
        if object.owner_references().iter().any(|owner| owner.uid == uid) {
            remove(&api, &object.name_any()).await?;
        }
    }
    Ok(())
}

/// Deletes the copies of the state: its resources are destroyed, or given up. They have no owner, because they outlive an object that is
/// deleted with its resources retained. The copies of other workspaces stay: their states do too.
async fn delete_state_copies(
    stack: &Terraform,
    workspace: &str,
    context: &Context,
) -> Result<(), kube::Error> {
    let api: Api<Secret> = context.api_of(stack);
    let selector = state_copy::selector(&stack.name_any(), workspace);
    let params = ListParams::default().labels(&selector);
    for copy in api.list_metadata(&params).await? {
        remove(&api, &copy.name_any()).await?;
    }
    Ok(())
}

/// Returns the workspace whose resources are destroyed, or given up: that of the last destroy of the deletion, which may be the one of
/// the last applied record, or that of the spec.
fn released_workspace<'a>(stack: &'a Terraform, runs: &'a [TerraformRun]) -> &'a str {
    let spec = &stack.spec;
    let destroys = by_sequence(runs)
        .into_iter()
        .rev()
        .filter(|run| spec.destroys_on_deletion() && run.spec.trigger == Trigger::Deletion);
    let mut workspaces = destroys.filter_map(|run| Some(run.status.as_ref()?.workspace.as_str()));
    workspaces
        .find(|workspace| !workspace.is_empty())
        .unwrap_or_else(|| spec.workspace_name())
}

/// Deletes the outputs Secret if the stack owns it.
async fn delete_outputs(stack: &Terraform, context: &Context) -> Result<(), kube::Error> {
    let Some(target) = &stack.spec.write_outputs_to_secret else {
        return Ok(());
    };
    let api: Api<Secret> = context.api_of(stack);
    let uid = stack.uid().unwrap_or_default();
    match api.get_opt(&target.name).await? {
        Some(found) if found.owner_references().iter().any(|owner| owner.uid == uid) => {
            remove(&api, &target.name).await
        }
        _ => Ok(()),
    }
}

/// Returns the suffix of the Secret with the state; `None`: the state may be elsewhere.
pub(super) fn state_suffix(stack: &Terraform) -> Option<String> {
    stack.spec.state_suffix(&stack.name_any())
}

/// Returns the labels that the kubernetes backend sets on all parts of a stack's state. `None` for a workspace that
/// is not a valid label value: the API rejects a state of it, so there is none, and a selector with it.
pub(super) fn state_selector(stack: &Terraform, suffix: &str) -> Option<String> {
    let workspace = stack.spec.workspace_name();
    is_label_value(workspace)
        .then(|| format!("tfstate=true,tfstateSecretSuffix={suffix},tfstateWorkspace={workspace}"))
}

/// Deletes the state and its lock, as named by the CLI's kubernetes backend.
async fn delete_state(stack: &Terraform, suffix: &str, context: &Context) -> Result<(), kube::Error> {
    let Some(selector) = state_selector(stack, suffix) else {
        return Ok(());
    };
    let secrets: Api<Secret> = context.api_of(stack);
    for part in secrets.list(&ListParams::default().labels(&selector)).await? {
        remove(&secrets, &part.name_any()).await?;
    }
    let leases: Api<Lease> = context.api_of(stack);
    let lock = format!("lock-tfstate-{}-{suffix}", stack.spec.workspace_name());
    match remove(&leases, &lock).await {
        // In a namespace that is being deleted, the binding that permits it may be gone first. A lock without a state is harmless, and
        // the namespace takes it along.
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            tracing::warn!(%lock, "cannot delete the lock of the deleted state: {status}");
        }
        removed => removed?,
    }
    tracing::info!("state deleted, resources retained");
    Ok(())
}

/// Keeps an errored state: it is part of the state that is retained, so it must not be deleted with the object. The
/// runs that record it are needed to push it, so they are owned by the Secrets from now on.
async fn orphan_errored_state(
    stack: &Terraform,
    runs: &[TerraformRun],
    context: &Context,
) -> Result<(), kube::Error> {
    let api: Api<Secret> = context.api_of(stack);
    let uid = stack.uid().unwrap_or_default();
    let params = ListParams::default().labels(&errored_state::selector(&stack.name_any()));
    let mut secrets = Vec::new();
    for secret in api.list(&params).await? {
        let ours = secret.owner_references().iter().any(|owner| owner.uid == uid);
        if ours {
            set_owners(&api, &secret.name_any(), None).await?;
        }
        // A Secret without owner was orphaned by a reconciliation that failed before it updated the runs.
        if ours || secret.owner_references().is_empty() {
            secrets.extend(secret.owner_ref(&()));
        }
    }
    if secrets.is_empty() {
        return Ok(());
    }
    let api: Api<TerraformRun> = context.api_of(stack);
    for run in errored_state::recording_runs(runs) {
        set_owners(&api, &run.name_any(), Some(&secrets)).await?;
    }
    Ok(())
}

/// Replaces the owners of an object, which may already be gone.
async fn set_owners<K>(
    api: &Api<K>,
    name: &str,
    owners: Option<&Vec<OwnerReference>>,
) -> Result<(), kube::Error>
where
    K: Clone + Debug + serde::de::DeserializeOwned,
{
    let body = json!({ "metadata": { "ownerReferences": owners } });
    match api
        .patch(name, &PatchParams::default(), &Patch::Merge(body))
        .await
    {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        patched => patched.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn stack(more: &Value) -> Terraform {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({ "metadata": { "name": "net" }, "spec": spec })).unwrap()
    }

    #[test]
    fn the_state_is_beside_the_stack_unless_the_backend_is_another() {
        let suffix = |more: Value| state_suffix(&stack(&more));
        assert_eq!(suffix(json!({})).as_deref(), Some("net"));
        for config in [
            json!({ "secretSuffix": "net-ab12" }),
            json!({ "secretSuffix": "net-ab12", "inClusterConfig": true }),
        ] {
            let found = suffix(json!({ "backendConfig": config }));
            assert_eq!(found.as_deref(), Some("net-ab12"), "{config}");
        }
        for other in [
            json!({ "backendConfig": {} }),
            json!({ "backendConfig": { "secretSuffix": "not a label" } }),
            json!({ "backendConfig": { "secretSuffix": "net", "configPath": "/other" } }),
            json!({ "backendConfig": { "secretSuffix": "net", "labels": { "a": "b" } } }),
            json!({ "backendConfig": { "secretSuffix": "net", "disable": true } }),
            json!({ "backendConfig": { "customConfiguration": "backend \"s3\" {}" } }),
            json!({ "backendConfigsFrom": [{ "kind": "Secret", "name": "s" }] }),
            json!({ "cloud": { "organization": "o", "workspaces": { "name": "w" } } }),
        ] {
            assert_eq!(suffix(other.clone()), None, "{other}");
        }
    }

    #[test]
    fn copies_of_the_destroyed_workspace_are_deleted() {
        let run = |number: u8, trigger: &str, workspace: &str| -> TerraformRun {
            let spec = json!({ "action": "PlanAndApply", "attempt": 1, "deadline": "1h", "trigger": trigger,
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u", "generation": 1 } });
            let metadata = json!({ "name": format!("net-u-{number}") });
            let status = json!({ "phase": "Succeeded", "workspace": workspace });
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
        };
        let runs = [
            run(10, "Deletion", ""),
            run(9, "Deletion", "recorded"),
            run(8, "Deletion", "earlier"),
            run(11, "Retry", "unlocked"),
        ];
        let destroyed = stack(&json!({ "workspace": "blue", "deletionPolicy": "Destroy" }));
        assert_eq!(released_workspace(&destroyed, &runs), "recorded");
        assert_eq!(released_workspace(&destroyed, &runs[3..]), "blue");
        let given_up = stack(&json!({ "workspace": "blue", "deletionPolicy": "Orphan" }));
        assert_eq!(released_workspace(&given_up, &runs), "blue");
    }
}
