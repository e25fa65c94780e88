//! What a rendering may cost. Everything is counted, nothing is timed: the same template ends the same way everywhere.

use super::functions::Fault;
use gotmpl::Value;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Longest template.
pub const TEXT_LIMIT: usize = 1 << 20;
/// Longest result.
pub const OUTPUT_LIMIT: usize = 4 << 20;
/// Largest value of an expression, in bytes as they would be written.
pub(super) const VALUE_LIMIT: usize = 4 << 20;
/// Most iterations of all `range` together.
pub(super) const RANGE_LIMIT: u64 = 1_000_000;
/// Deepest nesting of lists and maps that a function makes.
const DEPTH_LIMIT: usize = 100;
/// Most units of work: about one for each byte that a function reads or makes.
const WORK_LIMIT: u64 = 512 << 20;
/// Work of a step, however small.
const STEP: u64 = 64;

/// What ran out, so that the error is told as what it is and not as the library's.
const FINE: u8 = 0;
const NO_WORK: u8 = 1;
const NO_ROOM: u8 = 2;
const TOO_DEEP: u8 = 3;
const TOO_LARGE: u8 = 4;

/// The account of one rendering.
#[derive(Debug, Default)]
pub(super) struct Budget {
    work: AtomicU64,
    over: AtomicU8,
}

impl Budget {
    /// One step, with so many bytes of work.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), Fault> {
        let cost = STEP.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let before = self.work.fetch_add(cost, Ordering::Relaxed);
        if before.saturating_add(cost) > WORK_LIMIT {
            return Err(self.end(NO_WORK));
        }
        Ok(())
    }

    /// A value that a function was given or has made: counted, and neither too large nor too deep.
    pub(super) fn value(&self, value: &Value) -> Result<(), Fault> {
        let mut left = VALUE_LIMIT;
        match measure(value, 0, &mut left) {
            Measure::Fine => self.charge(VALUE_LIMIT - left),
            Measure::Large => Err(self.end(TOO_LARGE)),
            Measure::Deep => Err(self.end(TOO_DEEP)),
        }
    }

    /// A function would make more than a value may hold.
    pub(super) fn too_large(&self) {
        self.end(TOO_LARGE);
    }

    fn end(&self, what: u8) -> Fault {
        self.over.store(what, Ordering::Relaxed);
        Fault::new("over the limit")
    }

    /// What ran out, if anything did.
    pub(super) fn exceeded(&self) -> Option<&'static str> {
        match self.over.load(Ordering::Relaxed) {
            FINE => None,
            NO_WORK => Some("it does more work than a template may"),
            NO_ROOM => Some("its result is longer than 4 MiB"),
            TOO_DEEP => Some("a value is nested deeper than 100 levels"),
            _ => Some("a value is larger than 4 MiB"),
        }
    }
}

enum Measure {
    Fine,
    Large,
    Deep,
}

fn measure(value: &Value, depth: usize, left: &mut usize) -> Measure {
    if depth > DEPTH_LIMIT {
        return Measure::Deep;
    }
    let own = match value {
        Value::String(text) => text.len() + 8,
        Value::Map(map) => map.keys().map(|key| key.len() + 8).sum::<usize>() + 8,
        _ => 8,
    };
    let Some(rest) = left.checked_sub(own) else {
        return Measure::Large;
    };
    *left = rest;
    let mut each = |item: &Value| measure(item, depth + 1, left);
    let unfine = |seen: &Measure| !matches!(seen, Measure::Fine);
    let found = match value {
        Value::List(items) => items.iter().map(&mut each).find(unfine),
        Value::Map(map) => map.values().map(&mut each).find(unfine),
        _ => None,
    };
    found.unwrap_or(Measure::Fine)
}

/// Takes what is rendered. Each write is a step, empty ones too: every body of the template begins with one.
pub(super) struct Output<'a> {
    text: String,
    budget: &'a Budget,
}

impl<'a> Output<'a> {
    pub(super) const fn new(budget: &'a Budget) -> Self {
        Self {
            text: String::new(),
            budget,
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl fmt::Write for Output<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.budget.charge(text.len()).map_err(|_| fmt::Error)?;
        if self.text.len() + text.len() > OUTPUT_LIMIT {
            self.budget.end(NO_ROOM);
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}
