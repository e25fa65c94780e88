//! The durations of the reconciliations of one object. A histogram of the library takes 400 bytes, most of them for formats that are not
//! in use, and there is one for each object.

use std::fmt;
use std::sync::Mutex;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use crate::sync::lock;

/// Bounds of `gotk_reconcile_duration_seconds`: ten exponential steps from 10 ms to 30 min, rounded as in Flux.
const BOUNDS: [f64; 10] = [
    0.01,
    0.038_364,
    0.147_176,
    0.564_622,
    2.166_091,
    8.309_901,
    31.879_757,
    122.302_172,
    469.194_959,
    1800.0,
];

/// A histogram with the bounds of Flux.
#[derive(Debug, Default)]
pub(super) struct DurationHistogram(Mutex<Observed>);

#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    /// Seconds.
    sum: f64,
    /// Number of durations up to each bound and above the previous one, and above the last one.
    counts: [u32; BOUNDS.len() + 1],
}

impl DurationHistogram {
    /// Counts a duration.
    pub(super) fn observe(&self, seconds: f64) {
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound);
        let mut observed = lock(&self.0);
        observed.sum += seconds;
        let count = &mut observed.counts[bucket.unwrap_or(BOUNDS.len())];
        *count = count.saturating_add(1);
    }
}

impl TypedMetric for DurationHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for DurationHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let Observed { sum, counts } = *lock(&self.0);
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.map(u64::from)).collect();
        let count: u64 = buckets.iter().map(|(_, count)| *count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::Registry;

    use super::*;

    fn page(metric: impl prometheus_client::registry::Metric) -> String {
        let mut registry = Registry::default();
        registry.register("took_seconds", "How long it took", metric);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn the_page_is_that_of_a_histogram_of_the_library() {
        let (own, other) = (DurationHistogram::default(), Histogram::new(BOUNDS));
        for seconds in [0.0, 0.01, 0.02, 0.02, 1800.0, 1800.5, 9e9] {
            own.observe(seconds);
            other.observe(seconds);
        }
        let text = page(own);
        assert_eq!(text, page(other));
        assert!(text.contains("took_seconds_bucket{le=\"+Inf\"} 7\n"), "{text}");
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<DurationHistogram>() <= 64);
    }
}
