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
use super::{Context, ReconcileError, dependencies};
use crate::inputs::default_suffix;

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
        delete_state_copies(stack, context).await.map_err(failed)?;
    }
    if stack.spec.on_deletion() == Ok(DeletionPolicy::Orphan) && uses_default_backend(stack) {
        delete_state(stack, context).await.map_err(failed)?;
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
async fn delete_state_copies(stack: &Terraform, context: &Context) -> Result<(), kube::Error> {
    let api: Api<Secret> = context.api_of(stack);
    let selector = state_copy::selector(&stack.name_any(), stack.spec.workspace_name());
    let params = ListParams::default().labels(&selector);
    for copy in api.list_metadata(&params).await? {
        remove(&api, &copy.name_any()).await?;
    }
    Ok(())
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

/// Returns whether the state is in the backend that is generated without any setting.
pub(super) fn uses_default_backend(stack: &Terraform) -> bool {
    let spec = &stack.spec;
    spec.backend_config.is_none() && spec.backend_configs_from.is_empty() && spec.cloud.is_none()
}

/// Returns the labels that the kubernetes backend sets on all parts of a stack's state. `None` for a workspace that
/// is not a valid label value: the API rejects a state of it, so there is none, and a selector with it.
pub(super) fn state_selector(stack: &Terraform) -> Option<String> {
    let workspace = stack.spec.workspace_name();
    is_label_value(workspace).then(|| {
        let suffix = default_suffix(&stack.name_any());
        format!("tfstate=true,tfstateSecretSuffix={suffix},tfstateWorkspace={workspace}")
    })
}

/// Deletes the state and its lock, as named by the CLI's kubernetes backend.
async fn delete_state(stack: &Terraform, context: &Context) -> Result<(), kube::Error> {
    let Some(selector) = state_selector(stack) else {
        return Ok(());
    };
    let secrets: Api<Secret> = context.api_of(stack);
    for part in secrets.list(&ListParams::default().labels(&selector)).await? {
        remove(&secrets, &part.name_any()).await?;
    }
    let leases: Api<Lease> = context.api_of(stack);
    let lock = format!(
        "lock-tfstate-{}-{}",
        stack.spec.workspace_name(),
        default_suffix(&stack.name_any())
    );
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
