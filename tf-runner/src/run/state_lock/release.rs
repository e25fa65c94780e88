//! The release of a state lock: by a run of the action `Unlock`, or of its Lease.

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use sluice_api::terraform::Reason;

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::{RunSession, Success};
use crate::run::state::select_workspace;
use crate::run::state_lock::force_unlock_arguments;

/// The label of the objects of the CLI's kubernetes backend.
const STATE_LABEL: &str = "tfstate=true";
/// The annotation in which that backend describes the lock.
const LOCK_INFO_ANNOTATION: &str = "app.terraform.io/lock-info";

/// Releases the lock with the id that the run names. Any other lock stays.
pub(crate) async fn release_lock(session: &RunSession<'_>, init: &[String]) -> Result<Success, RunError> {
    let (id, status) = (&session.run.spec.lock_identifier, session.cli.status);
    if id.is_empty() {
        return Err(RunError::IncompleteSpec {
            action: "Unlock",
            what: "the id of a lock",
        });
    }
    status.buffer(|status| status.lock = None);
    if let Err(error) = force_unlock(session, id, init).await {
        // `init` locks a state that does not exist yet while it creates it. The CLI cannot release such a lock.
        if !release_lease(session.context, id).await {
            return Err(error);
        }
        status.buffer(|status| status.lock = None);
    }
    let message = format!("Terraform Force Unlock with Lock Identifier: {id}");
    Ok(Success::new(Reason::ForceUnlock, &message))
}

async fn force_unlock(session: &RunSession<'_>, id: &str, init: &[String]) -> Result<(), RunError> {
    session.cli.run(Step::Init, init).await?;
    select_workspace(session).await?;
    let args = force_unlock_arguments(id);
    session.cli.run(Step::Unlock, &args).await.map(drop)
}

/// Clears the holder of the Lease with which the kubernetes backend locks a state, if a Lease of the namespace has this holder.
/// Returns whether it did.
pub(crate) async fn release_lease(context: &Context, id: &str) -> bool {
    let api: Api<Lease> = context.api();
    let params = ListParams::default().labels(STATE_LABEL);
    let Ok(leases) = context.retry(|| api.list(&params)).await else {
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
    lease.annotations_mut().remove(LOCK_INFO_ANNOTATION);
    // With the resourceVersion that was read, so that a new holder keeps the lock.
    let written = api
        .replace(&lease.name_any(), &PostParams::default(), &lease)
        .await;
    if let Err(error) = &written {
        tracing::warn!(%error, lease = lease.name_any(), "the Lease of the state lock could not be released");
    }
    written.is_ok()
}
