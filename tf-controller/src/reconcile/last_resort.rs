//! A deletion that destroys, when what it would be made of is gone: what was applied last takes its place, and a stack
//! that never had anything is let go.

use super::{Context, observe::Observed, resolve};
use crate::decide::{Facts, Inputs, Outcome, SourceFact, Trigger};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::ListParams};
use resolve::Resolved;
use sluice_api::terraform::Terraform;

/// What to do about resources that nobody can be asked for any more.
const ADVICE: &str = "bring back what is missing, or give the resources up with deletionPolicy: Retain or \
    destroyResourcesOnDeletion: false";

/// The inputs of the destroy out of what is kept, and the facts that follow.
pub(super) async fn resolve(
    stack: &Terraform,
    observed: &Observed,
    facts: &mut Facts,
    context: &Context,
) -> Option<Resolved> {
    let missing = missing(facts);
    let (runs, artifact) = (&observed.runs, observed.artifact.as_ref());
    match resolve::resolve_kept(stack, runs, attempt(facts), artifact, context).await {
        Ok(Some(resolved)) => {
            tracing::info!(
                missing,
                revision = resolved.artifact.revision,
                "destroying what was applied last"
            );
            facts.inputs = Inputs::Known(resolved.inputs.clone());
            return Some(resolved);
        }
        Ok(None) if never_applied(stack, facts) => match has_state(stack, context).await {
            Ok(false) => facts.policy.destroy_on_deletion = false,
            Ok(true) => fail(
                facts,
                &missing,
                "the state is there, and nothing is kept of what was applied",
            ),
            Err(error) => fail(
                facts,
                &missing,
                &format!("whether there is a state is not known: {error}"),
            ),
        },
        Ok(None) => fail(facts, &missing, "nothing is kept of what was applied"),
        Err(error) => fail(facts, &missing, &error.to_string()),
    }
    None
}

fn fail(facts: &mut Facts, missing: &str, why: &str) {
    let reason = match &facts.inputs {
        Inputs::Failed { reason, .. } => reason,
        Inputs::Known(_) | Inputs::Unresolved => "ArtifactFailed",
    };
    let message = format!("cannot destroy: {missing}; {why}: {ADVICE}");
    facts.inputs = Inputs::Failed { reason, message };
}

/// What the destroy lacks, in words.
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

/// The number of the destroy that is under way, or would be next.
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

/// Whether no apply of this object was ever begun, and its state would be where the controller can look.
fn never_applied(stack: &Terraform, facts: &Facts) -> bool {
    let applied = stack
        .status
        .as_ref()
        .is_some_and(|status| !status.last_applied_revision.is_empty());
    facts.history.last_started_apply.is_none() && !applied && super::release::keeps_state_here(stack)
}

/// Whether the backend that is generated holds a state.
async fn has_state(stack: &Terraform, context: &Context) -> Result<bool, kube::Error> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    let Some(selector) = super::release::state_selector(stack) else {
        return Ok(false);
    };
    let params = ListParams::default().labels(&selector);
    Ok(!api.list_metadata(&params).await?.items.is_empty())
}
