//! Writes outputs of the root module to a Secret: selection and encoding (pure), then one write.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams};
use sluice_api::annotation::{ADOPT_LABEL, PLAN_NAME, TERRAFORM_LABEL};
use sluice_tf_core::bundle::{OutputsTarget, Stack};
use sluice_tf_core::cli::output::Output;
use sluice_tf_core::plan::store::owner;
use sluice_tf_core::{errored_state, last_applied, state_copy};

use crate::run::lifecycle::context::Context;

/// The API server's limit for the data of a Secret, in bytes.
const DATA_LIMIT: usize = 1024 * 1024;
/// Longest key of a Secret.
const KEY_LIMIT: usize = 253;

/// Labels of Secrets that outputs are never written to: states and data of Sluice.
const RESERVED_LABELS: [&str; 7] = [
    "tfstate",
    PLAN_NAME,
    TERRAFORM_LABEL,
    last_applied::LABEL,
    last_applied::shared::FILES_LABEL,
    errored_state::LABEL,
    state_copy::LABEL,
];
/// Prefixes of the names of such Secrets.
const RESERVED_PREFIXES: [&str; 6] = [
    "tfstate-",
    "tfplan-",
    "tfapplied-",
    "tffiles-",
    "tferrored-",
    "tfcopy-",
];
/// Attempts to write after conflicts.
const MAX_CONFLICTS: u32 = 5;

/// The reason why outputs are not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputsError {
    /// `spec.writeOutputsToSecret.outputs` names one that the module does not have.
    #[error("output not found: {0}")]
    NotFound(String),
    #[error("output name is empty in {0:?}")]
    EmptyName(String),
    #[error(
        "output {output} cannot be written under the key {key:?}: keys have letters, digits, '-', '_' and '.', \
         at most 253; give it an alias: {output}:another-key"
    )]
    Key { output: String, key: String },
    #[error("two outputs have the key {0:?}; give one of them an alias")]
    DuplicateKey(String),
    #[error(
        "the outputs have {size} bytes, more than the limit of {DATA_LIMIT} for a Secret; select fewer in \
         writeOutputsToSecret.outputs"
    )]
    TooLarge { size: usize },
    /// The Secret has another owner.
    #[error(
        "secret {name} belongs to another owner; set the label {ADOPT_LABEL}: \"true\" on it to transfer it to this stack"
    )]
    Foreign { name: String },
    /// The Secret contains a state or data of Sluice.
    #[error(
        "secret {name} has the name or content of a state or of data that Sluice stores (plans, keys, last applied \
         records); set another name in writeOutputsToSecret"
    )]
    Reserved { name: String },
    #[error("cannot write secret {name}: {source}")]
    Api {
        name: String,
        #[source]
        source: kube::Error,
    },
}

/// Encodes the outputs as upstream does: a string as it is, any other value as the CLI's own JSON, byte for byte, with its type
/// under `<key>__type`. A Secret that upstream wrote needs no write.
///
/// # Errors
/// When the selection names an unknown output, or the outputs do not fit into a Secret.
pub(crate) fn encode(
    outputs: &BTreeMap<String, Output>,
    selection: &[String],
) -> Result<BTreeMap<String, ByteString>, OutputsError> {
    let all: Vec<String> = outputs.keys().cloned().collect();
    let items = if selection.is_empty() { &all } else { selection };
    let mut data = BTreeMap::new();
    for item in items {
        let whole = selection.is_empty().then_some((item.as_str(), item.as_str()));
        let (name, key) = whole.or_else(|| item.split_once(':')).unwrap_or((item, item));
        if name.is_empty() || key.is_empty() {
            return Err(OutputsError::EmptyName(item.clone()));
        }
        let output = outputs
            .get(name)
            .ok_or_else(|| OutputsError::NotFound(name.to_owned()))?;
        if let Some(text) = output.text() {
            put(&mut data, name, key.to_owned(), text.into_bytes())?;
            continue;
        }
        for (key, json) in [
            (key.to_owned(), &output.value),
            (format!("{key}__type"), &output.type_),
        ] {
            put(&mut data, name, key, json.get().as_bytes().to_vec())?;
        }
    }
    let size = data.iter().map(|(key, value)| key.len() + value.0.len()).sum();
    if size > DATA_LIMIT {
        return Err(OutputsError::TooLarge { size });
    }
    Ok(data)
}

fn put(
    data: &mut BTreeMap<String, ByteString>,
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
    match data.insert(key.clone(), ByteString(value)) {
        None => Ok(()),
        Some(_) => Err(OutputsError::DuplicateKey(key)),
    }
}

/// Whether the stack may write to an existing Secret: it owns it, the Secret has no owner, or the label permits the adoption.
fn may_write(secret: &Secret, stack: &Stack) -> bool {
    let owners = secret.metadata.owner_references.as_deref().unwrap_or_default();
    let adopt = secret
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(ADOPT_LABEL));
    let ours = owners.is_empty() || owners.iter().any(|owner| owner.uid == stack.uid);
    ours || adopt.is_some_and(|value| value == "true")
}

