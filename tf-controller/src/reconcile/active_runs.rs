//! Stacks with an active run. A runner writes a heartbeat every few seconds, and each write triggers a reconciliation of its stack.
//! Such a reconciliation reads only that run, or nothing if the watch has no newer version. A new phase of the run is reported
//! together with the rest of the last full reconciliation. Everything is read again once the run ends or the stack changes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use kube::{Api, ResourceExt};
use sluice_api::run::{TerraformRun, TerraformRunStatus};
use sluice_api::terraform::Terraform;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;

use super::dispatch::DispatchError;
use super::history::find_run;
use super::observe::{LiveStack, claimed_runs};
use super::report::phase;
use super::{Context, supervise};

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
        let is_alive = supervise::is_alive(known, context).await?;
        return Ok(if is_alive {
            Lookup::Unchanged
        } else {
            Lookup::Unknown
        });
    }
    let api: Api<TerraformRun> = context.api_of(known);
    let Some(run) = api.get_opt(&known.name_any()).await? else {
        return Ok(Lookup::Unknown);
    };
    if phase(&run).is_final() || !supervise::is_alive(&run, context).await? {
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
