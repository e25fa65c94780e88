//! Values that nobody may read in a status, an event or a log, and texts without them.
//!
//! Known are the values that came out of Secrets, which the bundle lists, and those that the module, a provider or an output
//! marks as sensitive, as the plan's JSON tells. The CLI hides only what is marked, and what a provider puts into an error it
//! hides not at all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::OnceLock;

use regex::bytes::{NoExpand, Regex, RegexBuilder};
use serde_json::Value;

use crate::plan::document::{Change, PlanDocument};

/// Shorter values are not hidden: `true`, `prod` or `8080` would make every text unreadable and are no secret's worth.
pub const SHORTEST: usize = 6;
/// Most values that are remembered; the longest are dropped last.
const MOST: usize = 10_000;
/// Longest part of a value that is looked for; what is longer is found by its beginning, and goes to its end.
const LONGEST: usize = 1024;
/// Most memory of the compiled search, in bytes.
const SEARCH_LIMIT: usize = 64 << 20;
/// What stands in a value's place.
const HIDDEN: &str = "(sensitive)";

/// The values.
#[derive(Clone, Default)]
pub struct Secrets {
    values: BTreeSet<String>,
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
                self.remember(json.trim_matches('"'));
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
        if !self.values.insert(text[..end].to_owned()) {
            return;
        }
        self.search = OnceLock::new();
        if self.values.len() > MOST
            && let Some(shortest) = self.values.iter().min_by_key(|value| value.len()).cloned()
        {
            self.values.remove(&shortest);
        }
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
            Search::Impossible => Cow::Borrowed("(not shown: it may hold a sensitive value)"),
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
            Value::Number(number) if self.values.contains(&number.to_string()) => {
                *value = Value::from(HIDDEN);
            }
            Value::Array(elements) => elements.iter_mut().for_each(|element| self.hide_in(element)),
            Value::Object(members) => members.values_mut().for_each(|member| self.hide_in(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Takes the values out of a file, line by line. The file is written anew only if one is in it.
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
        let (mut line, mut found) = (Vec::new(), false);
        while lines.read_until(b'\n', &mut line)? > 0 {
            let without = values.replace_all(&line, NoExpand(HIDDEN.as_bytes()));
            found |= matches!(without, Cow::Owned(_));
            clean.write_all(&without)?;
            line.clear();
        }
        let clean = clean.into_inner().map_err(io::IntoInnerError::into_error)?;
        if found {
            clean.persist(file).map_err(|error| error.error)?;
        }
        Ok(())
    }

    fn search(&self) -> &Search {
        self.search.get_or_init(|| Search::of(&self.values))
    }
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

/// A value as it stands in a text: the CLI breaks its own lines where there is white space, and draws a bar before each. What
/// was cut goes to the end of its word.
fn pattern(value: &str) -> String {
    let words: Vec<_> = value.split_ascii_whitespace().map(regex::escape).collect();
    let pattern = words.join("(?:[ \\t\\r\\n\\x0c|]|\u{2502})+");
    if value.len() + 4 > LONGEST {
        format!("{pattern}[^ \\t\\r\\n]*")
    } else {
        pattern
    }
}

/// How the values are looked for.
#[derive(Clone)]
enum Search {
    Nothing,
    For(Regex),
    /// There are too many: nothing is shown at all.
    Impossible,
}

impl Search {
    /// Longest first: of two values of which one begins with the other, the whole longer one goes.
    fn of(values: &BTreeSet<String>) -> Self {
        if values.is_empty() {
            return Self::Nothing;
        }
        let mut values: Vec<_> = values.iter().collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let each: Vec<_> = values.iter().map(|value| pattern(value)).collect();
        let built = RegexBuilder::new(&each.join("|"))
            .unicode(false)
            .size_limit(SEARCH_LIMIT)
            .build();
        built.map_or(Self::Impossible, Self::For)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn knowing(values: &[&str]) -> Secrets {
        let mut secrets = Secrets::default();
        for value in values {
            secrets.learn(value);
        }
        secrets
    }

    #[test]
    fn a_value_goes_whole_and_short_ones_stay() {
        let secrets = knowing(&["hunter2", "hunter2-and-more", "true", "a\\b\"c-d"]);
        assert_eq!(
            secrets.hide("x hunter2-and-more, hunter2; true"),
            "x (sensitive), (sensitive); true"
        );
        assert_eq!(secrets.hide(r#"{"k":"a\\b\"c-d"}"#), r#"{"k":"(sensitive)"}"#);
        assert_eq!(secrets.hide("nothing"), "nothing");
        assert_eq!(format!("{secrets:?}"), "Secrets(4)");
        let mut value = json!({ "a": ["<hunter2>", 1_234_567, 12], "b": null });
        let mut secrets = secrets;
        secrets.learn_all(&json!(1_234_567));
        secrets.hide_in(&mut value);
        assert_eq!(
            value,
            json!({ "a": ["<(sensitive)>", "(sensitive)", 12], "b": null })
        );
    }

    #[test]
    fn a_value_with_spaces_is_found_where_the_cli_breaks_its_lines_and_a_long_one_goes_whole() {
        let secrets = knowing(&["my long secret phrase"]);
        for text in [
            "x my long\n  secret phrase y",
            "x my long\n\u{2502} secret  phrase y",
        ] {
            assert_eq!(secrets.hide(text), "x (sensitive) y");
        }
        assert_eq!(secrets.hide("my long secret"), "my long secret");
        let long = "k".repeat(3 * LONGEST);
        assert_eq!(
            knowing(&[&long]).hide(&format!("bad token {long} given")),
            "bad token (sensitive) given"
        );
    }

    #[test]
    fn a_state_tells_what_is_sensitive_and_names_of_variables_do() {
        let mut secrets = Secrets::default();
        secrets.learn_state(&json!({ "values": {
            "outputs": { "o": { "sensitive": true, "value": "output-value" }, "p": { "sensitive": false, "value": "open-output" } },
            "root_module": { "resources": [{ "values": { "a": "attribute-one", "b": "open-value" }, "sensitive_values": { "a": true } }],
                "child_modules": [{ "resources": [{ "values": { "l": ["open-text", "inner-value"] },
                    "sensitive_values": { "l": [false, true] } }] }] } } }));
        secrets.learn_environment(&BTreeMap::from(
            [
                ("AWS_SECRET_ACCESS_KEY", "access-key-value"),
                ("TF_TOKEN_app_terraform_io", "token-value"),
                ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
                ("AWS_REGION", "eu-central-1"),
                ("KEYBOARD", "qwertz-layout"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        ));
        assert_eq!(
            secrets.values(),
            [
                "access-key-value",
                "attribute-one",
                "inner-value",
                "output-value",
                "token-value"
            ]
        );
    }

    #[test]
    fn what_a_configuration_gives_to_a_secret_name_is_found_by_itself() {
        let secrets = knowing(&[
            "credentials \"host\" {\n  token = \"token-value\"\n  region = \"eu-west-1\"\n}",
            "{\n  \"password\": \"json-value\",\n  \"user\": \"somebody\"\n}",
            "secret_key: yaml-value",
        ]);
        assert_eq!(
            secrets.hide("token-value json-value yaml-value eu-west-1 somebody"),
            "(sensitive) (sensitive) (sensitive) eu-west-1 somebody"
        );
    }

    #[test]
    fn lines_are_found_by_themselves_and_indented() {
        let key = "-----BEGIN KEY-----\n  abcdefgh\n-----END KEY-----\n";
        let shown = knowing(&[key])
            .hide("| 1: -----BEGIN KEY-----\n|    abcdefgh\n")
            .into_owned();
        assert_eq!(shown, "| 1: (sensitive)\n|    (sensitive)\n");
    }

    #[test]
    fn a_plan_tells_what_is_sensitive() {
        let plan: PlanDocument = serde_json::from_value(json!({
            "resource_changes": [{ "address": "a.b", "type": "a", "change": { "actions": ["update"],
                "before": { "p": "old-password", "q": "open-value" }, "before_sensitive": { "p": true },
                "after": { "p": "new-password", "l": ["plain-text", "hidden-text"] },
                "after_sensitive": { "p": true, "l": [false, true] } } }],
            "output_changes": { "o": { "actions": ["create"], "after": { "k": "output-value" }, "after_sensitive": true } },
            "variables": { "token": { "value": "token-value" }, "region": { "value": "eu-west-1" } },
            "configuration": { "root_module": { "variables": { "token": { "sensitive": true }, "region": {} } } },
        }))
        .unwrap();
        let mut secrets = Secrets::default();
        secrets.learn_plan(&plan);
        assert_eq!(
            secrets.values(),
            [
                "hidden-text",
                "new-password",
                "old-password",
                "output-value",
                "token-value"
            ]
        );
    }

    #[test]
    fn a_file_is_cleaned_in_place_and_left_alone_if_it_is_clean() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        std::fs::write(&file, b"a hunter2\n\xff\nb hunter2").unwrap();
        knowing(&["hunter2"]).clean(&file).unwrap();
        assert_eq!(
            std::fs::read(&file).unwrap(),
            b"a (sensitive)\n\xff\nb (sensitive)"
        );
        let before = std::fs::metadata(&file).unwrap().modified().unwrap();
        knowing(&["hunter2"]).clean(&file).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn nothing_known_is_ever_shown(
            values in proptest::collection::vec("\\PC{6,20}", 1..5),
            around in "\\PC{0,10}",
        ) {
            let secrets = knowing(&values.iter().map(String::as_str).collect::<Vec<_>>());
            for value in &values {
                let shown = secrets.hide(&format!("{around}{value}{around}")).into_owned();
                let whole = value.trim();
                prop_assert!(whole.len() < SHORTEST || HIDDEN.contains(whole) || !shown.contains(whole) , "{shown}");
            }
        }
    }
}