/// Whether an existing Secret contains a state or data of Sluice. A bundle has no label, but a run owns it.
fn is_reserved(secret: &Secret) -> bool {
    let labels = secret.metadata.labels.as_ref();
    let mut owners = secret.metadata.owner_references.iter().flatten();
    labels.is_some_and(|labels| RESERVED_LABELS.iter().any(|label| labels.contains_key(*label)))
        || owners.any(|owner| owner.kind == "TerraformRun")
}

/// Whether a new Secret of this name could collide with a state or with data of Sluice.
fn is_reserved_name(name: &str) -> bool {
    RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || name.ends_with("-sluice-key")
}

/// Replaces the data, and adds the labels and annotations of the target. Returns whether anything changed.
fn update(secret: &mut Secret, target: &OutputsTarget, data: &BTreeMap<String, ByteString>) -> bool {
    let mut changed = secret.data.as_ref() != Some(data);
    secret.data = Some(data.clone());
    let labels = secret.metadata.labels.get_or_insert_default();
    changed |= add(labels, &target.labels);
    let annotations = secret.metadata.annotations.get_or_insert_default();
    changed | add(annotations, &target.annotations)
}

fn add(existing: &mut BTreeMap<String, String>, desired: &BTreeMap<String, String>) -> bool {
    let mut changed = false;
    for (key, value) in desired {
        changed |= existing.insert(key.clone(), value.clone()).as_ref() != Some(value);
    }
    changed
}

fn new_secret(target: &OutputsTarget, stack: &Stack, data: BTreeMap<String, ByteString>) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(target.name.clone()),
            namespace: Some(stack.namespace.clone()),
            labels: (!target.labels.is_empty()).then(|| target.labels.clone()),
            annotations: (!target.annotations.is_empty()).then(|| target.annotations.clone()),
            owner_references: Some(vec![OwnerReference {
                controller: Some(true),
                ..owner(stack)
            }]),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// Writes the data. Returns whether a write was necessary.
pub(crate) async fn write(
    context: &Context,
    target: &OutputsTarget,
    stack: &Stack,
    data: &BTreeMap<String, ByteString>,
) -> Result<bool, OutputsError> {
    let api: Api<Secret> = context.api();
    let failed = |source| OutputsError::Api {
        name: target.name.clone(),
        source,
    };
    let params = PostParams::default();
    for _ in 0..MAX_CONFLICTS {
        let existing = context
            .retry(|| api.get_opt(&target.name))
            .await
            .map_err(failed)?;
        let is_reserved = existing
            .as_ref()
            .map_or_else(|| is_reserved_name(&target.name), is_reserved);
        if is_reserved {
            let name = target.name.clone();
            return Err(OutputsError::Reserved { name });
        }
        let answer = match existing {
            None => {
                let secret = new_secret(target, stack, data.clone());
                context.retry(|| api.create(&params, &secret)).await
            }
            Some(secret) if !may_write(&secret, stack) => {
                return Err(OutputsError::Foreign {
                    name: target.name.clone(),
                });
            }
            Some(mut secret) => {
                if !update(&mut secret, target, data) {
                    return Ok(false);
                }
                context
                    .retry(|| api.replace(&target.name, &params, &secret))
                    .await
            }
        };
        match answer {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(kube::Error::Service(
        "too many conflicts with other writers".into(),
    )))
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
        data.iter()
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
        let data = encode(&outputs, &[]).unwrap();
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
    fn foreign_labels_and_annotations_are_retained() {
        let wanted = |value: &str| BTreeMap::from([("a".to_owned(), value.to_owned())]);
        let target = OutputsTarget {
            name: "out".into(),
            outputs: vec![],
            labels: wanted("b"),
            annotations: wanted("c"),
        };
        let data = BTreeMap::from([("k".to_owned(), ByteString(b"v".to_vec()))]);
        let mut held = Secret::default();
        held.metadata.labels = Some(BTreeMap::from([("other".into(), "x".into())]));
        assert!(update(&mut held, &target, &data));
        assert_eq!(held.metadata.labels.as_ref().unwrap().len(), 2);
        assert_eq!(held.metadata.annotations.as_ref().unwrap()["a"], "c");
        assert!(!update(&mut held, &target, &data), "nothing is left to do");
        assert!(update(&mut held, &target, &BTreeMap::new()));
    }

    #[test]
    fn only_an_own_or_released_secret_is_written() {
        let stack = Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u-1".into(),
        };
        let target = OutputsTarget {
            name: "out".into(),
            outputs: vec![],
            labels: BTreeMap::from([("a".into(), "b".into())]),
            annotations: BTreeMap::new(),
        };
        let mut secret = new_secret(&target, &stack, BTreeMap::new());
        assert!(may_write(&secret, &stack));
        secret.metadata.owner_references = None;
        assert!(may_write(&secret, &stack), "made by hand before the stack was");
        let mut secret = new_secret(&target, &stack, BTreeMap::new());
        secret.metadata.owner_references.as_mut().unwrap()[0].uid = "u-2".into();
        assert!(!may_write(&secret, &stack));
        secret.metadata.labels = Some(BTreeMap::from([(ADOPT_LABEL.into(), "true".into())]));
        assert!(may_write(&secret, &stack));
    }
}
