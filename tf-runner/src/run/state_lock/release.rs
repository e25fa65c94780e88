//! A run that does nothing but release a state lock that the user named.

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use sluice_api::terraform::Reason;

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::api_retry::patiently;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::steps::{Success, select_workspace};
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::argv;

/// The label by which the CLI's kubernetes backend marks what is its own.
const STATE_LABEL: &str = "tfstate=true";
/// Where that backend keeps what it says about a lock.
const LOCK_INFO: &str = "app.terraform.io/lock-info";

/// Releases the lock of this id; another lock stays.
pub(crate) async fn carry_out(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    id: &str,
    init: &[String],
) -> Result<Success, RunError> {
    if id.is_empty() {
        return Err(RunError::Incomplete {
            action: "Unlock",
            what: "the id of a lock",
        });
    }
    workspace.reporter.note(|status| status.lock = None);
    if let Err(error) = by_command(context, bundle, workspace, id, init).await {
        // A state that does not exist yet is locked while it is made, at init: the CLI cannot release such a lock.
        if !lease(context, id).await {
            return Err(error);
        }
        workspace.reporter.note(|status| status.lock = None);
    }
    let message = format!("Terraform Force Unlock with Lock Identifier: {id}");
    Ok(Success::new(Reason::ForceUnlock, &message))
}

async fn by_command(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    id: &str,
    init: &[String],
) -> Result<(), RunError> {
    workspace.must(Step::Init, init).await?;
    select_workspace(context, bundle, workspace).await?;
    workspace
        .must(Step::Unlock, &argv::force_unlock(id))
        .await
        .map(drop)
}

/// Opens the Lease that the kubernetes backend locks a state with, if one of this namespace is held under this id; tells
/// whether it did.
pub(crate) async fn lease(context: &Context, id: &str) -> bool {
    let api: Api<Lease> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let params = ListParams::default().labels(STATE_LABEL);
    let Ok(leases) = patiently(context.settings.patience, || api.list(&params)).await else {
        return false;
    };
    let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    let Some(mut lease) = leases
        .items
        .into_iter()
        .find(|lease| holder(lease).as_deref() == Some(id))
    else {
        return false;
    };
    if let Some(spec) = &mut lease.spec {
        spec.holder_identity = None;
    }
    lease.annotations_mut().remove(LOCK_INFO);
    // With the resourceVersion that was read: whoever took the lock meanwhile keeps it.
    let written = api
        .replace(&lease.name_any(), &PostParams::default(), &lease)
        .await;
    if let Err(error) = &written {
        tracing::warn!(%error, lease = lease.name_any(), "the Lease of the state lock could not be opened");
    }
    written.is_ok()
}
