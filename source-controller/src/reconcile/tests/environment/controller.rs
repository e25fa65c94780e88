//! A controller running in a test environment: the real watch with its triggers, and a count of reconciliations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::wait::await_condition;
use sluice_api::source::GitRepository;
use sluice_runtime::metrics::Metrics;
use sluice_runtime::random::Generator;
use sluice_runtime::schedule::{Backoff, ObjectKey};
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::{Reconciler, Requeue, Scope, Settings};
use tokio::sync::watch as channel;

use super::{LIMIT, NAMESPACE, TestEnvironment};
use crate::reconcile::{Context, GitRepositories, UnreportedError, watch};

type Counts = BTreeMap<String, u32>;

/// A running controller, stopped by [`RunningController::end`].
pub(in crate::reconcile::tests) struct RunningController {
    pub(in crate::reconcile::tests) metrics: Metrics,
    reconciliations: channel::Receiver<Counts>,
    stop: Token,
    running: tokio::task::JoinHandle<()>,
}

/// Counts completed reconciliations.
struct CountingReconciler {
    reconciliations: GitRepositories,
    counts: channel::Sender<Counts>,
}

impl Reconciler<GitRepository> for CountingReconciler {
    type Error = UnreportedError;

    const LIMITS_CONCURRENCY: bool = GitRepositories::LIMITS_CONCURRENCY;

    fn enqueued(&self, key: &ObjectKey) {
        self.reconciliations.enqueued(key);
    }

    fn deleted(&self, key: &ObjectKey) {
        self.reconciliations.deleted(key);
    }

    fn trim(object: &mut GitRepository) {
        GitRepositories::trim(object);
    }

    fn wait_in_place(&self, key: &ObjectKey, at_most: Duration) -> impl Future<Output = bool> + Send {
        self.reconciliations.wait_in_place(key, at_most)
    }

    async fn reconcile(&self, object: Arc<GitRepository>) -> Result<Requeue, UnreportedError> {
        let name = ObjectKey::of(&*object).name;
        let ended = self.reconciliations.reconcile(object).await;
        if !matches!(ended, Ok(Requeue::Queued(_))) {
            self.counts
                .send_modify(|counts| *counts.entry(name).or_default() += 1);
        }
        ended
    }
}

impl TestEnvironment {
    /// Starts a controller with a back-off of an hour, so that retries do not count.
    pub(in crate::reconcile::tests) fn start_controller(&self, context: Context) -> RunningController {
        let hour = Duration::from_hours(1);
        self.start_controller_with(context, Backoff::new(hour, hour))
    }

    /// Starts a controller with this back-off.
    pub(in crate::reconcile::tests) fn start_controller_with(
        &self,
        context: Context,
        backoff: Backoff,
    ) -> RunningController {
        let metrics = Metrics::new();
        let scope = Scope {
            namespace: Some(NAMESPACE.into()),
            labels: None,
        };
        let settings = Settings {
            controller: "gitrepository",
            scope,
            concurrent: 2,
            backoff: Arc::new(backoff),
            metrics: metrics.clone(),
            recorder: self.recorder.clone(),
            random: Arc::new(Generator::seeded(1)),
        };
        let watch = watch(self.client.clone(), settings, context.secrets.shown())
            .resume(context.slots.granted())
            .resume(context.origin.changed());
        let context = Context {
            repositories: Arc::new(watch.objects()),
            ..context
        };
        let (counts, reconciliations) = channel::channel(Counts::new());
        let reconciler = CountingReconciler {
            reconciliations: GitRepositories::new(Arc::new(context)),
            counts,
        };
        let stop = Token::new();
        RunningController {
            metrics,
            reconciliations,
            running: tokio::spawn(watch.run(reconciler, stop.clone())),
            stop,
        }
    }

    /// Waits until the object fulfils the condition.
    pub(in crate::reconcile::tests) async fn until(
        &self,
        name: &str,
        condition: impl Fn(&GitRepository) -> bool,
    ) -> GitRepository {
        let condition = |object: Option<&GitRepository>| object.is_some_and(&condition);
        let cached = tokio::time::timeout(LIMIT, await_condition(self.objects(), name, condition));
        cached.await.expect("seen in time").unwrap().unwrap()
    }

    /// Waits until the object is deleted.
    pub(in crate::reconcile::tests) async fn until_gone(&self, name: &str) {
        let gone = await_condition(self.objects(), name, |object: Option<&GitRepository>| {
            object.is_none()
        });
        tokio::time::timeout(LIMIT, gone).await.unwrap().unwrap();
    }
}

impl RunningController {
    /// Returns the number of completed reconciliations of an object.
    pub(in crate::reconcile::tests) fn reconciliations(&self, name: &str) -> u32 {
        self.reconciliations
            .borrow()
            .get(name)
            .copied()
            .unwrap_or_default()
    }

    /// Returns the number of all completed reconciliations.
    pub(in crate::reconcile::tests) fn all_reconciliations(&self) -> u32 {
        self.reconciliations.borrow().values().sum()
    }

    /// Waits until this number of objects has this number of reconciliations each.
    pub(in crate::reconcile::tests) async fn until_all(&mut self, objects: usize, count: u32) {
        let enough = |counts: &Counts| {
            counts
                .values()
                .filter(|reconciliations| **reconciliations >= count)
                .count()
                >= objects
        };
        tokio::time::timeout(LIMIT, self.reconciliations.wait_for(enough))
            .await
            .expect("passes in time")
            .unwrap();
    }

    /// Waits for this number of reconciliations of an object.
    pub(in crate::reconcile::tests) async fn until_reconciled(&mut self, name: &str, count: u32) {
        let enough = |counts: &Counts| counts.get(name).copied().unwrap_or_default() >= count;
        tokio::time::timeout(LIMIT, self.reconciliations.wait_for(enough))
            .await
            .expect("passes in time")
            .unwrap();
    }

    /// Stops the controller after its running reconciliations.
    pub(in crate::reconcile::tests) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.running).await.unwrap().unwrap();
    }
}

/// Returns whether a condition of an object is `True` with this reason.
pub(in crate::reconcile::tests) fn has_condition(
    kind: &'static str,
    reason: &'static str,
) -> impl Fn(&GitRepository) -> bool {
    move |object| {
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        let mut found = conditions.filter(|c| c.type_ == kind && c.status == "True" && c.reason == reason);
        found.next().is_some()
    }
}
