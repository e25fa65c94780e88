//! The active run of a stack: whether it has changed since the last reconciliation.
//!
//! A runner writes a heartbeat every few seconds, and each write triggers a reconciliation of its stack. Such a reconciliation reads
//! only that run, or nothing if the watch has no newer version ([`check`]). A new phase of the run is reported together with the rest
//! of the last full reconciliation. Everything is read again once the run ends or the stack changes, or when the run has to be
//! supervised ([`super::supervision`]).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, ResourceExt};
use sluice_api::run::{TerraformRun, TerraformRunStatus};
use sluice_api::terraform::Terraform;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;

use super::Context;
use super::dispatch::DispatchError;
use super::history::find_run;
use super::observe::{LiveStack, claimed_runs};
use super::report::phase;
use super::supervision::needs_supervision;

/// How often an active run is checked when no change of it is observed.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How often a run is checked that no runner has claimed: a new one, and one whose pod says nothing about what it waits for.
const START_POLL_INTERVAL: Duration = Duration::from_secs(3);

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
    /// It is alive and nothing has changed; how soon to check it again.
    Unchanged(Duration),
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
        return Ok(if needs_supervision(known, stack, context).await? {
            Lookup::Unknown
        } else {
            Lookup::Unchanged(poll_interval(known, context.clock.now()))
        });
    }
    let api: Api<TerraformRun> = context.api_of(known);
    let Some(run) = api.get_opt(&known.name_any()).await? else {
        return Ok(Lookup::Unknown);
    };
    if phase(&run).is_final() || needs_supervision(&run, stack, context).await? {
        return Ok(Lookup::Unknown);
    }
    let is_new = fingerprint(&run) != fingerprint(known);
    if is_new && claimed_runs(std::slice::from_ref(&run)).next().is_none() {
        return Ok(Lookup::Unknown);
    }
    let (name, poll) = (run.name_any(), poll_interval(&run, context.clock.now()));
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
    Ok(Lookup::Unchanged(poll))
}

/// Returns how soon a run is checked again without a change. One that is not claimed may wait for something without a watch event, such as
/// a quota, or a Secret that its pod mounts once it has a node: that is reported within 5 s.
pub(super) fn poll_interval(run: &TerraformRun, now: Timestamp) -> Duration {
    let status = run.status.as_ref();
    let is_claimed = status.is_some_and(|status| status.claim.is_some());
    let says_why = status.is_some_and(|status| !status.reason.is_empty());
    let age = run
        .creation_timestamp()
        .map(|created| now.duration_since(created.0).unsigned_abs());
    let is_new = age.is_some_and(|age| age < POLL_INTERVAL);
    if !is_claimed && (is_new || !says_why) {
        START_POLL_INTERVAL
    } else {
        POLL_INTERVAL
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_checked_often_until_it_is_claimed_or_says_why_it_waits() {
        let run = |status: serde_json::Value| -> TerraformRun {
            let spec = json!({ "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u", "generation": 1 } });
            let metadata = json!({ "creationTimestamp": "2026-01-01T00:00:00Z" });
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
        };
        let interval = |status, now: &str| poll_interval(&run(status), now.parse().unwrap());
        assert_eq!(interval(json!({}), "2026-01-01T00:00:09Z"), START_POLL_INTERVAL);
        let later = "2026-01-01T00:00:10Z";
        assert_eq!(interval(json!({}), later), START_POLL_INTERVAL);
        let waits = json!({ "reason": "Unschedulable" });
        assert_eq!(
            interval(waits.clone(), "2026-01-01T00:00:09Z"),
            START_POLL_INTERVAL
        );
        assert_eq!(interval(waits, later), POLL_INTERVAL);
        let claimed = json!({ "claim": { "holder": "h" } });
        assert_eq!(interval(claimed, "2026-01-01T00:00:01Z"), POLL_INTERVAL);
    }
}
