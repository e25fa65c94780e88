//! Metrics of the token cache, named as in Flux.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use sluice_runtime::metrics::Metrics;
use sluice_runtime::schedule::ObjectKey;

/// The kind whose reconciliations need tokens.
const KIND: &str = "GitRepository";
/// The only operation that needs tokens.
const OPERATION: &str = "reconcile";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    event_type: &'static str,
    kind: &'static str,
    name: String,
    namespace: String,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

/// The metric families. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheMetrics {
    events: Family<EventLabels, Counter>,
    requests: Family<StatusLabel, Counter>,
    evictions: Counter,
    items: Gauge,
}

impl CacheMetrics {
    /// Registers the metrics.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let series = Self::default();
        // The encoder appends `_total` to counters.
        let help = "Tokens found in the cache, or not, by object";
        metrics.register("gotk_token_cache_events", help, series.events.clone());
        let help = "Requests to the token cache by outcome";
        metrics.register("gotk_token_cache_requests", help, series.requests.clone());
        let help = "Tokens evicted from the cache";
        metrics.register("gotk_token_cache_evictions", help, series.evictions.clone());
        metrics.register(
            "gotk_token_cached_items",
            "Tokens in the cache",
            series.items.clone(),
        );
        let events = series.events.clone();
        metrics.on_forget(move |kind, object| {
            if kind == KIND {
                for found in [true, false] {
                    events.remove(&labels(object, found));
                }
            }
        });
        series
    }

    /// Records whether an object's token was in the cache.
    pub(super) fn record_lookup(&self, object: &ObjectKey, found: bool) {
        self.events.get_or_create(&labels(object, found)).inc();
    }

    /// Records the result of a request for a token.
    pub(super) fn record_request(&self, succeeded: bool) {
        let status = if succeeded { "success" } else { "failure" };
        self.requests.get_or_create(&StatusLabel { status }).inc();
    }

    /// Records an eviction.
    pub(super) fn record_eviction(&self) {
        self.evictions.inc();
    }

    /// Sets the number of cached tokens.
    pub(super) fn set_items(&self, items: usize) {
        self.items.set(i64::try_from(items).unwrap_or(i64::MAX));
    }
}

fn labels(object: &ObjectKey, found: bool) -> EventLabels {
    EventLabels {
        event_type: if found { "cache_hit" } else { "cache_miss" },
        kind: KIND,
        name: object.name.clone(),
        namespace: object.namespace.clone(),
        operation: OPERATION,
    }
}
