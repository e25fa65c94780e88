//! The active run of a stack: whether it has changed, whether its runner is alive, and its end if the runner is gone.
//!
//! A runner writes a heartbeat every few seconds, and each write triggers a reconciliation of its stack. Such a reconciliation reads
//! only that run, or nothing if the watch has no newer version ([`check`]). A new phase of the run is reported together with the rest
//! of the last full reconciliation. Everything is read again once the run ends or the stack changes, and then [`supervise`] starts a
//! run that has no runner yet, and ends one whose runner is gone.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, ResourceExt};
use sluice_api::run::{Phase, TerraformRun, TerraformRunStatus};
use sluice_api::terraform::{Reason, Terraform};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use tokio::time::Instant;

use super::Context;
use super::dispatch::{DispatchError, end, restart};
use super::history::find_run;
use super::observe::{LiveStack, claimed_runs};
use super::report::phase;
use super::resolve::Resolved;
use crate::decide::{Facts, Inputs, MutationPoint, holds};
use crate::executor::{Liveness, RunRef};

/// The time that a runner has after its deadline to interrupt the CLI and to report.
const REPORT_GRACE: Duration = Duration::from_secs(60);

/// The result of the last full reconciliation, with the newest known state of the run.
pub(super) struct ActiveRun {
    /// The stack as last written.
    pub(super) live: LiveStack,
    /// The stack's runs.
    pub(super) runs: Vec<TerraformRun>,
    /// The name of the active run.
    pub(super) run: String,
}

impl ActiveRun {
    fn run(&self) -> Option<&TerraformRun> {
        find_run(&self.runs, &self.run)
    }
}

/// The active runs by stack.
#[derive(Default)]
pub(crate) struct ActiveRuns(Mutex<HashMap<ObjectKey, Arc<ActiveRun>>>);

impl ActiveRuns {
    /// Stores a run that was started, or that a runner has claimed.
    pub(super) fn insert(&self, active: ActiveRun) {
        let key = ObjectKey::of(&active.live.stack);
        self.all().insert(key, Arc::new(active));
    }

    /// Removes the stack's active run.
    pub(super) fn remove(&self, stack: &Terraform) {
        self.all().remove(&ObjectKey::of(stack));
    }

    /// Returns the stored state if it covers this version of the stack.
    fn get(&self, stack: &Terraform) -> Option<Arc<ActiveRun>> {
        let active = self.all().get(&ObjectKey::of(stack)).cloned();
        let version = stack.resource_version();
        active.filter(|active| version.is_some() && active.live.versions.contains(&version))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ObjectKey, Arc<ActiveRun>>> {
        lock(&self.0)
    }
}

/// The state of an active run since the last reconciliation.
pub(super) enum Lookup {
    /// It is alive and nothing has changed.
    Unchanged,
    /// It is alive and has changed: the last reconciliation with the newest version of the run.
    Changed(Box<ActiveRun>),
    /// Everything has to be read.
    Unknown,
}

/// Looks up the stack's active run.
pub(super) async fn check(stack: &Terraform, context: &Context) -> Result<Lookup, DispatchError> {
    let Some(active) = context.active_runs.get(stack) else {
        return Ok(Lookup::Unknown);
    };
    let Some(known) = active.run() else {
        return Ok(Lookup::Unknown);
    };
    let cached_version = context.run_owners.version(&ObjectKey::of(known));
    if cached_version.is_some() && cached_version == known.resource_version() {
        return Ok(if is_alive(known, context).await? {
            Lookup::Unchanged
        } else {
            Lookup::Unknown
        });
    }
    let api: Api<TerraformRun> = context.api_of(known);
    let Some(run) = api.get_opt(&known.name_any()).await? else {
        return Ok(Lookup::Unknown);
    };
    if phase(&run).is_final() || !is_alive(&run, context).await? {
        return Ok(Lookup::Unknown);
    }
    let is_new = fingerprint(&run) != fingerprint(known);
    if is_new && claimed_runs(std::slice::from_ref(&run)).next().is_none() {
        return Ok(Lookup::Unknown);
    }
    let name = run.name_any();
    let others = active.runs.iter().filter(|other| other.name_any() != name);
    let updated = ActiveRun {
        live: active.live.clone(),
        runs: others.cloned().chain([run]).collect(),
        run: name,
    };
    if is_new {
        return Ok(Lookup::Changed(Box::new(updated)));
    }
    context.active_runs.insert(updated);
    Ok(Lookup::Unchanged)
}

/// Hashes the run's status without its heartbeat.
fn fingerprint(run: &TerraformRun) -> u64 {
    let status = TerraformRunStatus {
        heartbeat_at: None,
        ..run.status.clone().unwrap_or_default()
    };
    let mut hash = DefaultHasher::new();
    (run.uid(), serde_json::to_string(&status).unwrap_or_default()).hash(&mut hash);
    hash.finish()
}

/// An active run as read last.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunState<'a> {
    /// Whether its process is alive.
    pub(super) alive: bool,
    /// Whether it has ended since the facts were read.
    pub(super) ended: bool,
    /// Whether a runner has claimed it.
    pub(super) claimed: bool,
    /// Digest of the inputs that it was created for.
    pub(super) created_for: &'a str,
    /// Digest of the current inputs; `None`: they are not available.
    pub(super) current: Option<&'a str>,
}

