//! Limits of a rendering. They count work instead of time, so that results do not depend on the machine.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use gotmpl::Value;

use super::functions::Fault;

/// Length limit of a template.
pub const TEXT_LIMIT: usize = 1 << 20;
/// Length limit of a result.
pub const OUTPUT_LIMIT: usize = 4 << 20;
/// Size limit of a value, in bytes of its text.
pub(super) const VALUE_LIMIT: usize = 4 << 20;
/// Limit of the iterations of all `range` actions.
pub(super) const RANGE_LIMIT: u64 = 1_000_000;
/// Depth limit of lists and maps.
const DEPTH_LIMIT: usize = 100;
/// Limit of the work: about one unit for each byte that a function reads or creates.
const WORK_LIMIT: u64 = 512 << 20;
/// Work of an empty step.
const STEP_COST: u64 = 64;

/// The exceeded limit, since the error of the library does not name it.
const NONE: u8 = 0;
const TOO_MUCH_WORK: u8 = 1;
const OUTPUT_TOO_LONG: u8 = 2;
const VALUE_TOO_DEEP: u8 = 3;
const VALUE_TOO_LARGE: u8 = 4;

/// Counts the work of one rendering.
#[derive(Debug, Default)]
pub(super) struct WorkMeter {
    work: AtomicU64,
    exceeded: AtomicU8,
}

impl WorkMeter {
    /// Charges one step that processes this many bytes.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), Fault> {
        let cost = STEP_COST.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let before = self.work.fetch_add(cost, Ordering::Relaxed);
        if before.saturating_add(cost) > WORK_LIMIT {
            return Err(self.exceed(TOO_MUCH_WORK));
        }
        Ok(())
    }

    /// Charges an argument or a result of a function, and checks its size and depth.
    pub(super) fn charge_value(&self, value: &Value) -> Result<(), Fault> {
        let mut remaining = VALUE_LIMIT;
        match measure(value, 0, &mut remaining) {
            Measure::Ok => self.charge(VALUE_LIMIT - remaining),
            Measure::Large => Err(self.exceed(VALUE_TOO_LARGE)),
            Measure::Deep => Err(self.exceed(VALUE_TOO_DEEP)),
        }
    }

    /// Records that a function would create a value beyond the limit.
    pub(super) fn record_too_large(&self) {
        self.exceed(VALUE_TOO_LARGE);
    }

    fn exceed(&self, limit: u8) -> Fault {
        self.exceeded.store(limit, Ordering::Relaxed);
        Fault::new("over the limit")
    }

    /// Returns the exceeded limit.
    pub(super) fn exceeded(&self) -> Option<&'static str> {
        match self.exceeded.load(Ordering::Relaxed) {
            NONE => None,
            TOO_MUCH_WORK => Some("its work exceeds the limit"),
            OUTPUT_TOO_LONG => Some("its result is longer than 4 MiB"),
            VALUE_TOO_DEEP => Some("a value is nested deeper than 100 levels"),
            _ => Some("a value is larger than 4 MiB"),
        }
    }
}

enum Measure {
    Ok,
    Large,
    Deep,
}

fn measure(value: &Value, depth: usize, remaining: &mut usize) -> Measure {
    if depth > DEPTH_LIMIT {
        return Measure::Deep;
    }
    let own = match value {
        Value::String(text) => text.len() + 8,
        Value::Map(map) => map.keys().map(|key| key.len() + 8).sum::<usize>() + 8,
        _ => 8,
    };
    let Some(rest) = remaining.checked_sub(own) else {
        return Measure::Large;
    };
    *remaining = rest;
    let mut each = |item: &Value| measure(item, depth + 1, remaining);
    let is_exceeded = |measure: &Measure| !matches!(measure, Measure::Ok);
    let found = match value {
        Value::List(items) => items.iter().map(&mut each).find(is_exceeded),
        Value::Map(map) => map.values().map(&mut each).find(is_exceeded),
        _ => None,
    };
    found.unwrap_or(Measure::Ok)
}

/// The output of a rendering. Each write is a step, even if it is empty: every body of a template begins with one.
pub(super) struct Output<'a> {
    text: String,
    meter: &'a WorkMeter,
}

impl<'a> Output<'a> {
    pub(super) const fn new(meter: &'a WorkMeter) -> Self {
        Self {
            text: String::new(),
            meter,
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl fmt::Write for Output<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.meter.charge(text.len()).map_err(|_| fmt::Error)?;
        if self.text.len() + text.len() > OUTPUT_LIMIT {
            self.meter.exceed(OUTPUT_TOO_LONG);
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}
