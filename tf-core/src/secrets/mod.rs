//! Values that nobody may read in a status, an event or a log, and texts without them.
//!
//! Known are the values that came out of Secrets, which the bundle lists, and those that the module, a provider or an output
//! marks as sensitive, as the plan's JSON tells. The CLI hides only what is marked, and what a provider puts into an error it
//! hides not at all.

mod search;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::OnceLock;

use regex::bytes::NoExpand;
use serde_json::Value;

use crate::plan::document::{Change, PlanDocument};
use crate::plan::store::PlanContext;
use search::{LONGEST, Search};

/// Shorter values are not hidden: `true`, `prod` or `8080` would make every text unreadable and are no secret's worth.
pub const SHORTEST: usize = 6;
/// Most values that are looked for. Where there are more, no text is shown at all.
const MOST: usize = 10_000;
/// What stands in a value's place.
pub const HIDDEN: &str = "(sensitive)";
/// How much of a file is looked at in one go. A value that the CLI broke into lines is found in it.
const BLOCK: usize = 1 << 20;
/// What stands in a text's place.
const NOT_SHOWN: &str = "(not shown: it may hold a sensitive value)";

/// The values.
#[derive(Clone, Default)]
pub struct Secrets {
    values: BTreeSet<String>,
    /// There were more values than are remembered, or some could not be learnt.
    incomplete: bool,
    /// Made when it is first needed after a value was learnt.
    search: OnceLock<Search>,
}

impl Secrets {
    /// Remembers a value: each of its lines, since errors quote line by line, as it is and as JSON writes it.
    pub fn learn(&mut self, value: &str) {
        for line in value.lines().map(str::trim) {
            for text in [Some(line), assigned(line)].into_iter().flatten() {
                self.remember(text);
                let json = Value::from(text).to_string();
                let json = json.trim_matches('"');
                self.remember(json);
                self.remember(&as_go_writes(json));
            }
        }
    }

    fn remember(&mut self, text: &str) {
        if text.len() < SHORTEST {
            return;
        }
        let end = (0..=text.len().min(LONGEST))
            .rev()
            .find(|&end| text.is_char_boundary(end))
            .unwrap_or_default();
        if self.values.contains(&text[..end]) {
            return;
        }
        self.search = OnceLock::new();
        if self.values.len() < MOST {
            self.values.insert(text[..end].to_owned());
        } else {
            self.incomplete = true;
        }
    }

    /// Says that there are values that are not known: from now on no text is shown.
    pub fn give_up(&mut self) {
        self.incomplete = true;
        self.search = OnceLock::new();
    }

