//! Invariants: only approved plans are applied, final phases do not change, one run is active at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use flate2::read::GzDecoder;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use sluice_api::run::{Phase, TerraformRun, Trigger};
use sluice_harness::trial::TrialProvider;

use crate::environment::NAMESPACE;

#[derive(Default)]
struct State {
    auto: bool,
    approved: BTreeSet<String>,
    destroy: bool,
    kill_after: BTreeSet<i32>,
}

/// The approvals so far.
#[derive(Clone)]
pub(crate) struct Invariants {
    client: Client,
    state: Arc<Mutex<State>>,
}

impl Invariants {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            state: Arc::default(),
        }
    }

    /// Plans need no approval.
    pub(crate) fn allow_all(&self) {
        self.state.lock().unwrap().auto = true;
    }

    /// Approves this plan.
    pub(crate) fn approve(&self, plan: &str) {
        self.state.lock().unwrap().approved.insert(plan.to_owned());
    }

    /// Requests a destroy.
    pub(crate) fn request_destroy(&self) {
        self.state.lock().unwrap().destroy = true;
    }

    /// The runner of this command is killed when the command has ended.
    pub(super) fn kill_after(&self, command: i32) {
        self.state.lock().unwrap().kill_after.insert(command);
    }

    pub(super) fn is_killed_after(&self, command: i32) -> bool {
        self.state.lock().unwrap().kill_after.remove(&command)
    }

    /// Returns an error if the apply that this runner starts was not approved.
    pub(super) async fn check_apply(&self, runner: i32) -> Result<(), String> {
        let api: Api<TerraformRun> = Api::namespaced(self.client.clone(), NAMESPACE);
        let runs = api.list(&ListParams::default()).await.unwrap().items;
        let mine = |run: &&TerraformRun| {
            let claim = run.status.as_ref().and_then(|status| status.claim.as_ref());
            claim.is_some_and(|claim| claim.process.ends_with(&format!(":{runner}")))
        };
        let run = runs
            .iter()
            .find(mine)
            .ok_or_else(|| format!("process {runner} applies without a run"))?;
        let name = run.name_any();
        let state = self.state.lock().unwrap();
        if run.status.as_ref().is_none_or(|status| !status.attempted_apply) {
            return Err(format!("{name} applies before the apply is recorded"));
        }
        if run.spec.destroy && !state.destroy {
            return Err(format!("{name} destroys without a request"));
        }
        let plan = run.spec.plan.as_ref().map(|plan| plan.id.clone());
        let approved = plan.is_some_and(|plan| state.approved.contains(&plan));
        if state.auto || approved || run.spec.trigger == Trigger::Deletion {
            Ok(())
        } else {
            Err(format!("{name} applies without an approval"))
        }
    }
}

impl Invariants {
    /// Removes resources of an apply whose machine stopped before it wrote its state, as a user would: no tool can know them. Called
    /// only in this case; otherwise such a resource is a difference in the outcome.
    pub(super) async fn remove_orphans(&self, trial: &TrialProvider) {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let params = ListParams::default().labels("tfstate=true");
        let mut known = BTreeSet::new();
        for secret in api.list(&params).await.unwrap().items {
            // A resource that was created but not yet written has no content.
            let state = secret.data.and_then(|mut data| data.remove("tfstate"));
            let Some(bytes) = state else { continue };
            let state: Value = serde_json::from_reader(GzDecoder::new(&bytes.0[..])).unwrap();
            known.extend(names(&state));
        }
        for thing in trial.resources().unwrap() {
            if !known.contains(&thing) {
                eprintln!("{thing} was created by an apply whose machine stopped: removing it");
                trial.delete_resource(&thing).unwrap();
            }
        }
    }
}

/// Returns the names of the resources in a state.
fn names(state: &Value) -> Vec<String> {
    let resources = state["resources"].as_array().into_iter().flatten();
    let instances = resources.flat_map(|resource| resource["instances"].as_array().into_iter().flatten());
    let name = |instance: &Value| instance["attributes"]["name"].as_str().map(str::to_owned);
    instances.filter_map(name).collect()
}

/// Checks every version of every run while it is polled, and reports violations. A failing watch is reported as well, since it could
/// miss a violation.
pub(crate) async fn watch(client: Client, report_violation: impl Fn(String)) {
    let api: Api<TerraformRun> = Api::namespaced(client, NAMESPACE);
    let mut versions = watcher(api, watcher::Config::default()).touched_objects().boxed();
    let mut known: BTreeMap<String, (String, Phase)> = BTreeMap::new();
    let why = loop {
        match versions.try_next().await {
            Ok(Some(run)) => check_run(&run, &mut known, &report_violation),
            Ok(None) => break "it ended".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    report_violation(format!("the watch of the invariants ended: {why}"));
}

/// Checks one version of a run.
fn check_run(
    run: &TerraformRun,
    known: &mut BTreeMap<String, (String, Phase)>,
    report_violation: impl Fn(String),
) {
    if run.metadata.deletion_timestamp.is_some() {
        return;
    }
    let (name, phase) = (
        run.name_any(),
        run.status.as_ref().map_or(Phase::Pending, |s| s.phase),
    );
    if let Some((_, before)) = known.get(&name)
        && before.is_final()
        && *before != phase
    {
        report_violation(format!("{name} was {before:?} and is {phase:?}"));
    }
    known.insert(name.clone(), (run.spec.terraform.uid.clone(), phase));
    let works = |phase: Phase| !phase.is_final() && phase != Phase::Pending;
    let other = known
        .iter()
        .find(|(other, (uid, phase))| **other != name && *uid == run.spec.terraform.uid && works(*phase));
    if let Some((other, _)) = other.filter(|_| works(phase)) {
        report_violation(format!("{name} and {other} are active at the same time"));
    }
}

#[tokio::test]
async fn a_failing_watch_of_the_invariants_is_reported() {
    let away = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("not connected"))
    });
    let reports = Mutex::new(Vec::new());
    let watching = watch(Client::new(away, NAMESPACE), |law| {
        reports.lock().unwrap().push(law);
    });
    tokio::time::timeout(crate::environment::TIMEOUT, watching)
        .await
        .unwrap();
    let reports = reports.into_inner().unwrap();
    assert!(
        reports.len() == 1 && reports[0].starts_with("the watch of the invariants ended"),
        "{reports:?}"
    );
}
