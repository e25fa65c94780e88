//! A controller that runs over a world: the real watch, its triggers, and a count of the passes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::wait::await_condition;
use sluice_api::source::GitRepository;
use sluice_runtime::metrics::Metrics;
use sluice_runtime::random::Generator;
use sluice_runtime::schedule::{Backoff, ObjectKey};
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::{Next, Reconciler, Scope, Settings};
use tokio::sync::watch as channel;

use super::{LIMIT, NAMESPACE, World};
use crate::reconcile::{Context, GitRepositories, UnreportedError, watch};

type Counts = BTreeMap<String, u32>;

/// A running controller. It ends with [`Live::end`].
pub(in crate::reconcile::tests) struct Live {
    pub(in crate::reconcile::tests) metrics: Metrics,
    passes: channel::Receiver<Counts>,
    stop: Token,
    running: tokio::task::JoinHandle<()>,
}

/// Passes that are counted when they are over.
struct Counted {
    passes: GitRepositories,
    counts: channel::Sender<Counts>,
}

impl Reconciler<GitRepository> for Counted {
    type Error = UnreportedError;

    const QUEUES: bool = GitRepositories::QUEUES;

    fn called(&self, key: &ObjectKey) {
        self.passes.called(key);
    }

    fn gone(&self, key: &ObjectKey) {
        self.passes.gone(key);
    }

    async fn reconcile(&self, object: Arc<GitRepository>) -> Result<Next, UnreportedError> {
        let name = ObjectKey::of(&*object).name;
        let ended = self.passes.reconcile(object).await;
        if !matches!(ended, Ok(Next::Queued(_))) {
            self.counts
                .send_modify(|counts| *counts.entry(name).or_default() += 1);
        }
        ended
    }
}

impl World {
    /// Starts a controller whose failed objects wait for an hour, so that a pass has another reason.
    pub(in crate::reconcile::tests) fn live(&self, context: Context) -> Live {
        let hour = Duration::from_secs(3600);
        self.live_with(context, Backoff::new(hour, hour))
    }

    /// Starts a controller with this back-off.
    pub(in crate::reconcile::tests) fn live_with(&self, context: Context, backoff: Backoff) -> Live {
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
        let watch = watch(self.client.clone(), settings).resume(context.places.granted());
        let context = Context {
            repositories: Arc::new(watch.objects()),
            ..context
        };
        let (counts, passes) = channel::channel(Counts::new());
        let reconciler = Counted {
            passes: GitRepositories::new(Arc::new(context)),
            counts,
        };
        let stop = Token::new();
        Live {
            metrics,
            passes,
            running: tokio::spawn(watch.run(reconciler, stop.clone())),
            stop,
        }
    }

    /// Waits until the object is as `wanted` says.
    pub(in crate::reconcile::tests) async fn until(
        &self,
        name: &str,
        wanted: impl Fn(&GitRepository) -> bool,
    ) -> GitRepository {
        let wanted = |object: Option<&GitRepository>| object.is_some_and(&wanted);
        let seen = tokio::time::timeout(LIMIT, await_condition(self.objects(), name, wanted));
        seen.await.expect("seen in time").unwrap().unwrap()
    }

    /// Waits until the object is gone.
    pub(in crate::reconcile::tests) async fn until_gone(&self, name: &str) {
        let gone = await_condition(self.objects(), name, |object: Option<&GitRepository>| {
            object.is_none()
        });
        tokio::time::timeout(LIMIT, gone).await.unwrap().unwrap();
    }
}

impl Live {
    /// Passes over an object that are over.
    pub(in crate::reconcile::tests) fn passes(&self, name: &str) -> u32 {
        self.passes.borrow().get(name).copied().unwrap_or_default()
    }

    /// Passes over all objects that are over.
    pub(in crate::reconcile::tests) fn all_passes(&self) -> u32 {
        self.passes.borrow().values().sum()
    }

    /// Waits for so many passes over each of so many objects.
    pub(in crate::reconcile::tests) async fn until_all(&mut self, objects: usize, count: u32) {
        let enough = |counts: &Counts| counts.values().filter(|passes| **passes >= count).count() >= objects;
        tokio::time::timeout(LIMIT, self.passes.wait_for(enough))
            .await
            .expect("passes in time")
            .unwrap();
    }

    /// Waits for so many passes over an object.
    pub(in crate::reconcile::tests) async fn until_passes(&mut self, name: &str, count: u32) {
        let enough = |counts: &Counts| counts.get(name).copied().unwrap_or_default() >= count;
        tokio::time::timeout(LIMIT, self.passes.wait_for(enough))
            .await
            .expect("passes in time")
            .unwrap();
    }

    /// Lets the running passes finish.
    pub(in crate::reconcile::tests) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.running).await.unwrap().unwrap();
    }
}

/// A condition of an object is `True`.
pub(in crate::reconcile::tests) fn shows(
    kind: &'static str,
    reason: &'static str,
) -> impl Fn(&GitRepository) -> bool {
    move |object| {
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        let mut found = conditions.filter(|c| c.type_ == kind && c.status == "True" && c.reason == reason);
        found.next().is_some()
    }
}
