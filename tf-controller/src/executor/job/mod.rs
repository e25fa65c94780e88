//! Runs as Jobs of Kubernetes: one pod for each run, in the namespace of its stack and under the stack's account.
//!
//! The Job has the name of the run and belongs to it, so it goes with it. It never retries: the controller decides what follows a
//! failed run. The pod reads the bundle of the run from its Secrets, and its end is a fact that the API knows.

mod init_container;
mod manifest;
mod pending;
mod resources;
mod runner_pod;
mod variables;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use manifest::{JOB_NAME_LABEL, job};
use pending::pending_reason;
use runner_pod::{PodState, liveness, run_uid, scheduled_at};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::shutdown::Token;
use tokio::sync::mpsc;
use watch::RunnerPods;

pub(crate) use pending::{is_without_account, waits_for_change};

use super::{
    Executor, ExecutorError, IsGone, Launch, Liveness, PendingReason, RunRef, RunnerRef,
    is_of_deleted_namesake,
};
use crate::memory::MemoryRequest;

/// How long a Job or a pod may make no progress before its events are read.
const EVENT_DELAY: Duration = Duration::from_secs(2);
/// Maximum number of events of one object that are read.
const MAX_EVENTS: u32 = 50;

/// The options of runner Jobs.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The image of stacks without an image of their own.
    pub image: String,
    /// Leading arguments of the runner.
    pub arguments: Vec<String>,
    /// Variables that the controller passes on, such as proxies.
    pub environment: BTreeMap<String, String>,
    /// How long a finished Job stays with the log of its pod.
    pub ttl: Duration,
    /// The memory request of pods whose template sets no memory.
    pub memory_request: MemoryRequest,
}

/// Runs as Jobs.
pub struct JobExecutor {
    client: Client,
    options: JobOptions,
    pods: Arc<RunnerPods>,
}

impl JobExecutor {
    /// Watches the Jobs and pods of runs in a namespace, or in all, until `stop`. The receiver yields each run whose pod waits for
    /// something or ends, and whose Job ends or is deleted.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: Option<&str>,
        options: JobOptions,
        stop: Token,
    ) -> (Self, mpsc::UnboundedReceiver<RunRef>) {
        let pods = Arc::<RunnerPods>::default();
        let (changed, receiver) = mpsc::unbounded_channel();
        tokio::spawn({
            let (client, namespace) = (client.clone(), namespace.map(str::to_owned));
            let pods = Arc::clone(&pods);
            async move {
                tokio::select! {
                    () = watch::watch(&client, namespace.as_deref(), &pods, &changed) => {}
                    () = stop.cancelled() => {}
                }
            }
        });
        let executor = Self {
            client,
            options,
            pods,
        };
        (executor, receiver)
    }

    async fn create(&self, launch: Launch<'_>) -> Result<(), ExecutorError> {
        let run = launch.run;
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &run.namespace().unwrap_or_default());
        let rejected = |text: String| ExecutorError::Rejected {
            run: run.name_any(),
            text,
        };
        let desired = job(&launch, &self.options);
        match jobs.create(&PostParams::default(), &desired).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let found = jobs.get_opt(&run.name_any()).await?;
                let foreign = found.filter(|found| found.owner_references() != desired.owner_references());
                match foreign {
                    // The run has no runner until that Job is collected; the next attempt starts it.
                    Some(found) if is_of_deleted_namesake(&found.metadata, run) => Ok(()),
                    Some(_) => Err(rejected(
                        "a Job of that name exists and does not belong to the run; delete it".to_owned(),
                    )),
                    None => Ok(()),
                }
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 413 | 422) => {
                Err(rejected(status.message.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn observe(&self, run: &RunRef, uid: &str) -> Result<Liveness, ExecutorError> {
        // The watch may lag: it proves that a runner was alive, never that it is gone.
        match self.pods.state(run, uid) {
            Some(PodState::Running) => return Ok(Liveness::Alive),
            Some(PodState::Waiting(Some(reason))) => return Ok(Liveness::Pending(Some(reason))),
            Some(PodState::Waiting(None) | PodState::Ended(_)) | None => {}
        }
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &run.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &run.namespace);
        // The Job first: its pods are there before it has ended.
        let mut job = jobs.get_opt(&run.name).await?;
        let of_run = ListParams::default().labels(&format!("{JOB_NAME_LABEL}={}", run.name));
        let mut pods = pods.list(&of_run).await?.items;
        // Those of a deleted run of this name are about to be collected. A pod of an earlier version names no run: it may be this one.
        job = job.filter(|job| is_owned_by(&job.metadata, uid));
        pods.retain(|pod| [uid, ""].contains(&run_uid(pod)));
        let found = liveness(job.as_ref(), &pods);
        if found != Liveness::Pending(None) {
            return Ok(found);
        }
        // Before the events, which are about the time before it.
        let now = Timestamp::now();
        let initializing = pods.iter().find_map(|pod| init_container::long_running(pod, now));
        if initializing.is_some() {
            return Ok(Liveness::Pending(initializing));
        }
        let stuck = pods
            .first()
            .map(|pod| &pod.metadata)
            .or_else(|| job.as_ref().map(|job| &job.metadata));
        Ok(Liveness::Pending(
            match stuck.filter(|object| is_older(object, EVENT_DELAY)) {
                Some(object) => {
                    let since = pods.first().and_then(scheduled_at);
                    self.newest_warning(&run.namespace, object, since).await?
                }
                None => None,
            },
        ))
    }

    /// Returns the newest warning about a Job that cannot create its pod, or about a pod that cannot start. Once the pod is scheduled,
    /// older warnings do not count: they say why it was not.
    async fn newest_warning(
        &self,
        namespace: &str,
        object: &ObjectMeta,
        since: Option<Timestamp>,
    ) -> Result<Option<PendingReason>, kube::Error> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let uid = object.uid.as_deref().unwrap_or_default();
        let of_object = ListParams::default()
            .fields(&format!("involvedObject.uid={uid},type=Warning"))
            .limit(MAX_EVENTS);
        let events = events.list(&of_object).await?.items;
        let newest = events
            .into_iter()
            .filter(|event| since.is_none_or(|since| last_seen(event) >= Some(since)))
            .max_by_key(last_seen);
        Ok(newest.map(|event| {
            pending_reason(
                event.reason.as_deref().unwrap_or_default(),
                event.message.as_deref(),
            )
        }))
    }

    async fn delete(&self, run: &RunRef) -> Result<(), ExecutorError> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &run.namespace);
        match jobs.delete(&run.name, &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns whether the run with this uid owns an object.
fn is_owned_by(object: &ObjectMeta, uid: &str) -> bool {
    let mut owners = object.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid)
}

