//! The watches of the Jobs and pods of runs: the state of each pod, and which runs have changed.

use std::collections::HashMap;
use std::sync::Mutex;

use futures::StreamExt as _;
use futures::future::join;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_runtime::sync::lock;
use sluice_runtime::watch::log_interruption;
use tokio::sync::mpsc::UnboundedSender;

use super::super::RunRef;
use super::manifest::JOB_NAME_LABEL;
use super::runner_pod::{PodState, finished, run_uid};
use crate::run::api_in;

/// The states of the pods of runs, as the watch has seen them.
#[derive(Default)]
pub(super) struct RunnerPods(Mutex<PodIndex>);

/// The states of pods by run and uid of the run: a deleted run may have had the same name.
type PodStates = HashMap<(RunRef, String), PodState>;

#[derive(Default)]
struct PodIndex {
    pods: PodStates,
    /// The entries of a list in progress.
    listed: PodStates,
}

impl RunnerPods {
    /// Returns the state of the pod of a run; `None`: there is none, or the watch has not seen it.
    pub(super) fn state(&self, run: &RunRef, uid: &str) -> Option<PodState> {
        let key = (run.clone(), uid.to_owned());
        lock(&self.0).pods.get(&key).cloned()
    }

    /// Applies an event. Returns the run if its stack should be reconciled.
    fn apply(&self, event: Event<Pod>) -> Option<RunRef> {
        let mut index = lock(&self.0);
        match event {
            Event::Init => index.listed.clear(),
            Event::InitApply(pod) => {
                index.listed.insert(key_of(&pod)?, PodState::of(&pod));
            }
            Event::InitDone => index.pods = std::mem::take(&mut index.listed),
            Event::Apply(pod) => {
                let (key, state) = (key_of(&pod)?, PodState::of(&pod));
                let run = key.0.clone();
                let previous = index.pods.insert(key, state.clone());
                let is_news = match &state {
                    PodState::Waiting(Some(_)) | PodState::Ended(_) => previous.as_ref() != Some(&state),
                    // It has got what it waited for, and may lack something else next.
                    PodState::Waiting(None) => matches!(previous, Some(PodState::Waiting(Some(_)))),
                    PodState::Running => false,
                };
                return is_news.then_some(run);
            }
            Event::Delete(pod) => {
                let key = key_of(&pod)?;
                index.pods.remove(&key);
                return Some(key.0);
            }
        }
        None
    }
}

/// Returns the run of a pod, whose Job has the same name, and the uid of the run.
fn key_of(pod: &Pod) -> Option<(RunRef, String)> {
    let run = RunRef {
        namespace: pod.namespace()?,
        name: pod.labels().get(JOB_NAME_LABEL)?.clone(),
    };
    Some((run, run_uid(pod).to_owned()))
}

/// Watches until the receiver is closed. Sends each run whose pod waits for something or ends, and whose Job ends or is deleted.
pub(super) async fn watch(
    client: &Client,
    namespace: Option<&str>,
    pods: &RunnerPods,
    changed: &UnboundedSender<RunRef>,
) {
    let send = |run: Option<RunRef>| {
        // Without a receiver, the controller is stopping.
        drop(run.map(|run| changed.send(run)));
    };
    let of_pods = each_event(api_in::<Pod>(client, namespace), |event| send(pods.apply(event)));
    let of_jobs = each_event(api_in::<Job>(client, namespace), |event| send(ended_job(event)));
    join(of_pods, of_jobs).await;
}

/// Calls `handle` with each event of the objects with a stack's label.
async fn each_event<K>(api: Api<K>, handle: impl Fn(Event<K>))
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let of_runs = watcher::Config::default().labels(TERRAFORM_LABEL);
    let mut events = std::pin::pin!(watcher(api, of_runs).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => handle(event),
            Err(error) => log_interruption::<K>(&error),
        }
    }
}

/// Returns the run of a Job that has ended or is deleted.
fn ended_job(event: Event<Job>) -> Option<RunRef> {
    let job = match event {
        Event::Apply(job) | Event::InitApply(job) if finished(&job).is_some() => job,
        Event::Delete(job) => job,
        Event::Apply(_) | Event::Init | Event::InitApply(_) | Event::InitDone => return None,
    };
    Some(RunRef {
        namespace: job.namespace()?,
        name: job.name_any(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_api::annotation::RUN_UID;

    use super::*;

    fn pod(phase: &str) -> Pod {
        let labels = json!({ JOB_NAME_LABEL: "net-1" });
        serde_json::from_value(
            json!({ "metadata": { "namespace": "team", "name": "net-1-x", "labels": labels, "annotations": { RUN_UID: "u" } },
            "status": { "phase": phase } }),
        )
        .unwrap()
    }

    fn unscheduled() -> Pod {
        let mut pod = pod("Pending");
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
        let status = json!({ "phase": "Pending", "conditions": [condition] });
        pod.status = Some(serde_json::from_value(status).unwrap());
        pod
    }

    #[test]
    fn each_pod_is_indexed_until_it_is_deleted() {
        let pods = RunnerPods::default();
        let run = key_of(&pod("Pending")).unwrap().0;
        assert_eq!(
            pods.apply(Event::Apply(pod("Pending"))),
            None,
            "it waits for nothing"
        );
        assert_eq!(pods.state(&run, "u"), Some(PodState::Waiting(None)));
        assert_eq!(
            pods.state(&run, "old"),
            None,
            "the pod is not that of a deleted namesake"
        );
        assert_eq!(
            pods.apply(Event::Apply(pod("Running"))),
            None,
            "its runner reports"
        );
        assert_eq!(pods.state(&run, "u"), Some(PodState::Running));
        assert_eq!(pods.apply(Event::Apply(pod("Failed"))), Some(run.clone()));
        assert_eq!(pods.apply(Event::Apply(pod("Failed"))), None, "nothing is new");
        assert_eq!(pods.apply(Event::Delete(pod("Failed"))), Some(run.clone()));
        assert_eq!(pods.state(&run, "u"), None);
        pods.apply(Event::Apply(unscheduled()));
        assert_eq!(
            pods.apply(Event::Apply(pod("Pending"))),
            Some(run.clone()),
            "it has a node now"
        );
        assert_eq!(pods.apply(Event::Apply(pod("Pending"))), None, "nothing is new");
        // A list after a gap shows what was deleted meanwhile.
        pods.apply(Event::Apply(pod("Running")));
        pods.apply(Event::Init);
        assert_eq!(
            pods.state(&run, "u"),
            Some(PodState::Running),
            "the list is not complete"
        );
        pods.apply(Event::InitDone);
        assert_eq!(pods.state(&run, "u"), None);
    }
}
