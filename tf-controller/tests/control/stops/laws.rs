//! What holds at every moment: nothing is applied that nobody allowed, what has ended stays ended, one run works at a time.

use crate::world::NAMESPACE;
use flate2::read::GzDecoder;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::ListParams,
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::Value;
use sluice_api::run::{Phase, TerraformRun, Trigger};
use sluice_harness::trial::Trial;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Held {
    auto: bool,
    approved: BTreeSet<String>,
    destroy: bool,
    dies_after: BTreeSet<i32>,
}

/// What people have allowed so far.
#[derive(Clone)]
pub(crate) struct Laws {
    client: Client,
    held: Arc<Mutex<Held>>,
}

impl Laws {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            held: Arc::default(),
        }
    }

    /// Nobody is asked about plans.
    pub(crate) fn allow_all(&self) {
        self.held.lock().unwrap().auto = true;
    }

    /// A person approves this plan.
    pub(crate) fn approve(&self, plan: &str) {
        self.held.lock().unwrap().approved.insert(plan.to_owned());
    }

    /// A person asks for a destroy.
    pub(crate) fn ask_to_destroy(&self) {
        self.held.lock().unwrap().destroy = true;
    }

    /// The runner of this command is killed when the command has ended.
    pub(super) fn dies_after(&self, command: i32) {
        self.held.lock().unwrap().dies_after.insert(command);
    }

    pub(super) fn is_to_die_after(&self, command: i32) -> bool {
        self.held.lock().unwrap().dies_after.remove(&command)
    }

    /// Whether the apply that this runner begins was allowed.
    pub(super) async fn may_apply(&self, runner: i32) -> Result<(), String> {
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
        let held = self.held.lock().unwrap();
        if run.status.as_ref().is_none_or(|status| !status.attempted_apply) {
            return Err(format!("{name} applies before that is on record"));
        }
        if run.spec.destroy && !held.destroy {
            return Err(format!("{name} destroys, and nobody asked for it"));
        }
        let plan = run.spec.plan.as_ref().map(|plan| plan.id.clone());
        let approved = plan.is_some_and(|plan| held.approved.contains(&plan));
        if held.auto || approved || run.spec.trigger == Trigger::Deletion {
            Ok(())
        } else {
            Err(format!("{name} applies what nobody approved"))
        }
    }
}

impl Laws {
    /// What an apply made whose machine stopped before it could write its state is nobody's: a person takes it away, since no
    /// tool can know it. Called only where the machine stopped during an apply: any other such thing is a difference in the end.
    pub(super) async fn sweep_orphans(&self, trial: &Trial) {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let params = ListParams::default().labels("tfstate=true");
        let mut known = BTreeSet::new();
        for secret in api.list(&params).await.unwrap().items {
            // One that was made and not yet written has none.
            let state = secret.data.and_then(|mut data| data.remove("tfstate"));
            let Some(bytes) = state else { continue };
            let state: Value = serde_json::from_reader(GzDecoder::new(&bytes.0[..])).unwrap();
            known.extend(names(&state));
        }
        for thing in trial.things().unwrap() {
            if !known.contains(&thing) {
                eprintln!("{thing} was made by an apply whose machine stopped: it is taken away by hand");
                trial.lose(&thing).unwrap();
            }
        }
    }
}

/// The names of the things in a state.
fn names(state: &Value) -> Vec<String> {
    let resources = state["resources"].as_array().into_iter().flatten();
    let instances = resources.flat_map(|resource| resource["instances"].as_array().into_iter().flatten());
    let name = |instance: &Value| instance["attributes"]["name"].as_str().map(str::to_owned);
    instances.filter_map(name).collect()
}

/// Looks at every version of every run, for as long as it is polled, and tells what is broken. A version that it did not see
/// could have broken a law, so a watch that fails is told as well.
pub(crate) async fn watch(client: Client, broken: impl Fn(String)) {
    let api: Api<TerraformRun> = Api::namespaced(client, NAMESPACE);
    let mut versions = watcher(api, watcher::Config::default()).touched_objects().boxed();
    let mut known: BTreeMap<String, (String, Phase)> = BTreeMap::new();
    let why = loop {
        match versions.try_next().await {
            Ok(Some(run)) => see(&run, &mut known, &broken),
            Ok(None) => break "it ended".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    broken(format!("nobody watches the laws any more: {why}"));
}

/// Looks at one version of a run.
fn see(run: &TerraformRun, known: &mut BTreeMap<String, (String, Phase)>, broken: impl Fn(String)) {
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
        broken(format!("{name} had ended as {before:?} and is {phase:?}"));
    }
    known.insert(name.clone(), (run.spec.terraform.uid.clone(), phase));
    let works = |phase: Phase| !phase.is_final() && phase != Phase::Pending;
    let other = known
        .iter()
        .find(|(other, (uid, phase))| **other != name && *uid == run.spec.terraform.uid && works(*phase));
    if let Some((other, _)) = other.filter(|_| works(phase)) {
        broken(format!("{name} and {other} work at once"));
    }
}

#[tokio::test]
async fn a_watch_of_the_laws_that_fails_is_told() {
    let away = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is there"))
    });
    let told = Mutex::new(Vec::new());
    let watching = watch(Client::new(away, NAMESPACE), |law| {
        told.lock().unwrap().push(law);
    });
    tokio::time::timeout(crate::world::DEADLINE, watching)
        .await
        .unwrap();
    let told = told.into_inner().unwrap();
    assert!(
        told.len() == 1 && told[0].starts_with("nobody watches the laws any more"),
        "{told:?}"
    );
}
