//! Executors of tests. [`Double`] has no processes: it counts the runs that it is given and says at once that they succeeded, as
//! their runner would. For questions of who runs, not of what is run. [`StoredBundles`] starts real processes that read their
//! bundles out of Secrets, as runners on another machine have to.

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use sluice_api::run::TerraformRun;
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_controller::executor::{Executor, ExecutorError, IsGone, Liveness, ProcessExecutor, RunRef};
use sluice_tf_runner::bundle::Packed;
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The double.
#[derive(Clone)]
pub(crate) struct Double(Arc<Inner>);

struct Inner {
    client: Client,
    started: Mutex<Vec<String>>,
    most: Mutex<(usize, usize)>,
    forgotten: Mutex<Vec<String>>,
    /// The next run is claimed, and not heard of again.
    hangs: AtomicBool,
}

impl Double {
    pub(crate) fn new(client: &Client) -> (Self, UnboundedReceiver<RunRef>) {
        let (ended, receiver) = unbounded_channel();
        // Nothing ever ends without a word here.
        std::mem::forget(ended);
        let double = Inner {
            client: client.clone(),
            started: Mutex::default(),
            most: Mutex::default(),
            forgotten: Mutex::default(),
            hangs: AtomicBool::new(false),
        };
        (Self(Arc::new(double)), receiver)
    }

    /// The runs that were started since the last call, sorted, and none twice.
    pub(crate) fn started(&self) -> Vec<String> {
        let started = std::mem::take(&mut *self.0.started.lock().unwrap());
        let unique: BTreeSet<_> = started.iter().cloned().collect();
        assert_eq!(
            unique.len(),
            started.len(),
            "a run was started twice: {started:?}"
        );
        unique.into_iter().collect()
    }

    /// The next run hangs: it was claimed long ago, and nothing comes of it.
    pub(crate) fn hang(&self) {
        self.0.hangs.store(true, Ordering::SeqCst);
    }

    /// The most runs that there were at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.0.most.lock().unwrap().1
    }

    /// The runs that are to be forgotten, in the order of the calls.
    pub(crate) fn forgotten(&self) -> Vec<String> {
        self.0.forgotten.lock().unwrap().clone()
    }

    async fn carry_out(&self, run: RunRef) {
        {
            let mut most = self.0.most.lock().unwrap();
            most.0 += 1;
            most.1 = most.1.max(most.0);
        }
        // The work: long enough for others to come in between.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let api: Api<TerraformRun> = Api::namespaced(self.0.client.clone(), &run.namespace);
        if self.0.hangs.swap(false, Ordering::SeqCst) {
            let status = json!({ "status": { "phase": "Applying", "claim": { "holder": "double" },
                "startedAt": "2026-01-01T00:00:00Z", "heartbeatAt": "2026-01-01T00:00:00.000000Z" } });
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

impl Executor for Double {
    fn hands_over_bundles(&self) -> bool {
        false
    }

    fn start(&self, run: RunRef, _: Option<Packed>) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.0.started.lock().unwrap().push(run.name.clone());
        let this = self.clone();
        Box::pin(async move {
            tokio::spawn(async move { this.carry_out(run).await });
            Ok(())
        })
    }

    fn liveness(&self, _: RunRef, _: String) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        Box::pin(async { Ok(Liveness::Alive) })
    }

    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.0.forgotten.lock().unwrap().push(run.name);
        Box::pin(async { Ok(()) })
    }

    fn kept(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn forget_stack(&self, _: ObjectKey, _: IsGone) {}

    fn kept_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Processes whose bundles the controller stores.
pub(crate) struct StoredBundles(pub(crate) Arc<ProcessExecutor>);

impl Executor for StoredBundles {
    fn hands_over_bundles(&self) -> bool {
        false
    }

    fn start(&self, run: RunRef, bundle: Option<Packed>) -> BoxFuture<'_, Result<(), ExecutorError>> {
        assert!(bundle.is_none(), "the bundle of {} is stored", run.name);
        self.0.start(run, bundle)
    }

    fn liveness(&self, run: RunRef, site: String) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        self.0.liveness(run, site)
    }

    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.0.forget(run)
    }

    fn kept(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        self.0.kept()
    }

    fn forget_stack(&self, stack: ObjectKey, is_gone: IsGone) {
        self.0.forget_stack(stack, is_gone);
    }

    fn kept_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        self.0.kept_stacks()
    }
}
