//! Selects outputs and encodes them as the data of a Secret. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use sluice_tf_core::cli::output::Output;

use crate::run::post_apply::outputs::{DATA_LIMIT, OutputsData, OutputsError};

/// Longest key of a Secret.
const KEY_LIMIT: usize = 253;

/// Encodes the outputs as upstream does: a string as it is, any other value as the CLI's own JSON, byte for byte, with its type
/// under `<key>__type`. A Secret that upstream wrote has the same data.
///
/// # Errors
/// When the selection names an unknown output, or the outputs do not fit into a Secret.
pub(crate) fn encode(
    outputs: &BTreeMap<String, Output>,
    selection: &[String],
) -> Result<OutputsData, OutputsError> {
    let all: Vec<String> = outputs.keys().cloned().collect();
    let items = if selection.is_empty() { &all } else { selection };
    let mut values = BTreeMap::new();
    let mut non_sensitive = BTreeSet::new();
    for item in items {
        let whole = selection.is_empty().then_some((item.as_str(), item.as_str()));
        let (name, key) = whole.or_else(|| item.split_once(':')).unwrap_or((item, item));
        if name.is_empty() || key.is_empty() {
            return Err(OutputsError::EmptyName(item.clone()));
        }
        let output = outputs
            .get(name)
            .ok_or_else(|| OutputsError::NotFound(name.to_owned()))?;
        if !output.sensitive {
            non_sensitive.insert(key.to_owned());
        }
        if let Some(text) = output.text() {
            put(&mut values, name, key.to_owned(), text.into_bytes())?;
            continue;
        }
        for (key, json) in [
            (key.to_owned(), &output.value),
            (format!("{key}__type"), &output.type_),
        ] {
            put(&mut values, name, key, json.get().as_bytes().to_vec())?;
        }
    }
    let size = values.iter().map(|(key, value)| key.len() + value.0.len()).sum();
    if size > DATA_LIMIT {
        return Err(OutputsError::TooLarge { size });
    }
    Ok(OutputsData {
        values,
        non_sensitive,
    })
}

