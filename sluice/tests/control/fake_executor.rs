//! Executors of tests. [`FakeExecutor`] starts no processes: it records runs and reports their success at once, for tests of scheduling.
//! [`StoredBundles`] starts real processes that read their bundles from Secrets, as runners on another machine have to.
//! [`EvictedApplies`] reports the first applies of stored plans as evicted pods, and starts real processes for all other runs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_api::run::{Action, TerraformRun};
use sluice_api::terraform::Reason;
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_controller::executor::{
    Executor, ExecutorError, IsGone, Launch, Liveness, ProcessExecutor, RunRef, RunnerEnd, RunnerRef,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A fake executor.
#[derive(Clone)]
pub(crate) struct FakeExecutor(Arc<Inner>);

struct Inner {
    client: Client,
    started: Mutex<Vec<String>>,
    most: Mutex<(usize, usize)>,
    forgotten: Mutex<Vec<String>>,
    /// The next run is claimed at this time and never reports again.
    hangs: Mutex<Option<Timestamp>>,
}

impl FakeExecutor {
    pub(crate) fn new(client: &Client) -> (Self, UnboundedReceiver<RunRef>) {
        let (ended, receiver) = unbounded_channel();
        // Keeps the channel open: runs never end without a report.
        std::mem::forget(ended);
        let inner = Inner {
            client: client.clone(),
            started: Mutex::default(),
            most: Mutex::default(),
            forgotten: Mutex::default(),
            hangs: Mutex::default(),
        };
        (Self(Arc::new(inner)), receiver)
    }

    /// Returns the runs started since the last call, sorted; panics if a run was started twice.
    pub(crate) fn started_runs(&self) -> Vec<String> {
        let started = std::mem::take(&mut *self.0.started.lock().unwrap());
        let unique: BTreeSet<_> = started.iter().cloned().collect();
        assert_eq!(
            unique.len(),
            started.len(),
            "a run was started twice: {started:?}"
        );
        unique.into_iter().collect()
    }

    /// Makes the next run hang: it was claimed at this time and does nothing.
    pub(crate) fn hang(&self, since: Timestamp) {
        *self.0.hangs.lock().unwrap() = Some(since);
    }

    /// Returns the maximum number of concurrent runs.
    pub(crate) fn max_concurrent(&self) -> usize {
        self.0.most.lock().unwrap().1
    }

    /// Returns the forgotten runs in the order of the calls.
    pub(crate) fn removed_runs(&self) -> Vec<String> {
        self.0.forgotten.lock().unwrap().clone()
    }

    async fn carry_out(&self, run: RunRef) {
        {
            let mut most = self.0.most.lock().unwrap();
            most.0 += 1;
            most.1 = most.1.max(most.0);
        }
        // Simulated work, long enough for other runs to overlap.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let api: Api<TerraformRun> = Api::namespaced(self.0.client.clone(), &run.namespace);
        let hangs = self.0.hangs.lock().unwrap().take();
        if let Some(since) = hangs {
            let status = json!({ "status": { "phase": "Applying", "claim": { "holder": "double" },
                "startedAt": Time(since), "heartbeatAt": MicroTime(since) } });
            api.patch_status(&run.name, &PatchParams::default(), &Patch::Merge(status))
                .await
                .unwrap();
            return;
        }
        let status = json!({ "status": { "phase": "Succeeded", "reason": "TerraformAppliedSucceed", "hasChanges": true,
            "attemptedApply": true, "planId": format!("plan-main-{}", run.name), "claim": { "holder": "double" },
            "finishedAt": Timestamp::now() } });
        self.0.most.lock().unwrap().0 -= 1;
        api.patch_status(&run.name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }
}

impl Executor for FakeExecutor {
    fn passes_bundles(&self) -> bool {
        false
    }

    fn start<'a>(&'a self, launch: Launch<'a>) -> BoxFuture<'a, Result<(), ExecutorError>> {
        let run = RunRef::of(launch.run);
        self.0.started.lock().unwrap().push(run.name.clone());
        let this = self.clone();
        Box::pin(async move {
            tokio::spawn(async move { this.carry_out(run).await });
            Ok(())
        })
    }

    fn cancel(&self, _: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        Box::pin(async { Ok(()) })
    }

    fn liveness(&self, _: RunnerRef) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        Box::pin(async { Ok(Liveness::Locked) })
    }

    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.0.forgotten.lock().unwrap().push(run.name);
        Box::pin(async { Ok(()) })
    }

    fn list_runs(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn forget_stack(&self, _: ObjectKey, _: IsGone) {}

    fn list_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// An executor of processes whose bundles the controller stores.
pub(crate) struct StoredBundles(pub(crate) Arc<ProcessExecutor>);

impl Executor for StoredBundles {
    fn passes_bundles(&self) -> bool {
        false
    }

    fn start<'a>(&'a self, launch: Launch<'a>) -> BoxFuture<'a, Result<(), ExecutorError>> {
        let run = RunRef::of(launch.run);
        assert!(launch.bundle.is_none(), "the bundle of {} is stored", run.name);
        self.0.start(launch)
    }

    fn cancel(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.0.cancel(run)
    }

    fn liveness(&self, runner: RunnerRef) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        self.0.liveness(runner)
    }

    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.0.forget(run)
    }

    fn list_runs(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        self.0.list_runs()
    }

    fn forget_stack(&self, stack: ObjectKey, is_gone: IsGone) {
        self.0.forget_stack(stack, is_gone);
    }

    fn list_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        self.0.list_stacks()
    }
}

/// An executor of processes beside pods: the pods of the first applies of stored plans are evicted before their runners claim the runs.
pub(crate) struct EvictedApplies {
    processes: Arc<ProcessExecutor>,
    /// How many applies are evicted.
    count: usize,
    evicted: Mutex<BTreeSet<String>>,
}

impl EvictedApplies {
    pub(crate) fn new(processes: Arc<ProcessExecutor>, count: usize) -> Self {
        Self {
            processes,
            count,
            evicted: Mutex::default(),
        }
    }
}

impl Executor for EvictedApplies {
    fn passes_bundles(&self) -> bool {
        self.processes.passes_bundles()
    }

    fn start<'a>(&'a self, launch: Launch<'a>) -> BoxFuture<'a, Result<(), ExecutorError>> {
        let mut evicted = self.evicted.lock().unwrap();
        if launch.run.spec.action != Action::Apply || evicted.len() == self.count {
            return self.processes.start(launch);
        }
        evicted.insert(RunRef::of(launch.run).name);
        Box::pin(async { Ok(()) })
    }

    fn cancel(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.processes.cancel(run)
    }

    fn liveness(&self, runner: RunnerRef) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        if !self.evicted.lock().unwrap().contains(&runner.run.name) {
            return self.processes.liveness(runner);
        }
        let end = RunnerEnd {
            reason: Reason::Evicted,
            message: "the pod was evicted".to_owned(),
            exceeded_memory: None,
            is_pod_deleted: false,
        };
        Box::pin(async move { Ok(Liveness::Ended(end)) })
    }

    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.processes.forget(run)
    }

    fn list_runs(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        self.processes.list_runs()
    }

    fn forget_stack(&self, stack: ObjectKey, is_gone: IsGone) {
        self.processes.forget_stack(stack, is_gone);
    }

    fn list_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        self.processes.list_stacks()
    }
}
