//! The memory of runs: amounts in the form of Kubernetes, what the runs of a stack were measured to need, and what the next run
//! requests. Pure.

use std::fmt;
use std::str::FromStr;

use sluice_api::run::{Phase, TerraformRunStatus};
use sluice_api::terraform::Reason;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// Estimate for a stack of which no run was measured.
const DEFAULT_ESTIMATE: u64 = 512 * MIB;
/// Smallest estimate: the CLI alone needs as much. A run reports its own peak, so a smaller one may be wrong.
const MIN_ESTIMATE: u64 = 64 * MIB;
/// What the runner itself needs besides the CLI.
const RUNNER_MEMORY: u64 = 32 * MIB;
/// Smallest memory request that follows from a measured peak.
const MIN_REQUEST: u64 = 128 * MIB;
/// Digits of an amount that are read: more do not fit into the arithmetic.
const MAX_DIGITS: usize = 18;

/// Suffixes of amounts with their factors. The suffixes of two letters come first.
const SUFFIXES: [(&str, u128); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// A text is not an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity of memory such as 512Mi, 8Gi or 1073741824")]
pub struct QuantityError(String);

/// An amount of memory in bytes, written as a [quantity] of Kubernetes: `512Mi`, `1.5G`, `1073741824`. Part of a byte counts as one.
///
/// [quantity]: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryQuantity(u64);

impl MemoryQuantity {
    /// Returns the amount of this number of bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for MemoryQuantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse_bytes(text)
            .map(Self)
            .ok_or_else(|| QuantityError(text.to_owned()))
    }
}

impl fmt::Display for MemoryQuantity {
    /// With the largest binary suffix that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(unit, _): &(u64, &str)| self.0 > 0 && self.0.is_multiple_of(*unit);
        match [(GIB, "Gi"), (MIB, "Mi"), (KIB, "Ki")].into_iter().find(whole) {
            Some((unit, suffix)) => write!(f, "{}{suffix}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Parses a quantity of Kubernetes without a sign.
fn parse_bytes(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > MAX_DIGITS || fraction.contains('.') {
        return None;
    }
    let (factor, divisor) = factor_of(suffix)?;
    let shift = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let numerator = digits.parse::<u128>().ok()?.checked_mul(factor)?;
    u64::try_from(numerator.div_ceil(divisor.checked_mul(shift)?)).ok()
}

/// Returns the factor of a suffix as a fraction.
fn factor_of(suffix: &str) -> Option<(u128, u128)> {
    if suffix.is_empty() {
        return Some((1, 1));
    }
    if suffix == "m" {
        return Some((1, 1000));
    }
    if let Some((_, factor)) = SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Some((*factor, 1));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10_u128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

/// The memory request of runner pods whose template sets no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryRequest {
    /// The measured peak of the stack with a margin, unless its pods have a request without that; none before the first measurement.
    #[default]
    Measured,
    /// The same for all stacks.
    Fixed(MemoryQuantity),
    /// None.
    Disabled,
}

impl FromStr for MemoryRequest {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text {
            "measured" => Ok(Self::Measured),
            "none" => Ok(Self::Disabled),
            quantity => quantity.parse().map(Self::Fixed),
        }
    }
}

/// What the runs of a stack show about its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredMemory {
    /// Highest peak of the CLI, in bytes; `None`: no run was measured.
    pub peak: Option<u64>,
    /// Whether a run has made its plan, and none was lost since: otherwise the peak shows only what is needed at least.
    pub is_whole: bool,
    /// What the container of the newest pod might use, in bytes; `None`: no run had a container of its own.
    pub limit: Option<u64>,
    /// What that container requests if the controller requests nothing, in bytes; `None`: not known.
    pub default_request: Option<u64>,
}

impl MeasuredMemory {
    /// Adds a run. The last one that is added is the newest. A run cannot have used more than its container might.
    pub(crate) fn add(&mut self, status: &TerraformRunStatus) {
        let bytes = |reported: Option<i64>| u64::try_from(reported?).ok();
        let used = |reported| bytes(reported).filter(|bytes| *bytes > 0);
        let most = used(status.memory_limit_bytes).unwrap_or(u64::MAX);
        self.peak = self
            .peak
            .max(used(status.peak_memory_bytes).map(|peak| peak.min(most)));
        let is_killed = status.phase == Phase::Lost || status.reason == Reason::OomKilled;
        self.is_whole = !is_killed && (self.is_whole || status.has_changes.is_some());
        if let Some(limit) = used(status.memory_limit_bytes) {
            self.limit = Some(limit);
            self.default_request = bytes(status.default_memory_request_bytes);
        }
    }

