//! What is done from time to time: a store that had an error is opened again, and Events expire.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    meta,
    resource::Family,
    service::Api,
    store::{Key, Write},
};

/// How long Events are kept, as kube-apiserver does.
pub(crate) const EVENT_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Between two looks.
const PERIOD: Duration = Duration::from_secs(2);

/// Runs until the server is dropped or stopped.
pub(crate) async fn run(api: Weak<Api>, event_lifetime: Duration) {
    let Some(stop) = api.upgrade().map(|api| api.stop.clone()) else {
        return;
    };
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let Some(api) = api.upgrade() else { return };
        let store = api.store.clone();
        // The server must not live longer for it.
        drop(tokio::task::spawn_blocking(move || store.maintain()).await);
        expire_events(&api, event_lifetime).await;
    }
}

async fn expire_events(api: &Api, lifetime: Duration) {
    let Some(resource) = api.registry.by_family(Family::Event) else {
        return;
    };
    let now = Timestamp::now();
    let events = api.store.read().list(&resource.id(), "");
    for event in events.iter().filter(|event| is_expired(event, now, lifetime)) {
        let key = Key::new(resource.id(), meta::namespace(event), meta::name(event));
        let (at, version) = (key.clone(), meta::resource_version(event).to_owned());
        let outcome = api.store.write(key, move |state| match state.get(&at) {
            Some(event) if meta::resource_version(event) == version => Ok(Write::Remove(Value::clone(event))),
            // Counted up or deleted meanwhile.
            _ => Ok(Write::Keep(Arc::default())),
        });
        if let Err(error) = outcome.await {
            tracing::debug!(error = error.message(), "an Event stays for now");
            return;
        }
    }
}

/// Whether an Event was last seen longer ago than `lifetime`. What its writer says of the time is taken up to now.
fn is_expired(event: &Value, now: Timestamp, lifetime: Duration) -> bool {
    let times = [
        &event["metadata"]["creationTimestamp"],
        &event["lastTimestamp"],
        &event["series"]["lastObservedTime"],
    ];
    let seen = times
        .into_iter()
        .filter_map(|time| time.as_str()?.parse::<Timestamp>().ok())
        .filter(|time| *time <= now)
        .max();
    let lifetime = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
    seen.is_some_and(|seen| now.as_second().saturating_sub(seen.as_second()) > lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_expires_an_hour_after_it_was_last_seen() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let expired = |created: &str, last: &str| {
            let event = json!({"metadata": {"creationTimestamp": created}, "lastTimestamp": last});
            is_expired(&event, now, EVENT_LIFETIME)
        };
        assert!(expired("2026-01-01T10:59:59Z", ""));
        assert!(!expired("2026-01-01T11:00:01Z", ""));
        assert!(
            !expired("2026-01-01T01:00:00Z", "2026-01-01T11:30:00Z"),
            "counted up"
        );
        assert!(
            expired("2026-01-01T01:00:00Z", "2099-01-01T00:00:00Z"),
            "a time in the future is none"
        );
    }
}
