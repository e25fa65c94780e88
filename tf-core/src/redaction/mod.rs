//! Redaction of sensitive values in statuses, events and logs.
//!
//! Sensitive are values from Secrets, which the bundle lists, and values that the module, a provider or an output marks, as the JSON of
//! the plan shows. The CLI hides only marked values, and not in the errors of providers.

mod lines;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::OnceLock;

pub use lines::LineRedactor;
use regex::bytes::{NoExpand, Regex, RegexBuilder};
use serde_json::Value;

use crate::plan::document::{Change, PlanDocument};
use crate::plan::store::PlanContext;
use crate::redaction::lines::OpenWords;

/// Shorter values are not redacted: `true`, `prod` or `8080` would make texts unreadable.
pub const MIN_LENGTH: usize = 6;
/// Limit of the values. Beyond it, no text is shown.
const VALUE_LIMIT: usize = 10_000;
/// Replacement of a value.
pub(crate) const REDACTED: &str = "(sensitive)";
/// Bytes of a file that are searched at once. Values over several lines are found within a block.
const BLOCK: usize = 1 << 20;
/// Replacement of a text.
const SUPPRESSED: &str = "(not shown: it may contain a sensitive value)";

/// Length limit of a searched value. Longer values are found by their start and redacted to the end of the word.
const PATTERN_LIMIT: usize = 1024;
/// Memory limit of the compiled pattern, in bytes.
const COMPILED_LIMIT: usize = 64 << 20;

/// The sensitive values, and their redaction.
#[derive(Clone, Default)]
pub struct Redactor {
    values: BTreeSet<String>,
    /// Some values are unknown or beyond the limit.
    incomplete: bool,
    /// Compiled on first use after a value was added.
    matcher: OnceLock<Matcher>,
    /// Collected on first use after a value was added.
    open_words: OnceLock<OpenWords>,
}

impl Redactor {
    /// Adds each line of a value, plain and JSON-escaped, since errors quote single lines.
    pub fn add_text(&mut self, value: &str) {
        for line in value.lines().map(str::trim) {
            for text in [Some(line), assigned_value(line)].into_iter().flatten() {
                self.insert(text);
                let json = Value::from(text).to_string();
                let json = json.trim_matches('"');
                self.insert(json);
                self.insert(&escape_html(json));
            }
        }
    }

    fn insert(&mut self, text: &str) {
        if text.len() < MIN_LENGTH {
            return;
        }
        let end = (0..=text.len().min(PATTERN_LIMIT))
            .rev()
            .find(|&end| text.is_char_boundary(end))
            .unwrap_or_default();
        if self.values.contains(&text[..end]) {
            return;
        }
        self.matcher = OnceLock::new();
        self.open_words = OnceLock::new();
        if self.values.len() < VALUE_LIMIT {
            self.values.insert(text[..end].to_owned());
        } else {
            self.incomplete = true;
        }
    }

    /// Suppresses all texts, since some values are unknown.
    pub fn suppress_all(&mut self) {
        self.incomplete = true;
        self.matcher = OnceLock::new();
    }

