//! What the task of an object takes before it runs.

use super::*;

/// A reconciler whose futures hold 8 KiB.
struct LargeReconciler;

impl Reconciler<ConfigMap> for LargeReconciler {
    type Error = Lost;

    async fn wait_in_place(&self, _key: &ObjectKey, _at_most: Duration) -> bool {
        let held = [0_u8; 8 << 10];
        tokio::task::yield_now().await;
        std::hint::black_box(&held);
        false
    }

    async fn reconcile(&self, _object: Arc<ConfigMap>) -> Result<Requeue, Lost> {
        let held = [0_u8; 8 << 10];
        tokio::task::yield_now().await;
        std::hint::black_box(&held);
        Ok(Requeue::OnChange)
    }
}

/// Returns the size of the future that the function returns.
fn future_size<A, B, F>(_function: &impl Fn(A, B) -> F) -> usize {
    size_of::<F>()
}

/// After a list there is a task for each object, before the first one runs.
#[test]
fn the_size_of_a_task_does_not_depend_on_the_reconciler() {
    assert!(size_of_val(&LargeReconciler.reconcile(Arc::default())) > 8 << 10);
    let size = future_size(&Reconciliations::<ConfigMap, LargeReconciler>::reconcile);
    assert!(size <= 2 << 10, "{size} bytes");
}
