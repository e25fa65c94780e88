//! Periodic maintenance: reopens a store after an error, expires Events, reads the changes of other processes and compacts the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::resource::Strategy;
use crate::service::Api;
use crate::store::{Key, Write};
use crate::{invalid_files, meta};

/// Default lifetime of Events, as in kube-apiserver.
pub(crate) const EVENT_TTL: Duration = Duration::from_hours(1);
/// Interval of the maintenance.
const INTERVAL: Duration = Duration::from_secs(2);
/// Interval of the compaction of a store.
const COMPACTION_INTERVAL: Duration = Duration::from_hours(1);

/// Runs until the server is stopped or dropped.
pub(crate) async fn run(api: Weak<Api>, event_ttl: Duration) {
    let Some(stop) = api.upgrade().map(|api| api.stop.clone()) else {
        return;
    };
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let Some(api) = api.upgrade() else { return };
        let store = api.store.clone();
        // The blocking task holds only the store, not the server.
        drop(tokio::task::spawn_blocking(move || store.maintain()).await);
        expire_events(&api, event_ttl).await;
    }
}

/// Compacts the store until the server is stopped or dropped.
pub(crate) async fn compact(api: Weak<Api>) {
    let Some(stop) = api.upgrade().map(|api| api.stop.clone()) else {
        return;
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(COMPACTION_INTERVAL) => {}
        }
        let Some(store) = api.upgrade().map(|api| api.store.clone()) else {
            return;
        };
        drop(tokio::task::spawn_blocking(move || store.compact()).await);
    }
}

/// Polls for changes of other processes until the server is stopped or dropped.
pub(crate) async fn poll(api: Weak<Api>, interval: Duration) {
    let Some(stop) = api.upgrade().map(|api| api.stop.clone()) else {
        return;
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
        let Some(store) = api.upgrade().map(|api| api.store.clone()) else {
            return;
        };
        drop(tokio::task::spawn_blocking(move || store.poll()).await);
        let Some(api) = api.upgrade() else { return };
        invalid_files::report(&api).await;
    }
}

async fn expire_events(api: &Api, ttl: Duration) {
    let Some(resource) = api.registry().by_strategy(Strategy::Event).cloned() else {
        return;
    };
    let now = Timestamp::now();
    let events = api.store.read().list(&resource.group_resource(), "");
    for event in events.iter().filter(|event| is_expired(event, now, ttl)) {
        let key = Key::new(
            resource.group_resource(),
            meta::namespace(event),
            meta::name(event),
        );
        let (at, version) = (key.clone(), meta::resource_version(event).to_owned());
        let outcome = api.store.write(key, move |state| match state.get(&at) {
            Some(event) if meta::resource_version(event) == version => Ok(Write::Remove(Value::clone(event))),
            // Updated or deleted in the meantime.
            _ => Ok(Write::Unchanged(Arc::default())),
        });
        if let Err(error) = outcome.await {
            tracing::debug!(error = error.message(), "cannot expire an Event yet");
            return;
        }
    }
}

/// Whether the last occurrence of an Event is longer ago than `ttl`. Times in the future are ignored.
fn is_expired(event: &Value, now: Timestamp, ttl: Duration) -> bool {
    let times = [
        &event["metadata"]["creationTimestamp"],
        &event["lastTimestamp"],
        &event["series"]["lastObservedTime"],
    ];
    let last_occurrence = times
        .into_iter()
        .filter_map(|time| time.as_str()?.parse::<Timestamp>().ok())
        .filter(|time| *time <= now)
        .max();
    let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    last_occurrence
        .is_some_and(|last_occurrence| now.as_second().saturating_sub(last_occurrence.as_second()) > ttl)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_expire_one_hour_after_their_last_occurrence() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let expired = |created: &str, last: &str| {
            let event = json!({"metadata": {"creationTimestamp": created}, "lastTimestamp": last});
            is_expired(&event, now, EVENT_TTL)
        };
        assert!(expired("2026-01-01T10:59:59Z", ""));
        assert!(!expired("2026-01-01T11:00:01Z", ""));
        assert!(
            !expired("2026-01-01T01:00:00Z", "2026-01-01T11:30:00Z"),
            "it occurred again"
        );
        assert!(
            expired("2026-01-01T01:00:00Z", "2099-01-01T00:00:00Z"),
            "times in the future are ignored"
        );
    }
}