/// What to do with an active run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supervision {
    /// Wait for it.
    Wait,
    /// Mark it as lost: its process is gone.
    MarkLost,
    /// Start its runner: no runner has claimed it.
    Launch,
    /// End it: no runner has claimed it, and its inputs have changed.
    EndOutdated,
    /// End it: no runner has claimed it, and its inputs are not available.
    EndWithoutInputs,
}

/// Decides what to do with an active run. Pure.
pub(super) fn decide_supervision(run: RunState<'_>) -> Supervision {
    if holds(MutationPoint::ProcessAlive, run.alive) || run.ended {
        return Supervision::Wait;
    }
    if holds(MutationPoint::Claimed, run.claimed) {
        return Supervision::MarkLost;
    }
    match run.current {
        Some(current) if !holds(MutationPoint::InputsOutdated, current != run.created_for) => {
            Supervision::Launch
        }
        Some(_) => Supervision::EndOutdated,
        None => Supervision::EndWithoutInputs,
    }
}

/// Starts the active run if it was not started, and ends it as lost if its process is gone or sent no heartbeat for too long.
pub(super) async fn supervise(
    run: &TerraformRun,
    stack: &Terraform,
    resolved: Option<&Resolved>,
    facts: &Facts,
    context: &Context,
) -> Result<(), DispatchError> {
    let liveness = context
        .executor
        .liveness(RunRef::of(run), lock_domain(run))
        .await?;
    if is_known_alive(liveness, run, context) {
        return Ok(());
    }
    // Read the run, then check its liveness again: its last report may be newer than the first read, and another
    // controller may have started it meanwhile.
    let api: Api<TerraformRun> = context.api_of(run);
    let Some(live) = api.get_opt(&run.name_any()).await? else {
        return Ok(());
    };
    let status = live.status.clone().unwrap_or_default();
    let step = decide_supervision(RunState {
        alive: is_alive(&live, context).await?,
        ended: status.phase.is_final(),
        claimed: status.claim.is_some(),
        created_for: &live.spec.inputs_digest,
        current: resolved.map(|resolved| resolved.inputs.as_str()),
    });
    let (phase, reason, message) = match (step, resolved) {
        (Supervision::Launch, Some(resolved)) => {
            return restart(&live, stack, resolved, &facts.history, context).await;
        }
        (Supervision::Wait | Supervision::Launch, _) => return Ok(()),
        (Supervision::MarkLost, _) => (
            Phase::Lost,
            Reason::RunLost.as_str(),
            "the runner process ended without a report, or sent no heartbeat for too long".to_owned(),
        ),
        (Supervision::EndOutdated, _) => (
            Phase::Superseded,
            Reason::InputsChanged.as_str(),
            "its inputs changed before the run started".to_owned(),
        ),
        (Supervision::EndWithoutInputs, _) => {
            let why = not_started_reason(facts);
            (Phase::Superseded, why.reason, why.message)
        }
    };
    end(&live, phase, reason, &message, context).await
}

/// Why a run ends before it was started, without its inputs.
#[derive(Debug, PartialEq, Eq)]
struct NotStarted {
    reason: &'static str,
    message: String,
}

fn not_started_reason(facts: &Facts) -> NotStarted {
    let because = |reason, message: &str| NotStarted {
        reason,
        message: message.to_owned(),
    };
    if facts.suspended {
        return because("Suspended", "the object was suspended before the run started");
    }
    if let Some(field) = &facts.unsupported_field {
        let text = format!(
            "the spec changed to an unsupported value before the run started: {}",
            field.text
        );
        return because(field.reason, &text);
    }
    match &facts.inputs {
        Inputs::Failed { message, .. } => {
            let text = format!("its inputs became unavailable before the run started: {message}");
            because("InputsUnknown", &text)
        }
        _ if facts.deleting => because("Deleted", "the object was deleted before the run started"),
        Inputs::Unresolved | Inputs::Known(_) => {
            because("InputsUnknown", "its source was deleted before the run started")
        }
    }
}