fn put(
    values: &mut BTreeMap<String, ByteString>,
    output: &str,
    key: String,
    value: Vec<u8>,
) -> Result<(), OutputsError> {
    let is_valid = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let special = key == "." || key.starts_with("..");
    if key.len() > KEY_LIMIT || special || !key.chars().all(is_valid) {
        return Err(OutputsError::Key {
            output: output.to_owned(),
            key,
        });
    }
    match values.insert(key.clone(), ByteString(value)) {
        None => Ok(()),
        Some(_) => Err(OutputsError::DuplicateKey(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs() -> BTreeMap<String, Output> {
        let text = r#"{"age.key":{"type":"string","value":"abc"},"list":{"type":["list","string"],"value":["a"]},
            "none":{"type":"string","value":null},"truth":{"type":"bool","value":true}}"#;
        sluice_tf_core::cli::output::parse(text.as_bytes()).unwrap()
    }

    fn texts(selection: &[&str]) -> Vec<String> {
        let selection: Vec<_> = selection.iter().map(|item| (*item).to_owned()).collect();
        let data = encode(&outputs(), &selection).unwrap();
        data.values
            .iter()
            .map(|(key, bytes)| format!("{key}={}", String::from_utf8_lossy(&bytes.0)))
            .collect()
    }

    /// An output of `output -json`, and the Secret that tofu-controller 0.16.5 wrote for it
    /// (`tests/assets/tofu-controller-0.16.5/secrets.yaml`).
    #[test]
    fn json_is_written_as_the_cli_indents_it_with_every_digit() {
        let text = "{\n  \"items\": {\n    \"sensitive\": false,\n    \"type\": [\n      \"tuple\",\n      [\n        \"string\",\n        \
            \"string\"\n      ]\n    ],\n    \"value\": [\n      \"a\",\n      \"b\"\n    ]\n  },\n  \"n\": {\n    \"sensitive\": false,\n    \
            \"type\": \"number\",\n    \"value\": 123456789012345678901234567890\n  }\n}\n";
        let outputs = sluice_tf_core::cli::output::parse(text.as_bytes()).unwrap();
        let data = encode(&outputs, &[]).unwrap().values;
        let text = |key: &str| String::from_utf8_lossy(&data[key].0).into_owned();
        assert_eq!(text("items"), "[\n      \"a\",\n      \"b\"\n    ]");
        let kind = "[\n      \"tuple\",\n      [\n        \"string\",\n        \"string\"\n      ]\n    ]";
        assert_eq!(text("items__type"), kind);
        assert_eq!(text("n"), "123456789012345678901234567890");
    }

    #[test]
    fn texts_are_raw_and_the_rest_is_json_with_its_type() {
        assert_eq!(
            texts(&[]),
            [
                "age.key=abc",
                r#"list=["a"]"#,
                r#"list__type=["list","string"]"#,
                "none=null",
                r#"none__type="string""#,
                "truth=true",
                r#"truth__type="bool""#
            ]
        );
        assert_eq!(
            texts(&["age.key:age_key", "truth"]),
            ["age_key=abc", "truth=true", r#"truth__type="bool""#]
        );
    }

    #[test]
    fn an_unknown_or_empty_name_is_an_error() {
        let error = |item: &str| encode(&outputs(), &[item.to_owned()]).unwrap_err().to_string();
        assert_eq!(error("absent"), "output not found: absent");
        assert_eq!(error(":x"), "output name is empty in \":x\"");
        assert_eq!(error("list:"), "output name is empty in \"list:\"");
    }

    #[test]
    fn outputs_that_do_not_fit_a_secret_are_reported_with_advice() {
        let output = |name: &str, text: &str| {
            let value = serde_json::json!({ name: { "type": "string", "value": text } });
            sluice_tf_core::cli::output::parse(value.to_string().as_bytes()).unwrap()
        };
        let error = |outputs: &BTreeMap<String, Output>, items: &[&str]| {
            let items: Vec<_> = items.iter().map(|item| (*item).to_owned()).collect();
            encode(outputs, &items).unwrap_err().to_string()
        };
        let wide = output("gr\u{f6}\u{df}e", "1");
        assert!(error(&wide, &[]).ends_with("give it an alias: gr\u{f6}\u{df}e:another-key"));
        assert!(encode(&wide, &["gr\u{f6}\u{df}e:size".to_owned()]).is_ok());
        let long = "k".repeat(300);
        for key in ["a b", "..", "..a", ".", &long] {
            assert!(
                error(&output("it", "1"), &[&format!("it:{key}")])
                    .contains("cannot be written under the key"),
                "{key}"
            );
        }
        assert!(error(&outputs(), &["list:x", "truth:x"]).contains("two outputs have the key \"x\""));
        assert!(error(&outputs(), &["list", "age.key:list__type"]).contains("\"list__type\""));
        let large = output("it", &"x".repeat(DATA_LIMIT));
        let message = error(&large, &[]);
        assert!(
            message.contains("1048578 bytes") && !message.contains("xxx"),
            "{message}"
        );
    }

    #[test]
    fn sensitivity_is_that_of_the_output_under_its_key() {
        let text = r#"{"host":{"sensitive":false,"type":"string","value":"db"},
            "list":{"sensitive":false,"type":["list","string"],"value":["a"]},
            "secrets":{"sensitive":true,"type":["list","string"],"value":["b"]},
            "token":{"sensitive":true,"type":"string","value":"hunter2"}}"#;
        let outputs = sluice_tf_core::cli::output::parse(text.as_bytes()).unwrap();
        let keys = |selection: &[&str]| -> Vec<String> {
            let selection: Vec<_> = selection.iter().map(|item| (*item).to_owned()).collect();
            let data = encode(&outputs, &selection).unwrap();
            data.non_sensitive.into_iter().collect()
        };
        assert_eq!(keys(&[]), ["host", "list"]);
        assert_eq!(
            keys(&["host:token", "token:host", "list:items"]),
            ["items", "token"]
        );
        // One output under two keys.
        assert_eq!(keys(&["host", "host:address", "token"]), ["address", "host"]);
    }
}
