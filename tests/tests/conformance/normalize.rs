//! Normalizes responses: replaces identities, versions, times and random names, which two servers cannot share.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::server::Response;

/// Maximum length of a value in a message.
const MAX_VALUE_LENGTH: usize = 600;
/// Represents an absent value.
pub(crate) const ABSENT: &str = "(absent)";

/// Returns the normalized response as one value.
pub(crate) fn value(response: &Response) -> Value {
    let mut body = response.body.clone();
    normalise(&mut body);
    json!({ "status": response.status, "headers": response.headers, "body": body })
}

/// A difference between two responses.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The number of the step and the path of the value.
    pub(crate) path: String,
    /// The real server's value; strings as they are, other values as JSON.
    pub(crate) real: String,
    /// The embedded API's value.
    pub(crate) embedded: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| text.chars().take(MAX_VALUE_LENGTH).collect::<String>();
        let (real, embedded) = (short(&self.real), short(&self.embedded));
        write!(
            f,
            "   {}\n      real     {real}\n      embedded {embedded}",
            self.path
        )
    }
}

/// Compares two values recursively.
pub(crate) fn differences(path: &str, one: Option<&Value>, other: Option<&Value>) -> Vec<Difference> {
    match (one, other) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            keys.into_iter()
                .flat_map(|key| differences(&format!("{path}.{key}"), a.get(key), b.get(key)))
                .collect()
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            let places = 0..a.len().max(b.len());
            places
                .flat_map(|at| differences(&format!("{path}[{at}]"), a.get(at), b.get(at)))
                .collect()
        }
        _ if one == other => Vec::new(),
        _ => vec![Difference {
            path: path.to_owned(),
            real: text(one),
            embedded: text(other),
        }],
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        None => ABSENT.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn normalise(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Object(fields) => {
            // Writers, old links and storage fingerprints are not compared.
            for key in ["managedFields", "selfLink", "storageVersionHash"] {
                fields.remove(key);
            }
            causes(fields);
            // An empty token is equivalent to an absent one.
            if fields.get("continue").is_some_and(|token| token == "") {
                fields.remove("continue");
            }
            let prefix = fields
                .get("generateName")
                .and_then(Value::as_str)
                .map(str::to_owned);
            for (key, value) in fields.iter_mut() {
                match (key.as_str(), &mut *value) {
                    ("uid", Value::String(text)) => *text = "<uid>".into(),
                    // The servers encode different things in it.
                    ("continue", Value::String(text)) => *text = "<token>".into(),
                    ("resourceVersion", Value::String(text)) if !text.is_empty() => {
                        *text = "<version>".into();
                    }
                    ("token", Value::String(text)) if text.starts_with("ey") => {
                        *text = "<account token>".into();
                    }
                    (
                        "creationTimestamp"
                        | "deletionTimestamp"
                        | "expirationTimestamp"
                        | "lastTransitionTime",
                        Value::String(text),
                    ) => {
                        *text = "<time>".into();
                    }
                    ("message", Value::String(text)) => *text = message(text),
                    // Verbs are a set; the server lists them in the order of its handlers.
                    ("verbs", Value::Array(verbs)) => verbs.sort_by_key(Value::to_string),
                    // The kinds of a group are listed in the order of a Go map.
                    ("resources", Value::Array(kinds)) => {
                        kinds.iter_mut().for_each(normalise);
                        // Aggregated discovery has another field for the name.
                        kinds.sort_by_cached_key(|kind| {
                            (kind["name"].to_string(), kind["resource"].to_string())
                        });
                    }
                    ("cells", Value::Array(cells)) => cells.iter_mut().for_each(age),
                    ("name", Value::String(name)) => {
                        if let Some(prefix) = &prefix
                            && name.len() == prefix.len() + 5
                            && name.starts_with(prefix)
                        {
                            *name = format!("{prefix}<random>");
                        }
                    }
                    _ => normalise(value),
                }
            }
        }
        _ => {}
    }
}

/// Replaces the age of an object, `<digits><unit>`.
fn age(cell: &mut Value) {
    if let Value::String(text) = cell {
        let digits = text.trim_end_matches(['s', 'm', 'h', 'd']);
        if digits.len() + 1 == text.len() && digits.parse::<u64>().is_ok() {
            *text = "<age>".into();
        }
    }
}

/// Replaces uids and versions in a message.
fn message(text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let uid = bare.len() == 36 && bare.chars().filter(|c| *c == '-').count() == 4;
        let version = word.starts_with('(') && word.contains(')') && bare.parse::<u64>().is_ok();
        match (uid, version) {
            (true, _) => word.replace(bare, "<uid>"),
            (_, true) => word.replace(bare, "<version>"),
            _ => word.to_owned(),
        }
    };
    // The error of a refused patch quotes the whole object.
    let text = match (text.find("\"{\\\""), text.rfind("}\"")) {
        (Some(start), Some(end)) if start < end => format!("{}<object>{}", &text[..start], &text[end + 2..]),
        _ => text.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Sorts multiple causes, which have no order (the server walks a map), and removes them from the message.
fn causes(status: &mut Map<String, Value>) {
    let Some(Value::Array(causes)) = status
        .get_mut("details")
        .and_then(|details| details.get_mut("causes"))
    else {
        return;
    };
    causes.sort_by_cached_key(Value::to_string);
    if causes.len() > 1
        && let Some(Value::String(text)) = status.get_mut("message")
        && let Some(list) = text.find(": [")
    {
        text.truncate(list);
        text.push_str(": [<causes>]");
    }
}

#[test]
fn a_difference_has_the_path_of_its_value() {
    let (one, other) = (
        json!({ "a": [1, { "b": "x" }] }),
        json!({ "a": [1, { "b": "y" }, 3] }),
    );
    let found = differences("response", Some(&one), Some(&other));
    assert_eq!(found.len(), 2);
    assert!(
        found[0].path == "response.a[1].b" && found[0].embedded == "y" && found[1].real == ABSENT,
        "{found:?}"
    );
    assert!(differences("response", Some(&one), Some(&one)).is_empty());
}

#[test]
fn only_unique_values_are_normalized() {
    let body = serde_json::json!({
        "metadata": { "uid": "u", "resourceVersion": "7", "continue": "eyJ2Ijo", "generateName": "a-", "name": "a-x8c2f",
            "labels": { "k": "v" } },
        "rows": [{ "cells": ["red", "12s", 3] }],
        "message": "too old resource version: 1 (345)",
        "details": { "name": "kept" }
    });
    let response = Response {
        status: 200,
        body,
        ..Response::default()
    };
    let text = value(&response).to_string();
    for part in [
        "\"a-<random>\"",
        "\"<uid>\"",
        "\"<token>\"",
        "\"<age>\"",
        "\"red\"",
        "1 (<version>)",
        "\"kept\"",
        "\"k\":\"v\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
