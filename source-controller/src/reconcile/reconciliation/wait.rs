//! Reports that an object has waited long for its reconciliation.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use sluice_api::source::GitRepository;
use sluice_runtime::event::Event;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::Requeue;
use tokio::time::Instant;

use super::super::observe::Observed;
use super::super::slots::SlotRequest;
use super::super::{Context, UnreportedError};
use super::Reconciliation;

/// Minimum time between two wait events of one object, and retry interval after a report.
const REPORT_AGAIN: Duration = Duration::from_hours(1);
/// Reason of the event.
const REASON: &str = "WaitingForHost";

/// The wait of an object for a slot.
pub(in super::super) struct QueueWait {
    /// Start of the wait.
    pub(in super::super) since: Instant,
    /// Whether the wait was reported.
    pub(in super::super) is_reported: bool,
}

impl QueueWait {
    /// Returns how long the object stays queued without a report; `None` if the wait exceeds the threshold and is not reported.
    pub(in super::super) fn until_report(&self, context: &Context) -> Option<Duration> {
        if self.is_reported {
            return Some(REPORT_AGAIN);
        }
        let left = context.slots.report_after().saturating_sub(self.since.elapsed());
        (!left.is_zero()).then_some(left)
    }

    /// Reports the wait, and keeps the object queued. If a user waits for the result, the conditions show it; an object that is only
    /// late for its interval gets an event, at most one per hour.
    pub(in super::super) async fn report(
        self,
        context: &Context,
        api: Api<GitRepository>,
        object: &Arc<GitRepository>,
        request: &SlotRequest,
    ) -> Result<Requeue, UnreportedError> {
        let waited = self.since.elapsed();
        let key = ObjectKey::of(&**object);
        context.slots.mark_reported(&key);
        let text = context.slots.wait_message(&request.lane);
        let (existing, waiting) = context.slots.load(&request.lane);
        tracing::info!(lane = %request.lane, existing, waiting, waited = ?waited, "object is waiting for a slot");
        let reconciliation = Reconciliation::new(context, api, Arc::clone(object), key.namespace.clone());
        let has_artifact = object
            .status
            .as_ref()
            .is_some_and(|status| status.artifact.is_some());
        if request.is_urgent || !has_artifact {
            reconciliation
                .announce(&Observed::recorded(object), &text)
                .await?;
        } else if context
            .tracker
            .may_report_wait(&key, Instant::now(), REPORT_AGAIN)
        {
            reconciliation.record_event(Event::normal(REASON, text));
        }
        Ok(Requeue::Queued(REPORT_AGAIN))
    }
}
