//! Resolves the inputs where the decision can depend on them. For a deletion that destroys after its inputs are gone, the
//! last applied record replaces them, and a stack that was never applied is released.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use sluice_api::terraform::{Reason, Terraform};

use super::facts::Outline;
use super::release::{state_selector, state_suffix};
use super::resolve::{self, Resolved};
use super::{Context, blocked_destroy, history};
use crate::decide::{Inputs, Outcome, SourceFact, Trigger};

/// The result of resolving the inputs.
pub(super) struct Resolution {
    /// The inputs for the decision.
    pub(super) inputs: Inputs,
    /// The inputs for a run; `None`: no run can start.
    pub(super) resolved: Option<Resolved>,
    /// The inputs are gone, but the stack has no resources to destroy.
    pub(super) never_applied: bool,
}

impl From<Inputs> for Resolution {
    fn from(inputs: Inputs) -> Self {
        Self {
            inputs,
            resolved: None,
            never_applied: false,
        }
    }
}

/// Resolves the inputs unless an earlier rule decides.
pub(super) async fn resolve_inputs(outline: &Outline<'_>, context: &Context) -> Resolution {
    let is_released = outline.deleting && !outline.policy.destroy_on_deletion;
    let idle = outline.stack.spec.suspend || outline.unsupported_field.is_some() || is_released;
    if idle || outline.claimed_run().is_some() {
        return Inputs::Unresolved.into();
    }
    if let Some(message) = &outline.observed.unreadable {
        return failed("RunUnreadable", message.clone()).into();
    }
    let inputs = match &outline.observed.artifact {
        None => Inputs::Unresolved,
        Some(artifact) => match resolve::resolve(outline.stack, artifact, context).await {
            Ok(resolved) => {
                let reads_artifact = outline.history.reads_artifact;
                let inputs = history::effective_inputs(&resolved.inputs, &artifact.digest, reads_artifact);
                return resolution_of(inputs, resolved);
            }
            Err(error) => failed(error.public_reason(), error.to_string()),
        },
    };
    if outline.deleting {
        return destroy_from_last_applied(outline, inputs, context).await;
    }
    inputs.into()
}

fn failed(reason: &'static str, message: String) -> Inputs {
    Inputs::Failed { reason, message }
}

fn resolution_of(inputs: String, resolved: Resolved) -> Resolution {
    Resolution {
        inputs: Inputs::Known(inputs),
        resolved: Some(resolved),
        never_applied: false,
    }
}

/// Resolves the inputs of the destroy from the last applied record.
async fn destroy_from_last_applied(outline: &Outline<'_>, inputs: Inputs, context: &Context) -> Resolution {
    let (stack, observed) = (outline.stack, outline.observed);
    let missing = missing(&inputs, &observed.source);
    let (runs, artifact) = (&observed.runs, observed.artifact.as_ref());
    let why = match resolve::resolve_last_applied(stack, runs, attempt(outline), artifact, context).await {
        Ok(Some(resolved)) => {
            tracing::info!(
                missing,
                revision = resolved.artifact.revision,
                "destroying from the last applied record"
            );
            return resolution_of(resolved.inputs.clone(), resolved);
        }
        Ok(None) if is_never_applied(outline) => match has_state(stack, context).await {
            Ok(false) => {
                return Resolution {
                    never_applied: true,
                    ..inputs.into()
                };
            }
            Ok(true) => "the state exists, but no last applied record".to_owned(),
            Err(error) => format!("cannot check whether there is a state: {error}"),
        },
        Ok(None) => "no last applied record exists".to_owned(),
        Err(error) => error.to_string(),
    };
    let reason = match inputs {
        Inputs::Failed { reason, .. } => reason,
        Inputs::Known(_) | Inputs::Unresolved => Reason::ArtifactFailed.as_str(),
    };
    let is_denied = reason == Reason::AccessDenied.as_str();
    failed(
        reason,
        blocked_destroy::without_inputs(&missing, is_denied, &why, &stack.spec),
    )
    .into()
}

/// Describes what the destroy lacks.
fn missing(inputs: &Inputs, source: &SourceFact) -> String {
    match (inputs, source) {
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
fn attempt(outline: &Outline<'_>) -> u32 {
    let history = &outline.history;
    if let Some(active) = &history.active {
        return active.attempt;
    }
    let failed = history
        .last
        .as_ref()
        .filter(|run| run.trigger == Trigger::Deletion && run.outcome != Outcome::Succeeded);
    failed.map_or(1, |run| history.next_attempt(run))
}

/// Returns whether no apply of this object was ever started, and its state would be in a Secret that the controller can read.
fn is_never_applied(outline: &Outline<'_>) -> bool {
    let status = outline.stack.status.as_ref();
    let applied = status.is_some_and(|status| !status.last_applied_revision.is_empty());
    outline.history.last_started_apply.is_none() && !applied && state_suffix(outline.stack).is_some()
}

/// Returns whether the generated backend has a state.
async fn has_state(stack: &Terraform, context: &Context) -> Result<bool, kube::Error> {
    let api: Api<Secret> = context.api_of(stack);
    let suffix = state_suffix(stack);
    let Some(selector) = suffix.and_then(|suffix| state_selector(stack, &suffix)) else {
        return Ok(false);
    };
    let params = ListParams::default().labels(&selector);
    Ok(!api.list_metadata(&params).await?.items.is_empty())
}
