//! An object that waits for its pass longer than people expect says so.

use std::time::Duration;

use kube::Api;
use sluice_api::source::GitRepository;
use sluice_runtime::event::Event;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::Next;
use tokio::time::Instant;

use super::super::places::Request;
use super::super::{Context, UnreportedError};
use super::Pass;

/// Between two events about the waits of one object, and two looks at one that has reported.
const REPORT_AGAIN: Duration = Duration::from_secs(3600);
/// Reason of the event.
const REASON: &str = "WaitingForHost";

/// The wait of an object for a place.
pub(in super::super) struct Wait {
    /// Since when.
    pub(in super::super) since: Instant,
    /// Whether it was reported.
    pub(in super::super) is_reported: bool,
}

impl Wait {
    /// Reports the wait once it is long, and lets it go on. Where a person waits for the pass, the object's conditions say
    /// it; an object that is only late for its interval has an event, at most one in an hour.
    pub(in super::super) async fn go_on(
        self,
        context: &Context,
        api: Api<GitRepository>,
        object: &GitRepository,
        request: &Request,
    ) -> Result<Next, UnreportedError> {
        let waited = self.since.elapsed();
        if self.is_reported {
            return Ok(Next::Queued(REPORT_AGAIN));
        }
        let report_after = context.places.report_after();
        if waited < report_after {
            return Ok(Next::Queued(report_after.saturating_sub(waited)));
        }
        let key = ObjectKey::of(object);
        context.places.reported(&key);
        let text = context.places.explain(&request.lane);
        let (held, waiting) = context.places.load(&request.lane);
        tracing::info!(lane = %request.lane, held, waiting, waited = ?waited, "the object waits for its pass");
        let mut pass = Pass::new(context, api, object.clone(), key.namespace.clone());
        let has_artifact = object
            .status
            .as_ref()
            .is_some_and(|status| status.artifact.is_some());
        if request.is_urgent || !has_artifact {
            pass.announce(&pass.unobserved(), &text).await?;
        } else if context.memory.may_report(&key, Instant::now(), REPORT_AGAIN) {
            pass.tell(Event::normal(REASON, text));
        }
        Ok(Next::Queued(REPORT_AGAIN))
    }
}