    /// Whether some values are unknown.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Adds all strings and numbers of a value.
    pub fn add_json(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Number(number) => self.add_text(&number.to_string()),
            Value::Array(elements) => elements.iter().for_each(|element| self.add_json(element)),
            Value::Object(members) => members.values().for_each(|member| self.add_json(member)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Adds the parts of a value that are marked with `true`.
    fn add_marked(&mut self, value: &Value, marks: &Value) {
        match (value, marks) {
            (value, Value::Bool(true)) => self.add_json(value),
            (Value::Array(elements), Value::Array(marks)) => {
                for (element, mark) in elements.iter().zip(marks) {
                    self.add_marked(element, mark);
                }
            }
            (Value::Object(members), Value::Object(marks)) => {
                for (name, mark) in marks {
                    if let Some(member) = members.get(name) {
                        self.add_marked(member, mark);
                    }
                }
            }
            _ => {}
        }
    }

    fn add_change(&mut self, change: &Change) {
        self.add_marked(&change.before, &change.before_sensitive);
        self.add_marked(&change.after, &change.after_sensitive);
    }

    /// Adds the attributes, outputs and variables that a plan marks as sensitive.
    pub fn add_plan(&mut self, plan: &PlanDocument) {
        plan.resource_changes
            .iter()
            .for_each(|resource| self.add_change(&resource.change));
        plan.output_changes
            .values()
            .for_each(|change| self.add_change(change));
        plan.sensitive_variables().for_each(|value| self.add_json(value));
    }

    /// Adds the outputs and attributes that the JSON of a state marks as sensitive.
    pub fn add_state(&mut self, state: &Value) {
        let outputs = state.pointer("/values/outputs").and_then(Value::as_object);
        for output in outputs.into_iter().flat_map(serde_json::Map::values) {
            if output["sensitive"] == true {
                self.add_json(&output["value"]);
            }
        }
        let mut modules: Vec<&Value> = state.pointer("/values/root_module").into_iter().collect();
        while let Some(module) = modules.pop() {
            for resource in module["resources"].as_array().into_iter().flatten() {
                self.add_marked(&resource["values"], &resource["sensitive_values"]);
            }
            modules.extend(module["child_modules"].as_array().into_iter().flatten());
        }
    }

    /// Remembers the values of variables whose names say that they are secret. Others are not redacted: without a region, for example,
    /// many texts would be unreadable.
    pub fn add_environment(&mut self, environment: &BTreeMap<String, String>) {
        environment
            .iter()
            .filter(|(name, _)| is_sensitive_name(name))
            .for_each(|(_, value)| self.add_text(value));
    }

    /// Adds those of another.
    pub fn extend(&mut self, values: impl IntoIterator<Item = String>) {
        for value in values {
            self.insert(&value);
        }
    }

    /// Adds the values of a stored plan.
    pub fn add_stored_plan(&mut self, plan: &PlanContext) {
        self.extend(plan.secrets.iter().cloned());
        if plan.secrets_omitted {
            self.suppress_all();
        }
    }

    /// Returns the values, to store them in a Secret.
    #[must_use]
    pub fn values(&self) -> Vec<String> {
        self.values.iter().cloned().collect()
    }

    /// Redacts a text.
    #[must_use]
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.matcher() {
            Matcher::Empty => Cow::Borrowed(text),
            Matcher::Pattern(pattern) => {
                match pattern.replace_all(text.as_bytes(), NoExpand(REDACTED.as_bytes())) {
                    Cow::Borrowed(_) => Cow::Borrowed(text),
                    Cow::Owned(clean) => Cow::Owned(String::from_utf8_lossy(&clean).into_owned()),
                }
            }
            Matcher::TooMany if text.is_empty() => Cow::Borrowed(text),
            Matcher::TooMany => Cow::Owned(SUPPRESSED.to_owned()),
        }
    }

    /// Redacts all strings and numbers of a value.
    pub fn redact_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(clean) = self.redact(text) {
                    *text = clean;
                }
            }
            Value::Number(number) if self.incomplete || self.values.contains(&number.to_string()) => {
                *value = Value::from(REDACTED);
            }
            Value::Array(elements) => elements.iter_mut().for_each(|element| self.redact_json(element)),
            Value::Object(members) => members.values_mut().for_each(|member| self.redact_json(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Redacts a file by blocks of whole lines. The file is replaced only if it has a value.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn redact_file(&self, file: &Path) -> io::Result<()> {
        let pattern = match self.matcher() {
            Matcher::Empty => return Ok(()),
            Matcher::Pattern(pattern) => pattern,
            Matcher::TooMany => return File::create(file).map(drop),
        };
        let mut lines = BufReader::new(File::open(file)?);
        let folder = file.parent().unwrap_or_else(|| Path::new("."));
        let mut clean = BufWriter::new(tempfile::NamedTempFile::new_in(folder)?);
        let (mut block, mut found) = (Vec::new(), false);
        while read_block(&mut lines, &mut block)? {
            let without = pattern.replace_all(&block, NoExpand(REDACTED.as_bytes()));
            found |= matches!(without, Cow::Owned(_));
            clean.write_all(&without)?;
            block.clear();
        }
        let clean = clean.into_inner().map_err(io::IntoInnerError::into_error)?;
        if found {
            clean.persist(file).map_err(|error| error.error)?;
        }
        Ok(())
    }

    fn open_words(&self) -> &OpenWords {
        self.open_words.get_or_init(|| OpenWords::of(&self.values))
    }

    fn matcher(&self) -> &Matcher {
        self.matcher.get_or_init(|| {
            if self.incomplete {
                Matcher::TooMany
            } else {
                Matcher::of(&self.values)
            }
        })
    }
}

/// Reads a block of lines up to an empty line. Returns whether there were any.
fn read_block(lines: &mut impl BufRead, block: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let before = block.len();
        lines.read_until(b'\n', block)?;
        let ends = block[before..].trim_ascii().is_empty() && block.len() > BLOCK;
        if block.len() == before || ends || block.len() > 2 * BLOCK {
            return Ok(!block.is_empty());
        }
    }
}

/// Escapes three more characters, as the JSON encoder of Go does.
fn escape_html(json: &str) -> String {
    json.replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

/// Whether the name of a variable indicates a sensitive value. Names of files and URLs do not.
fn is_sensitive_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let has_word = [
        "SECRET",
        "TOKEN",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
    ]
    .iter()
    .any(|word| name.contains(word));
    let is_key = ["API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "ACCOUNT_KEY"]
        .iter()
        .any(|word| name.ends_with(word));
    let is_location = ["_FILE", "_PATH", "_URI", "_URL", "_PROFILE"]
        .iter()
        .any(|word| name.ends_with(word));
    (has_word || is_key) && !is_location
}

/// Returns the value of a line that assigns to a sensitive name: `token = "…"`, `"password": "…",`, `secret: …`.
fn assigned_value(line: &str) -> Option<&str> {
    let quotes: &[char] = &['"', '\'', ' ', '\t', ','];
    let (name, value) = line.split_once(['=', ':'])?;
    is_sensitive_name(name.trim_matches(quotes)).then(|| value.trim_matches(quotes))
}

/// The compiled search for the values.
#[derive(Clone)]
enum Matcher {
    Empty,
    Pattern(Regex),
    /// There are too many values: every text is suppressed.
    TooMany,
}

impl Matcher {
    /// Compiles the values, longest first, so that the longer of two values with the same start matches.
    fn of(values: &BTreeSet<String>) -> Self {
        if values.is_empty() {
            return Self::Empty;
        }
        let mut values: Vec<_> = values.iter().collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let patterns: Vec<_> = values.iter().map(|value| pattern(value)).collect();
        let built = RegexBuilder::new(&patterns.join("|"))
            .unicode(false)
            .size_limit(COMPILED_LIMIT)
            .build();
        built.map_or(Self::TooMany, Self::Pattern)
    }
}

/// Returns the pattern of a value. The CLI breaks lines at white space and prefixes them by a bar. A truncated value matches up to the
/// end of its word.
fn pattern(value: &str) -> String {
    let words: Vec<_> = value.split_ascii_whitespace().map(regex::escape).collect();
    let pattern = words.join("(?:[ \\t\\r\\n\\x0c|]|\u{2502})+");
    if value.len() + 4 > PATTERN_LIMIT {
        format!("{pattern}[^ \\t\\r\\n]*")
    } else {
        pattern
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({})", self.values.len())
    }
}

#[cfg(test)]
mod tests;
