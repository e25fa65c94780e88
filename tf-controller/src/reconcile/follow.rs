//! Looks after the run in progress: started if nobody did, ended in the name of a runner that is not there.

use super::{
    Context,
    dispatch::{DispatchError, end, launch, reference},
    resolve::Resolved,
};
use crate::{
    decide::{Facts, Inputs, Progress, Upkeep, upkeep},
    executor::Liveness,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use sluice_api::run::{Phase, TerraformRun};
use std::time::Duration;
use tokio::time::Instant;

/// What a runner gets beyond its deadline to interrupt the CLI and to report.
const GRACE: Duration = Duration::from_secs(60);

/// The run in progress: started if nobody did, declared lost if its process is gone, or was not heard of for long.
pub(super) async fn follow(
    run: &TerraformRun,
    resolved: Option<&Resolved>,
    facts: &Facts,
    context: &Context,
) -> Result<(), DispatchError> {
    let reference = reference(run);
    let seen = context.executor.liveness(reference.clone(), site(run)).await?;
    if seen == Liveness::Alive && !is_hung(run, context) {
        return Ok(());
    }
    // Its last report may be newer than what was read before the process was looked at; and where another controller has
    // started it meanwhile, a claim is read here whose process was not there a moment ago. So: read, then look again.
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &reference.namespace);
    let Some(fresh) = api.get_opt(&reference.name).await? else {
        return Ok(());
    };
    let status = fresh.status.clone().unwrap_or_default();
    let step = upkeep(Progress {
        alive: lives(&fresh, context).await?,
        ended: status.phase.is_final(),
        claimed: status.claim.is_some(),
        made_of: &fresh.spec.inputs_digest,
        now: resolved.map(|resolved| resolved.inputs.as_str()),
    });
    let (phase, reason, message) = match (step, resolved) {
        (Upkeep::Launch, Some(resolved)) => return launch(&fresh, resolved, &facts.history, context).await,
        (Upkeep::Leave | Upkeep::Launch, _) => return Ok(()),
        (Upkeep::Lose, _) => (
            Phase::Lost,
            "RunLost",
            "the run's process is gone without a report, or was not heard of for too long".to_owned(),
        ),
        (Upkeep::Outdated, _) => (
            Phase::Superseded,
            "InputsChanged",
            "its inputs changed before it began".to_owned(),
        ),
        (Upkeep::Unknown, _) => {
            let why = withheld(facts);
            (Phase::Superseded, why.reason, why.message)
        }
    };
    end(&api, &fresh, phase, reason, &message, context).await
}

/// Why a run that nobody has begun ends without its inputs having been looked at, or had.
#[derive(Debug, PartialEq, Eq)]
struct Withheld {
    reason: &'static str,
    message: String,
}

fn withheld(facts: &Facts) -> Withheld {
    let because = |reason, message: &str| Withheld {
        reason,
        message: message.to_owned(),
    };
    if facts.suspended {
        return because("Suspended", "the object was suspended before it began");
    }
    if let Some(refused) = &facts.refused {
        let text = format!(
            "the spec was changed before it began to what cannot be carried out: {}",
            refused.text
        );
        return because(refused.reason, &text);
    }
    match &facts.inputs {
        Inputs::Failed { message, .. } => {
            let text = format!("its inputs could no longer be had before it began: {message}");
            because("InputsUnknown", &text)
        }
        _ if facts.deleting => because("Deleted", "the object was deleted before it began"),
        Inputs::Unresolved | Inputs::Known(_) => {
            because("InputsUnknown", "its source was gone before it began")
        }
    }
}

/// Where the locks of the runner are seen; empty before it claims the run.
fn site(run: &TerraformRun) -> String {
    let claim = run.status.as_ref().and_then(|status| status.claim.as_ref());
    claim.map(|claim| claim.site.clone()).unwrap_or_default()
}

/// Whether the runner lives, as far as can be told from here.
pub(super) async fn lives(run: &TerraformRun, context: &Context) -> Result<bool, DispatchError> {
    let seen = context.executor.liveness(reference(run), site(run)).await?;
    Ok(match seen {
        Liveness::Alive => !is_hung(run, context),
        Liveness::Gone => false,
        Liveness::Elsewhere => is_heard(run, context),
    })
}

/// Whether the run still says that it lives.
fn is_heard(run: &TerraformRun, context: &Context) -> bool {
    let beat = run
        .status
        .as_ref()
        .and_then(|status| status.heartbeat_at.as_ref());
    let beat = beat.map(|time| time.0);
    context.pulses.lives(&reference(run), beat, Instant::now())
}

/// Whether a run that holds its lock is given up: its runner, which ends it at the deadline, did not do so and says nothing any more.
/// The directory of the stack stays locked for as long as something of it works.
fn is_hung(run: &TerraformRun, context: &Context) -> bool {
    is_overdue(run, context.clock.now()) && !is_heard(run, context)
}

/// Whether the run should have ended by now (pure).
fn is_overdue(run: &TerraformRun, now: Timestamp) -> bool {
    let began = run.status.as_ref().and_then(|status| status.started_at.as_ref());
    let allowed = run.spec.deadline.to_duration().saturating_add(GRACE);
    let passed = |began: &Time| Duration::try_from(now.duration_since(began.0)).unwrap_or_default();
    began.is_some_and(|began| passed(began) > allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Refused, facts_of_a_new_stack};

    #[test]
    fn a_run_is_overdue_behind_its_deadline_and_the_grace() {
        let run = |status: serde_json::Value| -> TerraformRun {
            let spec = serde_json::json!({ "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u", "generation": 1 } });
            serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": spec, "status": status }))
                .unwrap()
        };
        let begun = run(serde_json::json!({ "startedAt": "2026-01-01T00:00:00Z" }));
        let overdue = |run, now: &str| is_overdue(run, now.parse().unwrap());
        assert!(!overdue(&begun, "2026-01-01T01:01:00Z") && !overdue(&begun, "2025-01-01T00:00:00Z"));
        assert!(overdue(&begun, "2026-01-01T01:01:01Z"));
        assert!(
            !overdue(&run(serde_json::json!({})), "2027-01-01T00:00:00Z"),
            "it did not begin"
        );
    }

    #[test]
    fn a_run_that_never_began_says_what_kept_it_from_beginning() {
        let why = |edit: &dyn Fn(&mut Facts)| {
            let mut facts = facts_of_a_new_stack();
            facts.inputs = Inputs::Unresolved;
            edit(&mut facts);
            let why = withheld(&facts);
            format!("{}: {}", why.reason, why.message)
        };
        let failed = |f: &mut Facts| {
            f.inputs = Inputs::Failed {
                reason: "VarsGenerationFailed",
                message: "cannot read Secret login".into(),
            };
        };
        insta::assert_snapshot!([
            why(&|f| f.suspended = true),
            why(&|f| f.refused = Some(Refused { reason: "InvalidToolVersion", text: "spec.tool.version: no version".into() })),
            why(&failed),
            why(&|f| f.deleting = true),
            why(&|f| { f.deleting = true; failed(f); }),
            why(&|_| ()),
        ].join("\n"), @"
        Suspended: the object was suspended before it began
        InvalidToolVersion: the spec was changed before it began to what cannot be carried out: spec.tool.version: no version
        InputsUnknown: its inputs could no longer be had before it began: cannot read Secret login
        Deleted: the object was deleted before it began
        InputsUnknown: its inputs could no longer be had before it began: cannot read Secret login
        InputsUnknown: its source was gone before it began
        ");
    }
}