/// Returns when an event was last seen. Events of the scheduler have only the other time.
fn last_seen(event: &Event) -> Option<Timestamp> {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

fn is_older(object: &ObjectMeta, age: Duration) -> bool {
    let created = object.creation_timestamp.as_ref();
    created.is_some_and(|created| Timestamp::now().duration_since(created.0).unsigned_abs() >= age)
}

impl Executor for JobExecutor {
    /// The pod reads it from Secrets: the environment and the arguments of a pod are readable by more users.
    fn passes_bundles(&self) -> bool {
        false
    }

    fn has_pods(&self) -> bool {
        true
    }

    fn start<'a>(&'a self, launch: Launch<'a>) -> BoxFuture<'a, Result<(), ExecutorError>> {
        self.create(launch).boxed()
    }

    fn cancel(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        async move { self.delete(&run).await }.boxed()
    }

    /// Only a process of another executor has a lock domain: it may still work after the executor was changed.
    fn liveness(&self, runner: RunnerRef) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        async move {
            if runner.lock_domain.is_some_and(|domain| !domain.is_empty()) {
                return Ok(Liveness::OtherLockDomain);
            }
            self.observe(&runner.run, &runner.run_uid).await
        }
        .boxed()
    }

    /// The garbage collector deletes the Job with its run.
    fn forget(&self, _run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn list_runs(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn forget_stack(&self, _stack: ObjectKey, _is_gone: IsGone) {}

    fn list_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Returns an executor whose cluster has these pods and events, and this Job.
    fn executor_with(job: Option<Value>, pods: Value, events: Value) -> JobExecutor {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path();
            let (code, body) = if path.ends_with("/pods") {
                (200, json!({ "metadata": {}, "items": pods }))
            } else if path.ends_with("/events") {
                (200, json!({ "metadata": {}, "items": events }))
            } else if let Some(job) = &job {
                (200, job.clone())
            } else {
                let status = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "" });
                (404, status)
            };
            let answer = http::Response::builder().status(code);
            let response = answer.body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, tower::BoxError>(response.unwrap()))
        });
        let options = JobOptions {
            image: "runner:1".into(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            ttl: Duration::from_hours(1),
            memory_request: MemoryRequest::Disabled,
        };
        JobExecutor {
            client: Client::new(service, "team"),
            options,
            pods: Arc::default(),
        }
    }

    fn executor(pods: Value, events: Value) -> JobExecutor {
        executor_with(None, pods, events)
    }

    async fn liveness_of(executor: &JobExecutor, lock_domain: Option<&str>) -> Liveness {
        let run = RunRef {
            namespace: "team".into(),
            name: "net-1".into(),
        };
        let runner = RunnerRef {
            run,
            run_uid: "new".into(),
            lock_domain: lock_domain.map(str::to_owned),
        };
        executor.liveness(runner).await.unwrap()
    }

    /// Returns the metadata of a pod of the run with this uid.
    fn pod_of(uid: &str) -> Value {
        json!({ "name": "net-1-x", "uid": "u", "creationTimestamp": "2026-11-26T10:00:00Z", "annotations": { "infra.sluice.dev/run-uid": uid } })
    }

    #[tokio::test]
    async fn a_scheduled_pod_does_not_wait_for_what_kept_it_from_a_node() {
        let pod = json!({ "metadata": pod_of("new"),
            "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "True",
                "lastTransitionTime": "2026-11-26T10:05:00Z" }] } });
        let event = |reason: &str, time: &str, value: &str| json!({ "metadata": { "name": reason }, "involvedObject": {}, "reason": reason, "message": "m", "type": "Warning", time: value });
        let unscheduled = event("FailedScheduling", "eventTime", "2026-11-26T10:04:00.000000Z");
        let before = executor(json!([pod]), json!([unscheduled]));
        assert_eq!(liveness_of(&before, None).await, Liveness::Pending(None));
        let mount = event("FailedMount", "lastTimestamp", "2026-11-26T10:06:00Z");
        let since = executor(json!([pod]), json!([mount, unscheduled]));
        let Liveness::Pending(Some(found)) = liveness_of(&since, None).await else {
            panic!("the mount is the reason");
        };
        assert_eq!(found.reason, "FailedMount");
    }

    #[tokio::test]
    async fn a_pod_waits_for_its_init_container_and_not_for_what_it_has_got() {
        let status = json!({ "name": "warm", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "running": { "startedAt": "2020-01-02T10:07:00Z" } } });
        let pod = json!({ "metadata": pod_of("new"), "spec": { "containers": [], "initContainers": [{ "name": "warm" }] },
            "status": { "phase": "Pending", "initContainerStatuses": [status] } });
        let mount = json!({ "metadata": { "name": "a" }, "involvedObject": {}, "reason": "FailedMount", "message": "m",
            "type": "Warning", "lastTimestamp": "2020-01-02T10:06:00Z" });
        let executor = executor(json!([pod]), json!([mount]));
        let Liveness::Pending(Some(found)) = liveness_of(&executor, None).await else {
            panic!("the init container is the reason");
        };
        assert_eq!(found.reason, "PodInitializing");
    }

    #[tokio::test]
    async fn a_process_is_not_gone_because_it_has_no_job() {
        let empty = executor(json!([]), json!([]));
        assert_eq!(liveness_of(&empty, None).await, Liveness::Gone);
        assert_eq!(liveness_of(&empty, Some("")).await, Liveness::Gone);
        assert_eq!(
            liveness_of(&empty, Some("vm:4711")).await,
            Liveness::OtherLockDomain
        );
    }

    #[tokio::test]
    async fn the_job_and_the_pod_of_a_deleted_namesake_do_not_count() {
        let owned = |uid: &str| {
            json!({ "metadata": { "name": "net-1", "ownerReferences": [{ "apiVersion": "infra.sluice.dev/v1alpha1",
            "kind": "TerraformRun", "name": "net-1", "uid": uid }] },
            "status": { "conditions": [{ "type": "Failed", "status": "True" }] } })
        };
        let pod = |uid: &str, phase: &str| json!([{ "metadata": pod_of(uid), "status": { "phase": phase } }]);
        let liveness = async |job_of: &str, pod_of: &str, phase: &str| {
            let executor = executor_with(Some(owned(job_of)), pod(pod_of, phase), json!([]));
            liveness_of(&executor, None).await
        };
        for phase in ["Pending", "Running", "Failed"] {
            assert_eq!(liveness("old", "old", phase).await, Liveness::Gone, "{phase}");
        }
        assert_eq!(liveness("old", "new", "Running").await, Liveness::Alive);
        assert_eq!(
            liveness("old", "", "Running").await,
            Liveness::Alive,
            "of an earlier version"
        );
        assert!(matches!(
            liveness("new", "old", "Running").await,
            Liveness::Ended(_)
        ));
    }
}
