//! Does what was decided, and tells when to look again.

use super::{
    Context, PassError,
    dispatch::{self, DispatchError, Order},
    follow,
    observe::Observed,
    resolve::Resolved,
};
use crate::{
    decide::{Dependencies, Facts, Rest, RunAction, Step},
    schedule::Rank,
};
use jiff::Timestamp;
use kube::ResourceExt;
use sluice_api::{run::TerraformRun, terraform::Terraform};
use sluice_runtime::{schedule::ObjectKey, watch::Next};
use std::time::Duration;

/// How often a run in progress is looked at when nothing is heard of it.
pub(super) const LOOK: Duration = Duration::from_secs(10);
/// How soon a stack that waits for a place is looked at if nobody calls it: a safeguard, places are announced.
const PLACE: Duration = Duration::from_secs(600);

/// What came of a step.
pub(super) struct Done {
    /// When to look again.
    pub(super) next: Next,
    /// The run that was started.
    pub(super) started: Option<TerraformRun>,
}

impl Done {
    fn started(run: TerraformRun) -> Self {
        Self {
            next: Next::After(LOOK),
            started: Some(run),
        }
    }
}

impl From<Next> for Done {
    fn from(next: Next) -> Self {
        Self { next, started: None }
    }
}

/// Does what was decided. A start for which there is no place waits for one.
pub(super) async fn carry_out(
    stack: &Terraform,
    observed: &Observed,
    facts: &Facts,
    resolved: Option<&Resolved>,
    step: &mut Step,
    context: &Context,
) -> Result<Done, PassError> {
    let failed = |error: DispatchError| PassError::Dispatch {
        stack: stack.name_any(),
        text: error.to_string(),
    };
    let key = ObjectKey::of(stack);
    match (&*step, resolved) {
        (Step::Start(new), Some(resolved)) => {
            // A session works little and lasts long: it takes nobody's place.
            let placed =
                new.action == RunAction::BreakTheGlass || context.places.take(&key, Rank::of(new.trigger));
            if !placed {
                *step = Step::Wait;
                return Ok(Next::After(PLACE).into());
            }
            let order = Order {
                stack,
                new,
                history: &facts.history,
                resolved,
                runs: &observed.runs,
                request: facts.request.as_deref(),
            };
            match dispatch::start(&order, context).await {
                Ok(run) => Ok(Done::started(run)),
                Err(error) => {
                    // It is needed by others until the next try. Should a run be there all the same, that one follows it.
                    context.places.free(&key);
                    let why = error.refusal().ok_or_else(|| failed(error))?;
                    *step = Step::NotMade(why);
                    Ok(Next::After(pause(facts)).into())
                }
            }
        }
        (Step::Start(_), None) | (Step::Release | Step::Wait | Step::NotMade(_), _) => {
            Ok(Next::OnChange.into())
        }
        (Step::Follow, resolved) => {
            let running = facts.history.active.as_ref();
            if running.is_some_and(|run| run.action == RunAction::BreakTheGlass) {
                context.places.free(&key);
            } else {
                context.places.hold(&key);
            }
            let active = running.map(|run| run.name.as_str());
            if let Some(run) = observed
                .runs
                .iter()
                .find(|run| run.metadata.name.as_deref() == active)
            {
                follow::follow(run, resolved, facts, context)
                    .await
                    .map_err(failed)?;
            }
            Ok(Next::After(LOOK).into())
        }
        (Step::Rest(rest), _) => {
            context.places.free(&key);
            Ok(after_rest(rest, facts).into())
        }
    }
}

/// When to look again, with nothing to do now.
pub(super) fn after_rest(rest: &Rest, facts: &Facts) -> Next {
    let until = |when: Timestamp| {
        let wait = Duration::try_from(when.duration_since(facts.now)).unwrap_or_default();
        Next::After(wait.max(Duration::from_millis(100)))
    };
    match rest {
        Rest::RetryAt(when)
        | Rest::InputPause(when)
        | Rest::Steady(when)
        | Rest::ShowPlan { again: Some(when) } => until(*when),
        // A member of a circle carries no finalizer of the one behind it, whose end therefore calls nobody.
        Rest::Dependants if matches!(facts.dependencies, Dependencies::Cycle(_)) => {
            Next::After(pause(facts).min(LOOK))
        }
        Rest::Source | Rest::InputsUnknown | Rest::Dependencies | Rest::Dependants => {
            Next::After(pause(facts))
        }
        // By an annotation, perhaps, whose removal calls nobody.
        Rest::GlassRefused => Next::After(pause(facts)),
        Rest::AwaitApproval => match &facts.history.pending {
            Some(pending) if pending.drift => until(facts.due(pending.planned)),
            _ => Next::OnChange,
        },
        Rest::Suspended
        | Rest::DeletionSuspended
        | Rest::Refused
        | Rest::Contradiction
        | Rest::RetryLimit
        | Rest::GlassOver
        | Rest::ShowPlan { again: None } => Next::OnChange,
    }
}

/// The time until what is missing is looked for again.
fn pause(facts: &Facts) -> Duration {
    Duration::try_from(facts.retry.interval)
        .unwrap_or_default()
        .max(Duration::from_secs(1))
}
