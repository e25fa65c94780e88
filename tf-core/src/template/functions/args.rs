//! The arguments of a function, by type.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::Value;

use crate::template::limits::{VALUE_LIMIT, WorkMeter};

/// A function failed. The text names types and arguments, not values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::template) struct Fault {
    text: String,
    is_large: bool,
}

impl Fault {
    pub(in crate::template) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_large: false,
        }
    }

    pub(in crate::template) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the result would exceed the limit.
    pub(super) const fn is_large(&self) -> bool {
        self.is_large
    }

    /// Adds the name of the function to the text.
    pub(super) fn in_function(self, name: &str) -> Self {
        if name == "fail" || name.starts_with('\u{1}') {
            return self;
        }
        Self {
            text: format!("{name}: {}", self.text),
            ..self
        }
    }

    /// The result would exceed [`VALUE_LIMIT`].
    pub(super) fn too_large() -> Self {
        Self {
            text: format!("the result would be larger than {VALUE_LIMIT} bytes"),
            is_large: true,
        }
    }
}

/// The arguments of a call.
pub(in crate::template) struct Args<'a> {
    values: &'a [Value],
    meter: &'a WorkMeter,
}

impl<'a> Args<'a> {
    pub(super) const fn new(values: &'a [Value], meter: &'a WorkMeter) -> Self {
        Self { values, meter }
    }

    /// Charges work in addition to that of the arguments and the result.
    pub(super) fn charge(&self, work: usize) -> Result<(), Fault> {
        self.meter.charge(work)
    }

    /// Returns all arguments.
    pub(super) const fn all(&self) -> &'a [Value] {
        self.values
    }

    /// Checks for exactly this many arguments.
    pub(super) fn exactly(&self, count: usize) -> Result<(), Fault> {
        if self.values.len() == count {
            return Ok(());
        }
        Err(Fault::new(format!(
            "wrong number of arguments: want {count}, got {}",
            self.values.len()
        )))
    }

    /// Checks for at least this many arguments.
    pub(super) fn at_least(&self, count: usize) -> Result<(), Fault> {
        if self.values.len() >= count {
            return Ok(());
        }
        Err(Fault::new(format!(
            "wrong number of arguments: want at least {count}, got {}",
            self.values.len()
        )))
    }

    /// Returns an argument.
    pub(super) fn value(&self, index: usize) -> Result<&'a Value, Fault> {
        self.values.get(index).ok_or_else(|| {
            Fault::new(format!(
                "wrong number of arguments: argument {} is missing",
                index + 1
            ))
        })
    }

    /// Returns a string argument.
    pub(super) fn text(&self, index: usize) -> Result<&'a str, Fault> {
        match self.value(index)? {
            Value::String(text) => Ok(text),
            other => Err(mismatch(index, "string", other)),
        }
    }

    /// Returns an integer argument.
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

    /// Returns a list argument.
    pub(super) fn list(&self, index: usize) -> Result<&'a [Value], Fault> {
        match self.value(index)? {
            Value::List(items) => Ok(items),
            other => Err(mismatch(index, "list", other)),
        }
    }

    /// Returns a map argument.
    pub(super) fn map(&self, index: usize) -> Result<&'a Arc<BTreeMap<Arc<str>, Value>>, Fault> {
        match self.value(index)? {
            Value::Map(map) => Ok(map),
            other => Err(mismatch(index, "map", other)),
        }
    }

    /// Returns a boolean argument.
    pub(super) fn bool(&self, index: usize) -> Result<bool, Fault> {
        match self.value(index)? {
            Value::Bool(truth) => Ok(*truth),
            other => Err(mismatch(index, "bool", other)),
        }
    }
}

fn mismatch(index: usize, expected: &str, found: &Value) -> Fault {
    Fault::new(format!(
        "argument {} is a {}, not a {expected}",
        index + 1,
        found.type_name()
    ))
}

/// Builds a text up to [`VALUE_LIMIT`].
#[derive(Default)]
pub(super) struct TextBuilder(String);

impl TextBuilder {
    /// Checks that this many more bytes fit.
    pub(super) fn check(&self, more: usize) -> Result<(), Fault> {
        if self.0.len().saturating_add(more) > VALUE_LIMIT {
            return Err(Fault::too_large());
        }
        Ok(())
    }

    /// Adds a text.
    pub(super) fn push(&mut self, text: &str) -> Result<(), Fault> {
        self.check(text.len())?;
        self.0.push_str(text);
        Ok(())
    }

    /// Adds a text repeatedly.
    pub(super) fn push_times(&mut self, text: &str, times: usize) -> Result<(), Fault> {
        self.check(text.len().saturating_mul(times))?;
        self.0.extend(std::iter::repeat_n(text, times));
        Ok(())
    }

    /// Returns the text.
    pub(super) fn finish(self) -> Value {
        Value::String(self.0.into())
    }
}