/// Returns the lock domain of the runner; empty before it claims the run.
fn lock_domain(run: &TerraformRun) -> String {
    let claim = run.status.as_ref().and_then(|status| status.claim.as_ref());
    claim.map(|claim| claim.lock_domain.clone()).unwrap_or_default()
}

/// Returns whether the runner is alive, as far as visible from here.
pub(super) async fn is_alive(run: &TerraformRun, context: &Context) -> Result<bool, DispatchError> {
    let liveness = context
        .executor
        .liveness(RunRef::of(run), lock_domain(run))
        .await?;
    Ok(is_known_alive(liveness, run, context)
        || liveness == Liveness::OtherLockDomain && has_recent_heartbeat(run, context))
}

/// Returns whether the place of the runner shows that it is alive.
fn is_known_alive(liveness: Liveness, run: &TerraformRun, context: &Context) -> bool {
    match liveness {
        Liveness::Alive => true,
        Liveness::Locked => !is_hung(run, context),
        Liveness::Gone | Liveness::OtherLockDomain => false,
    }
}

/// Returns whether the run still sends heartbeats.
fn has_recent_heartbeat(run: &TerraformRun, context: &Context) -> bool {
    let heartbeat = run
        .status
        .as_ref()
        .and_then(|status| status.heartbeat_at.as_ref());
    let heartbeat = heartbeat.map(|time| time.0);
    context
        .heartbeats
        .is_alive(&RunRef::of(run), heartbeat, Instant::now())
}

/// Returns whether a run that holds its process lock is given up: its runner should have ended it at the deadline and
/// sends no heartbeats. The working directory stays locked while any process of it is alive.
fn is_hung(run: &TerraformRun, context: &Context) -> bool {
    is_overdue(run, context.clock.now()) && !has_recent_heartbeat(run, context)
}

/// Returns whether the run should have ended by now. Pure.
fn is_overdue(run: &TerraformRun, now: Timestamp) -> bool {
    let started = run.status.as_ref().and_then(|status| status.started_at.as_ref());
    let allowed = run.spec.deadline.to_duration().saturating_add(REPORT_GRACE);
    let passed = |started: &Time| Duration::try_from(now.duration_since(started.0)).unwrap_or_default();
    started.is_some_and(|started| passed(started) > allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{UnsupportedField, facts_of_a_new_stack};

    #[test]
    fn a_run_is_overdue_after_its_deadline_and_the_grace() {
        let run = |status: serde_json::Value| -> TerraformRun {
            let spec = serde_json::json!({ "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u", "generation": 1 } });
            serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": spec, "status": status }))
                .unwrap()
        };
        let active = run(serde_json::json!({ "startedAt": "2026-01-01T00:00:00Z" }));
        let overdue = |run, now: &str| is_overdue(run, now.parse().unwrap());
        assert!(!overdue(&active, "2026-01-01T01:01:00Z") && !overdue(&active, "2025-01-01T00:00:00Z"));
        assert!(overdue(&active, "2026-01-01T01:01:01Z"));
        assert!(
            !overdue(&run(serde_json::json!({})), "2027-01-01T00:00:00Z"),
            "it did not start"
        );
    }

    #[test]
    fn a_run_that_never_started_reports_why() {
        let why = |edit: &dyn Fn(&mut Facts)| {
            let mut facts = facts_of_a_new_stack();
            facts.inputs = Inputs::Unresolved;
            edit(&mut facts);
            let why = not_started_reason(&facts);
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
            why(&|f| f.unsupported_field = Some(UnsupportedField { reason: "InvalidToolVersion", text: "spec.tool.version: no version".into() })),
            why(&failed),
            why(&|f| f.deleting = true),
            why(&|f| { f.deleting = true; failed(f); }),
            why(&|_| ()),
        ].join("\n"), @"
        Suspended: the object was suspended before the run started
        InvalidToolVersion: the spec changed to an unsupported value before the run started: spec.tool.version: no version
        InputsUnknown: its inputs became unavailable before the run started: cannot read Secret login
        Deleted: the object was deleted before the run started
        InputsUnknown: its inputs became unavailable before the run started: cannot read Secret login
        InputsUnknown: its source was deleted before the run started
        ");
    }
}
