//! Outputs of the root module into a Secret: selection and encoding (pure), then one write.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams};
use serde_json::Value;
use sluice_api::annotation::ADOPT_LABEL;

use super::context::Context;
use super::patience::patiently;
use crate::bundle::{OutputsTarget, Stack};
use crate::cli::output::Output;
use crate::plan::store::owner;

/// How often a write is tried again after somebody else wrote.
const CONFLICTS: u32 = 5;

/// Why outputs are not written.
#[derive(Debug, thiserror::Error)]
pub enum OutputsError {
    /// `spec.writeOutputsToSecret.outputs` names one that the module does not have.
    #[error("output not found: {0}")]
    NotFound(String),
    /// An empty item, name or alias.
    #[error("output name is empty in {0:?}")]
    EmptyName(String),
    /// The Secret belongs to somebody else.
    #[error(
        "secret {name} belongs to another owner; the label {ADOPT_LABEL}: \"true\" on it allows taking it over"
    )]
    Foreign {
        /// Name of the Secret.
        name: String,
    },
    /// The API refused it, or stayed away.
    #[error("cannot write secret {name}: {source}")]
    Api {
        /// Name of the Secret.
        name: String,
        /// The answer.
        #[source]
        source: kube::Error,
    },
}

/// The Secret's data: a text as it is, anything else as JSON beside its type under `<key>__type`.
///
/// # Errors
/// When the selection names what is not there.
pub(super) fn encode(
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
        match &output.value {
            Value::String(text) if output.type_ == "string" => {
                data.insert(key.to_owned(), ByteString(text.clone().into_bytes()));
            }
            value => {
                data.insert(key.to_owned(), ByteString(value.to_string().into_bytes()));
                data.insert(
                    format!("{key}__type"),
                    ByteString(output.type_.to_string().into_bytes()),
                );
            }
        }
    }
    Ok(data)
}

/// Whether the stack may write to a Secret that is there.
fn may_write(secret: &Secret, stack: &Stack) -> bool {
    let owners = secret.metadata.owner_references.as_deref().unwrap_or_default();
    let adopt = secret
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(ADOPT_LABEL));
    owners.iter().any(|owner| owner.uid == stack.uid) || adopt.is_some_and(|value| value == "true")
}

fn fresh(target: &OutputsTarget, stack: &Stack, data: BTreeMap<String, ByteString>) -> Secret {
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

/// Writes the data; tells whether anything had to be written.
pub(super) async fn write(
    context: &Context,
    target: &OutputsTarget,
    stack: &Stack,
    data: &BTreeMap<String, ByteString>,
) -> Result<bool, OutputsError> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &stack.namespace);
    let failed = |source| OutputsError::Api {
        name: target.name.clone(),
        source,
    };
    let (patience, params) = (context.settings.patience, PostParams::default());
    for _ in 0..CONFLICTS {
        let held = patiently(patience, || api.get_opt(&target.name))
            .await
            .map_err(failed)?;
        let answer = match held {
            None => {
                let secret = fresh(target, stack, data.clone());
                patiently(patience, || api.create(&params, &secret)).await
            }
            Some(held) if !may_write(&held, stack) => {
                return Err(OutputsError::Foreign {
                    name: target.name.clone(),
                });
            }
            Some(held) if held.data.as_ref() == Some(data) => return Ok(false),
            Some(mut held) => {
                held.data = Some(data.clone());
                patiently(patience, || api.replace(&target.name, &params, &held)).await
            }
        };
        match answer {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(kube::Error::Service("others kept writing it".into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs() -> BTreeMap<String, Output> {
        let text = r#"{"age.key":{"type":"string","value":"abc"},"list":{"type":["list","string"],"value":["a"]},
            "none":{"type":"string","value":null},"truth":{"type":"bool","value":true}}"#;
        crate::cli::output::parse(text.as_bytes()).unwrap()
    }

    fn texts(selection: &[&str]) -> Vec<String> {
        let selection: Vec<_> = selection.iter().map(|item| (*item).to_owned()).collect();
        let data = encode(&outputs(), &selection).unwrap();
        data.iter()
            .map(|(key, bytes)| format!("{key}={}", String::from_utf8_lossy(&bytes.0)))
            .collect()
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
        let mut secret = fresh(&target, &stack, BTreeMap::new());
        assert!(may_write(&secret, &stack));
        secret.metadata.owner_references.as_mut().unwrap()[0].uid = "u-2".into();
        assert!(!may_write(&secret, &stack));
        secret.metadata.labels = Some(BTreeMap::from([(ADOPT_LABEL.into(), "true".into())]));
        assert!(may_write(&secret, &stack));
    }
}
