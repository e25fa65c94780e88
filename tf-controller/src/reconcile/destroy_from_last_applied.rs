//! A deletion that destroys after its inputs are gone: the last applied record replaces them, and a stack that was
//! never applied is released.

use super::{Context, observe::Observed, resolve};
use crate::decide::{Facts, Inputs, Outcome, SourceFact, Trigger};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::ListParams};
use resolve::Resolved;
use sluice_api::terraform::Reason;
use sluice_api::terraform::Terraform;

/// What to do if the resources cannot be destroyed.
const ADVICE: &str = "restore what is missing, or give up the resources with deletionPolicy: Retain or \
    destroyResourcesOnDeletion: false";

/// Resolves the inputs of the destroy from the last applied record, and updates the facts.
pub(super) async fn resolve(
    stack: &Terraform,
    observed: &Observed,
    facts: &mut Facts,
    context: &Context,
) -> Option<Resolved> {
    let missing = missing(facts);
    let (runs, artifact) = (&observed.runs, observed.artifact.as_ref());
    match resolve::resolve_last_applied(stack, runs, attempt(facts), artifact, context).await {
        Ok(Some(resolved)) => {
            tracing::info!(
                missing,
                revision = resolved.artifact.revision,
                "destroying from the last applied record"
            );
            facts.inputs = Inputs::Known(resolved.inputs.clone());
            return Some(resolved);
        }
        Ok(None) if never_applied(stack, facts) => match has_state(stack, context).await {
            Ok(false) => facts.policy.destroy_on_deletion = false,
            Ok(true) => set_failed(facts, &missing, "the state exists, but no last applied record"),
            Err(error) => set_failed(
                facts,
                &missing,
                &format!("cannot check whether there is a state: {error}"),
            ),
        },
        Ok(None) => set_failed(facts, &missing, "there is no last applied record"),
        Err(error) => set_failed(facts, &missing, &error.to_string()),
    }
    None
}

fn set_failed(facts: &mut Facts, missing: &str, why: &str) {
    let reason = match &facts.inputs {
        Inputs::Failed { reason, .. } => reason,
        Inputs::Known(_) | Inputs::Unresolved => Reason::ArtifactFailed.as_str(),
    };
    let message = format!("cannot destroy: {missing}; {why}: {ADVICE}");
    facts.inputs = Inputs::Failed { reason, message };
}

/// Describes what the destroy lacks.
fn missing(facts: &Facts) -> String {
    match (&facts.inputs, &facts.source) {
        (Inputs::Failed { message, .. }, _) => message.clone(),
        (_, SourceFact::NotFound(text) | SourceFact::Denied(text) | SourceFact::Unreachable(text)) => {
            text.clone()
        }
        (_, SourceFact::NoArtifact | SourceFact::NotRead | SourceFact::Found { .. }) => {
            "the source has no artifact".to_owned()
        }
    }
}

/// Returns the attempt of the active or next destroy.
fn attempt(facts: &Facts) -> u32 {
    let history = &facts.history;
    if let Some(active) = &history.active {
        return active.attempt;
    }
    let failed = history
        .last
        .as_ref()
        .filter(|run| run.trigger == Trigger::Deletion && run.outcome != Outcome::Succeeded);
    failed.map_or(1, |run| run.attempt.saturating_add(1))
}

/// Returns whether no apply of this object was ever started, and its state would be in a Secret that the controller can read.
fn never_applied(stack: &Terraform, facts: &Facts) -> bool {
    let applied = stack
        .status
        .as_ref()
        .is_some_and(|status| !status.last_applied_revision.is_empty());
    facts.history.last_started_apply.is_none() && !applied && super::release::uses_default_backend(stack)
}

/// Returns whether the generated backend has a state.
async fn has_state(stack: &Terraform, context: &Context) -> Result<bool, kube::Error> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    let Some(selector) = super::release::state_selector(stack) else {
        return Ok(false);
    };
    let params = ListParams::default().labels(&selector);
    Ok(!api.list_metadata(&params).await?.items.is_empty())
}