    /// Whether there are values that are not known.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Remembers every text and number in a value.
    pub fn learn_all(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.learn(text),
            Value::Number(number) => self.learn(&number.to_string()),
            Value::Array(elements) => elements.iter().for_each(|element| self.learn_all(element)),
            Value::Object(members) => members.values().for_each(|member| self.learn_all(member)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Remembers the parts of a value that `marks` marks with `true`, as the plan's JSON does.
    fn learn_marked(&mut self, value: &Value, marks: &Value) {
        match (value, marks) {
            (value, Value::Bool(true)) => self.learn_all(value),
            (Value::Array(elements), Value::Array(marks)) => {
                for (element, mark) in elements.iter().zip(marks) {
                    self.learn_marked(element, mark);
                }
            }
            (Value::Object(members), Value::Object(marks)) => {
                for (name, mark) in marks {
                    if let Some(member) = members.get(name) {
                        self.learn_marked(member, mark);
                    }
                }
            }
            _ => {}
        }
    }

    fn learn_change(&mut self, change: &Change) {
        self.learn_marked(&change.before, &change.before_sensitive);
        self.learn_marked(&change.after, &change.after_sensitive);
    }

    /// Remembers what a plan marks as sensitive: attributes, outputs and variables.
    pub fn learn_plan(&mut self, plan: &PlanDocument) {
        plan.resource_changes
            .iter()
            .for_each(|resource| self.learn_change(&resource.change));
        plan.output_changes
            .values()
            .for_each(|change| self.learn_change(change));
        plan.sensitive_variables().for_each(|value| self.learn_all(value));
    }

    /// Remembers what the JSON of a state marks as sensitive: outputs, and attributes of resources in all modules.
    pub fn learn_state(&mut self, state: &Value) {
        let outputs = state.pointer("/values/outputs").and_then(Value::as_object);
        for output in outputs.into_iter().flat_map(serde_json::Map::values) {
            if output["sensitive"] == true {
                self.learn_all(&output["value"]);
            }
        }
        let mut modules: Vec<&Value> = state.pointer("/values/root_module").into_iter().collect();
        while let Some(module) = modules.pop() {
            for resource in module["resources"].as_array().into_iter().flatten() {
                self.learn_marked(&resource["values"], &resource["sensitive_values"]);
            }
            modules.extend(module["child_modules"].as_array().into_iter().flatten());
        }
    }

    /// Remembers the values of variables whose names say that they are secret. Others of an environment are no secret's
    /// worth: hiding a region would make every text unreadable.
    pub fn learn_environment(&mut self, environment: &BTreeMap<String, String>) {
        environment
            .iter()
            .filter(|(name, _)| is_secretive(name))
            .for_each(|(_, value)| self.learn(value));
    }

    /// Adds those of another.
    pub fn extend(&mut self, values: impl IntoIterator<Item = String>) {
        for value in values {
            self.remember(&value);
        }
    }

    /// Adds those that a stored plan was kept with.
    pub fn learn_stored(&mut self, plan: &PlanContext) {
        self.extend(plan.secrets.iter().cloned());
        if plan.secrets_omitted {
            self.give_up();
        }
    }

    /// The values, for those who keep them in a Secret.
    #[must_use]
    pub fn values(&self) -> Vec<String> {
        self.values.iter().cloned().collect()
    }

    /// The text without the values.
    #[must_use]
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.search() {
            Search::Nothing => Cow::Borrowed(text),
            Search::For(values) => match values.replace_all(text.as_bytes(), NoExpand(HIDDEN.as_bytes())) {
                Cow::Borrowed(_) => Cow::Borrowed(text),
                Cow::Owned(clean) => Cow::Owned(String::from_utf8_lossy(&clean).into_owned()),
            },
            Search::Impossible if text.is_empty() => Cow::Borrowed(text),
            Search::Impossible => Cow::Owned(NOT_SHOWN.to_owned()),
        }
    }

    /// Takes the values out of every text of a value, and numbers that are such a value.
    pub fn hide_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(clean) = self.hide(text) {
                    *text = clean;
                }
            }
            Value::Number(number) if self.incomplete || self.values.contains(&number.to_string()) => {
                *value = Value::from(HIDDEN);
            }
            Value::Array(elements) => elements.iter_mut().for_each(|element| self.hide_in(element)),
            Value::Object(members) => members.values_mut().for_each(|member| self.hide_in(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Takes the values out of a file, by blocks of whole lines. The file is written anew only if one is in it.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn clean(&self, file: &Path) -> io::Result<()> {
        let values = match self.search() {
            Search::Nothing => return Ok(()),
            Search::For(values) => values,
            Search::Impossible => return File::create(file).map(drop),
        };
        let mut lines = BufReader::new(File::open(file)?);
        let folder = file.parent().unwrap_or_else(|| Path::new("."));
        let mut clean = BufWriter::new(tempfile::NamedTempFile::new_in(folder)?);
        let (mut block, mut found) = (Vec::new(), false);
        while read_block(&mut lines, &mut block)? {
            let without = values.replace_all(&block, NoExpand(HIDDEN.as_bytes()));
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

    fn search(&self) -> &Search {
        self.search.get_or_init(|| {
            if self.incomplete {
                Search::Impossible
            } else {
                Search::of(&self.values)
            }
        })
    }
}

/// Reads lines up to a block, and then to the end of what stands together; tells whether there were any.
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

/// As the CLI's own JSON has a text, in which these three are escaped.
fn as_go_writes(json: &str) -> String {
    json.replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

/// Whether a variable of this name holds a secret, as far as a name can tell. Such as name a file do not.
fn is_secretive(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let tells = [
        "SECRET",
        "TOKEN",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
    ]
    .iter()
    .any(|word| name.contains(word));
    let key = ["API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "ACCOUNT_KEY"]
        .iter()
        .any(|word| name.ends_with(word));
    let place = ["_FILE", "_PATH", "_URI", "_URL", "_PROFILE"]
        .iter()
        .any(|word| name.ends_with(word));
    (tells || key) && !place
}

/// What a line of a configuration gives to a name that says that it is secret: `token = "…"`, `"password": "…",`, `secret: …`.
fn assigned(line: &str) -> Option<&str> {
    let quotes: &[char] = &['"', '\'', ' ', '\t', ','];
    let (name, value) = line.split_once(['=', ':'])?;
    is_secretive(name.trim_matches(quotes)).then(|| value.trim_matches(quotes))
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.values.len())
    }
}

#[cfg(test)]
mod tests;
