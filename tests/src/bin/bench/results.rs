//! The results: for each row what was measured, beside which alternative, and what it must be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_tests::BoxError;

use crate::machine::Machine;
use crate::plot;

/// What the numbers of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    BytesPerSecond,
    Count,
    PerSecond,
    Percent,
}

impl Unit {
    /// Returns a number with its unit.
    pub(crate) fn show(self, number: f64) -> String {
        match self {
            Self::Seconds if number > 0.0 && number < 1e-3 => format!("{:.0} µs", number * 1e6),
            Self::Seconds if number < 1.0 => format!("{:.1} ms", number * 1e3),
            Self::Seconds => format!("{number:.2} s"),
            Self::Bytes if number < 10_000.0 => format!("{number:.0} B"),
            Self::Bytes if number < 1e7 => format!("{:.0} KiB", number / 1024.0),
            Self::Bytes => format!("{:.1} MiB", number / 1_048_576.0),
            Self::BytesPerSecond => format!("{:.0} MB/s", number / 1e6),
            Self::Count if number < 10.0 && number.fract() > 0.0 => format!("{number:.2}"),
            Self::Count => format!("{number:.0}"),
            Self::PerSecond => format!("{number:.0}/s"),
            Self::Percent => format!("{number:.2} %"),
        }
    }

    /// Returns its name in `results.json`.
    const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes per second",
            Self::Count => "count",
            Self::PerSecond => "per second",
            Self::Percent => "percent",
        }
    }
}

/// What a row must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// The ratio of the medians is at most this.
    RatioAtMost(f64),
    /// The ratio of the medians is at least this.
    RatioAtLeast(f64),
    /// The median is at most this, in the unit of the row.
    AtMost(f64),
    /// The median is at least this, in the unit of the row.
    AtLeast(f64),
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    what: String,
    unit: Unit,
    samples: Vec<f64>,
    /// The alternative, and its samples. Without samples, the text says why there are none.
    alternative: Option<(String, Vec<f64>)>,
    goal: Option<Goal>,
}

impl Row {
    /// Creates a row of these samples.
    pub(crate) fn new(what: impl Into<String>, unit: Unit, samples: Vec<f64>) -> Self {
        Self {
            what: what.into(),
            unit,
            samples,
            alternative: None,
            goal: None,
        }
    }

    /// Creates a row of durations.
    pub(crate) fn times(what: impl Into<String>, times: &[Duration]) -> Self {
        Self::new(what, Unit::Seconds, seconds(times))
    }

    /// Adds the alternative, measured in the same run.
    pub(crate) fn beside(self, name: impl Into<String>, samples: Vec<f64>) -> Self {
        Self {
            alternative: Some((name.into(), samples)),
            ..self
        }
    }

    /// Adds what it must be.
    pub(crate) fn goal(self, goal: Goal) -> Self {
        Self {
            goal: Some(goal),
            ..self
        }
    }

    /// Adds what it must be, if that is known.
    pub(crate) fn goal_if_known(self, goal: Option<Goal>) -> Self {
        Self { goal, ..self }
    }

    /// Returns the title.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Returns the ratio of the medians, if the alternative was measured.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (_, others) = self.alternative.as_ref()?;
        let (own, other) = (median(&self.samples)?, median(others)?);
        (other > 0.0).then(|| own / other)
    }

    /// Returns the limit of the ratio.
    pub(crate) const fn ratio_limit(&self) -> Option<f64> {
        match self.goal {
            Some(Goal::RatioAtMost(limit) | Goal::RatioAtLeast(limit)) => Some(limit),
            Some(Goal::AtMost(_) | Goal::AtLeast(_)) | None => None,
        }
    }

    /// Returns whether the goal is met; `None` without a goal, or if it cannot be compared.
    pub(crate) fn is_met(&self) -> Option<bool> {
        match self.goal? {
            Goal::RatioAtMost(limit) => Some(self.ratio()? <= limit),
            Goal::RatioAtLeast(limit) => Some(self.ratio()? >= limit),
            Goal::AtMost(limit) => Some(median(&self.samples)? <= limit),
            Goal::AtLeast(limit) => Some(median(&self.samples)? >= limit),
        }
    }

    /// Returns the line of the Markdown table.
    fn line(&self) -> String {
        let shown = |samples: &[f64]| median(samples).map(|number| self.unit.show(number));
        let own = shown(&self.samples).unwrap_or_default();
        let alternative = self.alternative.as_ref().map(|(name, samples)| {
            shown(samples).map_or_else(|| name.clone(), |number| format!("{number}: {name}"))
        });
        let ratio = self.ratio().map(|ratio| format!("{ratio:.3}"));
        let goal = self.goal.map(|goal| match goal {
            Goal::RatioAtMost(limit) => format!("ratio <= {limit}"),
            Goal::RatioAtLeast(limit) => format!("ratio >= {limit}"),
            Goal::AtMost(limit) => format!("<= {}", self.unit.show(limit)),
            Goal::AtLeast(limit) => format!(">= {}", self.unit.show(limit)),
        });
        let met = self.is_met().map(|met| if met { "yes" } else { "**no**" });
        let cells = [alternative, ratio, goal, met.map(str::to_owned)].map(Option::unwrap_or_default);
        // An error may be the name of an alternative.
        let cells = cells.map(|cell| cell.replace(['\n', '|'], " "));
        format!("| {} | {own} | {} |", self.what, cells.join(" | "))
    }

    fn json(&self) -> Value {
        let (alternative, others) = self.alternative.clone().unwrap_or_default();
        let (kind, limit) = match self.goal {
            Some(Goal::RatioAtMost(limit)) => ("ratio at most", Some(limit)),
            Some(Goal::RatioAtLeast(limit)) => ("ratio at least", Some(limit)),
            Some(Goal::AtMost(limit)) => ("at most", Some(limit)),
            Some(Goal::AtLeast(limit)) => ("at least", Some(limit)),
            None => ("", None),
        };
        json!({ "what": self.what, "unit": self.unit.name(), "samples": self.samples, "median": median(&self.samples),
            "alternative": alternative, "alternativeSamples": others, "alternativeMedian": median(&others),
            "ratio": self.ratio(), "goal": kind, "limit": limit, "met": self.is_met() })
    }
}

