//! When the next reconciliation of an object is due.

use kube::runtime::controller::Action;

use super::*;

/// A reconciler that asks for the next reconciliation after this time.
struct DelayingReconciler(Duration);

impl Reconciler<ConfigMap> for DelayingReconciler {
    type Error = Lost;

    async fn reconcile(&self, _object: Arc<ConfigMap>) -> Result<Requeue, Lost> {
        Ok(Requeue::After(self.0))
    }
}

/// Returns what follows a reconciliation with this delay.
async fn action_of(delay: Duration) -> Action {
    let api = Arc::new(FakeApi::default());
    let settings = settings(&api);
    let objects = Watch::<ConfigMap>::new(api.client(), settings.clone()).objects();
    let reconciliations = Reconciliations::new(DelayingReconciler(delay), settings, objects, Token::new());
    let object = Arc::new(WatchedObject(Ok(Arc::default())));
    let Ok(action) = Reconciliations::reconcile(object, Arc::new(reconciliations)).await;
    action
}

#[tokio::test]
async fn only_a_long_delay_is_prolonged() {
    let [short, long] = [5_000, 9_700].map(Duration::from_millis);
    assert_eq!(action_of(short).await, Action::requeue(short));
    // Exact only if the controller began a multiple of half a second and 300 ms ago, to the nanosecond.
    assert_ne!(action_of(long).await, Action::requeue(long));
}