    /// Returns the estimate for the next run, in bytes: the highest peak, or a default if there is none. Runs that were cut short do
    /// not lower the default. It is at least [`MIN_ESTIMATE`]; the limits of runs bound it from above.
    pub(crate) fn estimate(self) -> u64 {
        match self.peak {
            Some(peak) if self.is_whole => peak.max(MIN_ESTIMATE),
            peak => peak.unwrap_or(0).max(DEFAULT_ESTIMATE),
        }
    }

    /// Returns the memory request of the next pod; `None`: it has the one that the cluster gives it.
    ///
    /// A pod whose request follows from a limit or a `LimitRange` keeps that: another one could break the rules of its namespace or
    /// change its class. So a stack has a request of its own only after a pod without any. It is the estimate with a margin, and at
    /// most half of what the container might use: the requests of other pods on the node leave less than that, and a pod that requests
    /// more than they leave would never start.
    pub(crate) fn request(self) -> Option<MemoryQuantity> {
        self.peak?;
        let (estimate, available) = (self.estimate(), self.limit?);
        if self.default_request? > 0 {
            return None;
        }
        let with_margin = estimate
            .saturating_add(estimate / 4)
            .saturating_add(RUNNER_MEMORY);
        let rounded = with_margin.max(MIN_REQUEST).div_ceil(MIB).saturating_mul(MIB);
        Some(MemoryQuantity(rounded.min(available / 2)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn status(value: Value) -> TerraformRunStatus {
        serde_json::from_value(value).unwrap()
    }

    fn measured(peak: u64, limit: u64) -> MeasuredMemory {
        MeasuredMemory {
            peak: Some(peak * MIB),
            is_whole: true,
            limit: Some(limit * MIB),
            default_request: Some(0),
        }
    }

    /// Returns the request as text.
    fn request(memory: MeasuredMemory) -> String {
        memory
            .request()
            .map_or_else(String::new, |request| request.to_string())
    }

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, bytes) in [
            ("0", 0),
            ("1073741824", GIB),
            ("512Mi", 512 * MIB),
            ("8Gi", 8 * GIB),
            ("1.5Gi", 1536 * MIB),
            (".5Ki", 512),
            ("2.", 2),
            ("1k", 1000),
            ("1M", 1_000_000),
            ("2e3", 2000),
            ("2E3", 2000),
            ("1E", 1_000_000_000_000_000_000),
            ("5e-1", 1),
            ("1500m", 2),
        ] {
            assert_eq!(text.parse(), Ok(MemoryQuantity(bytes)), "{text}");
        }
        for text in [
            "", ".", "Mi", "-1", "+1", "1.2.3", "1mi", "1MB", "1 Gi", "many", "99Ei", "1e99", "1e",
        ] {
            assert!(text.parse::<MemoryQuantity>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_quantity_is_shown_with_the_largest_suffix_that_fits() {
        let shown = |bytes| MemoryQuantity(bytes).to_string();
        assert_eq!(shown(8 * GIB), "8Gi");
        assert_eq!(shown(1536 * MIB), "1536Mi");
        assert_eq!(shown(3 * KIB), "3Ki");
        assert_eq!((shown(0), shown(1025)), ("0".into(), "1025".into()));
    }

    #[test]
    fn the_setting_of_requests_is_measured_none_or_a_quantity() {
        assert_eq!("measured".parse(), Ok(MemoryRequest::Measured));
        assert_eq!("none".parse(), Ok(MemoryRequest::Disabled));
        let fixed = MemoryRequest::Fixed(MemoryQuantity(256 * MIB));
        assert_eq!("256Mi".parse(), Ok(fixed));
        assert!("off".parse::<MemoryRequest>().is_err());
    }

    #[test]
    fn the_peak_is_the_highest_of_the_runs() {
        let mut memory = MeasuredMemory::default();
        assert_eq!(memory.estimate(), DEFAULT_ESTIMATE);
        for run in [
            json!({ "peakMemoryBytes": 300, "memoryLimitBytes": 1000, "defaultMemoryRequestBytes": 5 }),
            json!({ "peakMemoryBytes": 700, "memoryLimitBytes": 900, "defaultMemoryRequestBytes": 0, "hasChanges": true }),
            json!({ "peakMemoryBytes": 100 }),
            // A run that was not measured, and one whose status was edited.
            json!({}),
            json!({ "peakMemoryBytes": -5, "memoryLimitBytes": -1, "defaultMemoryRequestBytes": 7 }),
        ] {
            memory.add(&status(run));
        }
        assert_eq!((memory.peak, memory.estimate()), (Some(700), MIN_ESTIMATE));
        assert_eq!(memory.limit, Some(900), "that of the newest container");
        assert_eq!(memory.default_request, Some(0), "that of the newest container");
        memory.add(&status(json!({ "memoryLimitBytes": 800 })));
        assert_eq!((memory.limit, memory.default_request), (Some(800), None));
    }

    #[test]
    fn a_run_that_was_cut_short_does_not_lower_the_default() {
        let short = json!({ "peakMemoryBytes": 60 * MIB, "phase": "Failed" });
        let whole = json!({ "peakMemoryBytes": 100 * MIB, "phase": "Succeeded", "hasChanges": false });
        let large = json!({ "peakMemoryBytes": 900 * MIB, "phase": "Failed" });
        let lost = json!({ "peakMemoryBytes": 150 * MIB, "phase": "Lost", "hasChanges": true });
        let killed = json!({ "phase": "Failed", "reason": "OOMKilled", "hasChanges": true });
        for (runs, estimate) in [
            (vec![&short], 512),
            (vec![&short, &whole], 100),
            (vec![&whole, &short], 100),
            (vec![&whole, &large], 900),
            (vec![&whole, &lost], 512),
            (vec![&whole, &killed], 512),
            (vec![&lost, &short], 512),
            (vec![&lost, &whole], 150),
        ] {
            let mut memory = MeasuredMemory::default();
            for run in &runs {
                memory.add(&status((*run).clone()));
            }
            assert_eq!(memory.estimate(), estimate * MIB, "{runs:?}");
        }
    }

    #[test]
    fn the_request_is_the_peak_with_a_margin_and_at_most_half_of_the_node() {
        assert_eq!(request(measured(400, 8192)), "532Mi");
        assert_eq!(request(measured(20, 8192)), "128Mi");
        // A small node has other pods too: less margin, then less than the peak.
        assert_eq!(request(measured(400, 1000)), "500Mi");
        assert_eq!(request(measured(900, 1536)), "768Mi");
        assert_eq!(request(measured(20, 100)), "50Mi");
    }

    #[test]
    fn a_pod_with_a_request_of_the_cluster_keeps_it() {
        for default_request in [Some(64 * MIB), Some(GIB), None] {
            let memory = MeasuredMemory {
                default_request,
                ..measured(400, 8192)
            };
            assert_eq!(request(memory), "", "{default_request:?}");
        }
    }

    #[test]
    fn nothing_is_requested_before_a_pod_was_measured() {
        assert_eq!(request(MeasuredMemory::default()), "");
        let process = MeasuredMemory {
            limit: None,
            ..measured(400, 0)
        };
        assert_eq!(request(process), "");
    }

    proptest! {
        /// Whatever a run reports, a peak is at most what its container might use, and an estimate is never nearly nothing.
        #[test]
        fn a_reported_peak_is_bounded(peak: i64, limit in proptest::option::of(any::<i64>()), has_changes in proptest::option::of(any::<bool>())) {
            let mut memory = MeasuredMemory::default();
            memory.add(&TerraformRunStatus {
                peak_memory_bytes: Some(peak),
                memory_limit_bytes: limit,
                has_changes,
                ..TerraformRunStatus::default()
            });
            let most = limit.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0);
            prop_assert!(memory.peak.unwrap_or(0) <= most.unwrap_or(u64::MAX));
            prop_assert!(memory.estimate() >= MIN_ESTIMATE);
            prop_assert!(memory.estimate() <= memory.peak.unwrap_or(0).max(DEFAULT_ESTIMATE));
        }

        /// A request covers the peak, unless that is more than half of the node.
        #[test]
        fn a_request_covers_the_peak_up_to_half_of_the_node(peak in 1..=u64::MAX, available in 1..=u64::MAX) {
            let memory = MeasuredMemory { peak: Some(peak), is_whole: true, limit: Some(available), default_request: Some(0) };
            let request = memory.request().unwrap().bytes();
            let most = available / 2;
            prop_assert!(request <= most && request >= peak.min(most));
        }

        #[test]
        fn every_amount_is_read_as_it_is_shown(number in 0_u64..1 << 30, shift in 0..30) {
            let amount = MemoryQuantity(number << shift);
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        }

        #[test]
        fn no_text_panics(text in "[0-9.eEmkKMGTPi+-]{0,24}") {
            let _ = text.parse::<MemoryQuantity>();
        }
    }
}