/// The rows and curves of a run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    rows: Vec<Row>,
    curves: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Results {
    /// Adds a row, and prints it at once: a later part may fail.
    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("{}", row.line());
        self.rows.push(row);
    }

    /// Returns the titles of all rows.
    #[cfg(test)]
    pub(crate) fn titles(&self) -> Vec<&str> {
        self.rows.iter().map(Row::what).collect()
    }

    /// Adds a point to a curve: the megabytes of a repository, and seconds.
    pub(crate) fn point(&mut self, curve: &str, megabytes: f64, seconds: f64) {
        let points = self.curves.entry(curve.to_owned()).or_default();
        points.push((megabytes, seconds));
    }

    /// Returns the table as Markdown, with what it was measured on.
    pub(crate) fn text(&self, machine: &Machine) -> String {
        let mut text = machine.text();
        text.push_str(
            "\n| What | Sluice | Alternative | Ratio | Must be | Met |\n|---|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            // Writing to a String cannot fail.
            let _infallible = writeln!(text, "{}", row.line());
        }
        text
    }

    /// Writes `results.json`, `results.md`, `ratios.svg` and, with a curve, `push.svg`.
    pub(crate) fn write(&self, folder: &Path, machine: &Machine) -> Result<(), BoxError> {
        std::fs::create_dir_all(folder)?;
        let rows: Vec<_> = self.rows.iter().map(Row::json).collect();
        let all = json!({ "machine": machine.json(), "rows": rows, "curves": self.curves });
        std::fs::write(folder.join("results.json"), serde_json::to_vec_pretty(&all)?)?;
        std::fs::write(folder.join("results.md"), self.text(machine))?;
        std::fs::write(folder.join("ratios.svg"), plot::ratios(&self.rows))?;
        if !self.curves.is_empty() {
            std::fs::write(folder.join("push.svg"), plot::curves(&self.curves))?;
        }
        Ok(())
    }
}

/// Returns durations in seconds.
pub(crate) fn seconds(times: &[Duration]) -> Vec<f64> {
    times.iter().map(Duration::as_secs_f64).collect()
}

/// Returns a number as a sample.
#[expect(clippy::cast_precision_loss, reason = "numbers of a table, far below 2^52")]
pub(crate) const fn number(value: u64) -> f64 {
    value as f64
}

/// Returns the median; of an even number of samples, the upper one of the middle.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// Returns a percentile by the nearest-rank method: the least sample that at least this share of the samples does not exceed.
pub(crate) fn percentile(samples: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_sample_at_its_rank() {
        let samples: Vec<_> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&samples, 99), Some(198.0));
        assert_eq!(percentile(&samples, 100), Some(200.0));
        assert_eq!(percentile(&[0.5], 99), Some(0.5));
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn a_time_below_a_millisecond_has_its_own_unit() {
        let shown = [0.000_25, 0.0025, 0.0, 2.5].map(|seconds| Unit::Seconds.show(seconds));
        assert_eq!(shown, ["250 µs", "2.5 ms", "0.0 ms", "2.50 s"]);
    }

    #[test]
    fn a_row_says_whether_its_goal_is_met() {
        let row = |goal| {
            Row::new("fetch", Unit::Seconds, vec![0.3, 0.1, 0.2])
                .beside("git", vec![1.0, 2.0, 1.0])
                .goal(goal)
        };
        assert_eq!(row(Goal::RatioAtMost(0.25)).is_met(), Some(true));
        assert_eq!(row(Goal::RatioAtMost(0.1)).is_met(), Some(false));
        assert_eq!(row(Goal::RatioAtLeast(0.25)).is_met(), Some(false));
        assert_eq!(row(Goal::AtMost(0.2)).is_met(), Some(true));
        assert_eq!(row(Goal::AtLeast(0.2)).is_met(), Some(true));
        assert_eq!(row(Goal::AtLeast(0.25)).is_met(), Some(false));
        assert_eq!(
            row(Goal::RatioAtMost(0.25)).line(),
            "| fetch | 200.0 ms | 1.00 s: git | 0.200 | ratio <= 0.25 | yes |"
        );
    }

    #[test]
    fn a_row_without_its_alternative_says_why() {
        let row = Row::new("download", Unit::BytesPerSecond, vec![2e9])
            .beside("not installed", Vec::new())
            .goal(Goal::RatioAtLeast(1.0));
        assert_eq!((row.ratio(), row.is_met()), (None, None));
        assert_eq!(
            row.line(),
            "| download | 2000 MB/s | not installed |  | ratio >= 1 |  |"
        );
    }
}
