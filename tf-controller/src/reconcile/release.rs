//! Letting a deleted stack go: what is stored of it, its outputs, with `deletionPolicy: Orphan` its state, its finalizers on
//! others, and at last its own. Everything may be gone already, as in a namespace that is being deleted.

use super::{
    Context, PassError,
    cleanup::{self, remove},
    dependencies,
};
use crate::inputs::default_suffix;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        coordination::v1::Lease,
        core::v1::{ConfigMap, Secret},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use sluice_api::{
    annotation::PLAN_NAME,
    run::TerraformRun,
    terraform::{DeletionPolicy, FINALIZER, Terraform, is_label_value, label_value},
};
use sluice_runtime::{finalizer, schedule::ObjectKey, watch::Next};
use sluice_tf_runner::{
    applied,
    run::{errored_state_recorders, errored_state_selector},
};
use std::fmt::Debug;

/// Removes all that is the stack's, then its finalizers. Runs and bundles go with their owner.
pub(super) async fn release(
    api: &Api<Terraform>,
    stack: &Terraform,
    runs: &[TerraformRun],
    context: &Context,
) -> Result<Next, PassError> {
    let failed = |error: kube::Error| PassError::Dispatch {
        stack: stack.name_any(),
        text: error.to_string(),
    };
    stored(stack, context).await.map_err(failed)?;
    outputs(stack, context).await.map_err(failed)?;
    if stack.spec.on_deletion() == Ok(DeletionPolicy::Orphan) && keeps_state_here(stack) {
        state(stack, context).await.map_err(failed)?;
    } else if !stack.spec.destroys_on_deletion() {
        disown_unwritten_state(stack, runs, context)
            .await
            .map_err(failed)?;
    }
    context.places.free(&ObjectKey::of(stack));
    for run in runs {
        cleanup::forget(stack, run.name_any(), context).await;
    }
    finalizer::release(api, stack, FINALIZER).await?;
    // Last, because this calls them: a dependency that still sees the stack would wait on. Should it not come to this, they
    // take the finalizer off themselves.
    dependencies::let_go(stack, context).await?;
    tracing::info!("stack released");
    Ok(Next::OnChange)
}

/// Plans, in whatever workspace they were made, their readable forms, and what was applied last.
async fn stored(stack: &Terraform, context: &Context) -> Result<(), kube::Error> {
    let name = stack.name_any();
    for selector in [
        format!("{PLAN_NAME}={}", label_value(&name)),
        format!("{PLAN_NAME}={}", label_value(&format!("{name}.json"))),
        applied::selector_of(&name),
    ] {
        remove_owned::<Secret>(stack, &selector, context).await?;
        remove_owned::<ConfigMap>(stack, &selector, context).await?;
    }
    Ok(())
}

/// Removes what carries the labels and belongs to this very object: labels of another's name may be the same.
async fn remove_owned<K>(stack: &Terraform, selector: &str, context: &Context) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    let uid = stack.uid().unwrap_or_default();
    for object in api.list(&ListParams::default().labels(selector)).await? {
        if object.owner_references().iter().any(|owner| owner.uid == uid) {
            remove(&api, &object.name_any()).await?;
        }
    }
    Ok(())
}

/// The outputs Secret, if it is the stack's.
async fn outputs(stack: &Terraform, context: &Context) -> Result<(), kube::Error> {
    let Some(target) = &stack.spec.write_outputs_to_secret else {
        return Ok(());
    };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    let uid = stack.uid().unwrap_or_default();
    match api.get_opt(&target.name).await? {
        Some(found) if found.owner_references().iter().any(|owner| owner.uid == uid) => {
            remove(&api, &target.name).await
        }
        _ => Ok(()),
    }
}

/// Whether the state is where the backend that is generated without any setting keeps it.
pub(super) fn keeps_state_here(stack: &Terraform) -> bool {
    let spec = &stack.spec;
    spec.backend_config.is_none() && spec.backend_configs_from.is_empty() && spec.cloud.is_none()
}

/// The labels that the kubernetes backend puts on a stack's state, all parts of it. `None` for a workspace that is no label: the
/// API takes no state of it, so there is none, and a selector with it would be refused.
pub(super) fn state_selector(stack: &Terraform) -> Option<String> {
    let workspace = stack.spec.workspace_name();
    is_label_value(workspace).then(|| {
        let suffix = default_suffix(&stack.name_any());
        format!("tfstate=true,tfstateSecretSuffix={suffix},tfstateWorkspace={workspace}")
    })
}

/// The state and its lock. The CLI's kubernetes backend names them.
async fn state(stack: &Terraform, context: &Context) -> Result<(), kube::Error> {
    let namespace = stack.namespace().unwrap_or_default();
    let Some(selector) = state_selector(stack) else {
        return Ok(());
    };
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    for part in secrets.list(&ListParams::default().labels(&selector)).await? {
        remove(&secrets, &part.name_any()).await?;
    }
    let leases: Api<Lease> = Api::namespaced(context.client.clone(), &namespace);
    let lock = format!(
        "lock-tfstate-{}-{}",
        stack.spec.workspace_name(),
        default_suffix(&stack.name_any())
    );
    remove(&leases, &lock).await?;
    tracing::info!("the state is deleted, the resources stay");
    Ok(())
}

/// A state that no run could write back is part of the state that stays: it no longer goes with the object. Nor do the runs that
/// have it on record, without which nobody would push it: they go with the Secrets.
async fn disown_unwritten_state(
    stack: &Terraform,
    runs: &[TerraformRun],
    context: &Context,
) -> Result<(), kube::Error> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    let uid = stack.uid().unwrap_or_default();
    let params = ListParams::default().labels(&errored_state_selector(&stack.name_any()));
    let mut kept = Vec::new();
    for secret in api.list(&params).await? {
        let ours = secret.owner_references().iter().any(|owner| owner.uid == uid);
        if ours {
            own(&api, &secret.name_any(), None).await?;
        }
        // One that is free was freed by a pass that did not come to the runs.
        if ours || secret.owner_references().is_empty() {
            kept.extend(secret.owner_ref(&()));
        }
    }
    if kept.is_empty() {
        return Ok(());
    }
    let api: Api<TerraformRun> =
        Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    for run in errored_state_recorders(runs) {
        own(&api, &run.name_any(), Some(&kept)).await?;
    }
    Ok(())
}

/// Gives an object, which may be gone, these owners in place of those that it has.
async fn own<K>(api: &Api<K>, name: &str, owners: Option<&Vec<OwnerReference>>) -> Result<(), kube::Error>
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
