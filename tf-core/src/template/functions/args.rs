//! The arguments of a function, by type.

use crate::template::budget::{Budget, VALUE_LIMIT};
use gotmpl::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a function gives no value. Names types and arguments, never values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::template) struct Fault {
    text: String,
    large: bool,
}

impl Fault {
    /// A fault with a text.
    pub(in crate::template) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            large: false,
        }
    }

    /// The text.
    pub(in crate::template) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is the size of the result.
    pub(super) const fn is_large(&self) -> bool {
        self.large
    }

    /// The fault of a function: its text begins with the name.
    pub(super) fn of(self, name: &str) -> Self {
        if name == "fail" || name.starts_with('\u{1}') {
            return self;
        }
        Self {
            text: format!("{name}: {}", self.text),
            ..self
        }
    }

    /// The result would be larger than a value may be.
    pub(super) fn too_large() -> Self {
        Self {
            text: format!("the result would be larger than {VALUE_LIMIT} bytes"),
            large: true,
        }
    }
}

/// What a function was given.
pub(in crate::template) struct Args<'a> {
    values: &'a [Value],
    budget: &'a Budget,
}

impl<'a> Args<'a> {
    pub(super) const fn new(values: &'a [Value], budget: &'a Budget) -> Self {
        Self { values, budget }
    }

    /// Counts work beyond that of reading arguments and making a value.
    pub(super) fn charge(&self, work: usize) -> Result<(), Fault> {
        self.budget.charge(work)
    }

    /// All of them, however many.
    pub(super) const fn all(&self) -> &'a [Value] {
        self.values
    }

    /// Exactly so many.
    pub(super) fn exactly(&self, count: usize) -> Result<(), Fault> {
        if self.values.len() == count {
            return Ok(());
        }
        Err(Fault::new(format!(
            "wrong number of arguments: want {count}, got {}",
            self.values.len()
        )))
    }

    /// At least so many.
    pub(super) fn at_least(&self, count: usize) -> Result<(), Fault> {
        if self.values.len() >= count {
            return Ok(());
        }
        Err(Fault::new(format!(
            "wrong number of arguments: want at least {count}, got {}",
            self.values.len()
        )))
    }

    /// One of them.
    pub(super) fn value(&self, index: usize) -> Result<&'a Value, Fault> {
        self.values.get(index).ok_or_else(|| {
            Fault::new(format!(
                "wrong number of arguments: argument {} is missing",
                index + 1
            ))
        })
    }

    /// A string.
    pub(super) fn text(&self, index: usize) -> Result<&'a str, Fault> {
        match self.value(index)? {
            Value::String(text) => Ok(text),
            other => Err(mismatch(index, "string", other)),
        }
    }

    /// A whole number.
    pub(super) fn int(&self, index: usize) -> Result<i64, Fault> {
        match self.value(index)? {
            Value::Int(number) => Ok(*number),
            Value::Uint(number) => i64::try_from(*number).map_err(|_| Fault::new("a number is too large")),
            Value::Float(_) => Err(Fault::new(format!(
                "argument {} is a float64, not an int: numbers of the data are floats, write (int ..)",
                index + 1
            ))),
            other => Err(mismatch(index, "int", other)),
        }
    }

    /// A list.
    pub(super) fn list(&self, index: usize) -> Result<&'a [Value], Fault> {
        match self.value(index)? {
            Value::List(items) => Ok(items),
            other => Err(mismatch(index, "list", other)),
        }
    }

    /// A map.
    pub(super) fn map(&self, index: usize) -> Result<&'a Arc<BTreeMap<Arc<str>, Value>>, Fault> {
        match self.value(index)? {
            Value::Map(map) => Ok(map),
            other => Err(mismatch(index, "map", other)),
        }
    }

    /// A truth.
    pub(super) fn truth(&self, index: usize) -> Result<bool, Fault> {
        match self.value(index)? {
            Value::Bool(truth) => Ok(*truth),
            other => Err(mismatch(index, "bool", other)),
        }
    }
}

fn mismatch(index: usize, wanted: &str, found: &Value) -> Fault {
    Fault::new(format!(
        "argument {} is a {}, not a {wanted}",
        index + 1,
        found.type_name()
    ))
}

/// A text that grows up to the limit of a value.
#[derive(Default)]
pub(super) struct Grown(String);

impl Grown {
    /// Whether so many bytes more fit.
    pub(super) fn fits(&self, more: usize) -> Result<(), Fault> {
        if self.0.len().saturating_add(more) > VALUE_LIMIT {
            return Err(Fault::too_large());
        }
        Ok(())
    }

    /// Adds a text.
    pub(super) fn push(&mut self, text: &str) -> Result<(), Fault> {
        self.fits(text.len())?;
        self.0.push_str(text);
        Ok(())
    }

    /// Adds a text so many times.
    pub(super) fn push_times(&mut self, text: &str, times: usize) -> Result<(), Fault> {
        self.fits(text.len().saturating_mul(times))?;
        self.0.extend(std::iter::repeat_n(text, times));
        Ok(())
    }

    /// The whole.
    pub(super) fn done(self) -> Value {
        Value::String(self.0.into())
    }
}
