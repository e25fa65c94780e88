//! Writes outputs of the root module to a Secret, with one write. `encoding` selects and encodes them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams};
use sluice_api::annotation::{ADOPT_LABEL, NON_SENSITIVE_OUTPUTS, PLAN_NAME, TERRAFORM_LABEL};
use sluice_api::terraform::outputs_secret::set_non_sensitive_keys;
use sluice_tf_core::bundle::{OutputsTarget, Stack};
use sluice_tf_core::plan::store::owner;
use sluice_tf_core::{errored_state, last_applied, state_copy};

use crate::run::lifecycle::context::Context;

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
/// The API server's limit for the data of a Secret, in bytes.
pub(super) const DATA_LIMIT: usize = 1024 * 1024;

/// What is written to the Secret.
#[derive(Debug)]
pub(crate) struct OutputsData {
    /// The values by their keys.
    pub(crate) values: BTreeMap<String, ByteString>,
    /// The keys whose values are not sensitive. The keys of types are not among them.
    pub(crate) non_sensitive: BTreeSet<String>,
}

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

/// What a write changes.
#[derive(Debug, PartialEq, Eq)]
struct Changes {
    /// The data, or labels and annotations of the target.
    outputs: bool,
    /// Which values are not sensitive.
    sensitivity: bool,
}

/// Replaces the data with the annotation of its keys, and adds the labels and annotations of the target.
fn update(secret: &mut Secret, target: &OutputsTarget, data: &OutputsData) -> Changes {
    let mut changed = secret.data.as_ref() != Some(&data.values);
    secret.data = Some(data.values.clone());
    let labels = secret.metadata.labels.get_or_insert_default();
    changed |= add(labels, &target.labels);
    let annotations = secret.metadata.annotations.get_or_insert_default();
    changed |= add(annotations, &target_annotations(target));
    Changes {
        outputs: changed,
        sensitivity: set_non_sensitive_keys(secret, &data.non_sensitive),
    }
}

/// Returns the annotations of the target without Sluice's own: the spec cannot say that a sensitive value is not sensitive.
fn target_annotations(target: &OutputsTarget) -> BTreeMap<String, String> {
    let mut annotations = target.annotations.clone();
    annotations.remove(NON_SENSITIVE_OUTPUTS);
    annotations
}

fn add(existing: &mut BTreeMap<String, String>, desired: &BTreeMap<String, String>) -> bool {
    let mut changed = false;
    for (key, value) in desired {
        changed |= existing.insert(key.clone(), value.clone()).as_ref() != Some(value);
    }
    changed
}

fn new_secret(target: &OutputsTarget, stack: &Stack, data: &OutputsData) -> Secret {
    let mut secret = Secret {
        metadata: ObjectMeta {
            name: Some(target.name.clone()),
            namespace: Some(stack.namespace.clone()),
            labels: (!target.labels.is_empty()).then(|| target.labels.clone()),
            annotations: Some(target_annotations(target)),
            owner_references: Some(vec![OwnerReference {
                controller: Some(true),
                ..owner(stack)
            }]),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(data.values.clone()),
        ..Secret::default()
    };
    set_non_sensitive_keys(&mut secret, &data.non_sensitive);
    secret
}

/// Writes the data. Returns whether the data, or a label or annotation of the target, was changed: the annotation of the keys alone is no
/// news for readers of the outputs.
pub(crate) async fn write(
    context: &Context,
    target: &OutputsTarget,
    stack: &Stack,
    data: &OutputsData,
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
        let (changed, answer) = match existing {
            None => {
                let secret = new_secret(target, stack, data);
                (true, context.retry(|| api.create(&params, &secret)).await)
            }
            Some(secret) if !may_write(&secret, stack) => {
                return Err(OutputsError::Foreign {
                    name: target.name.clone(),
                });
            }
            Some(mut secret) => {
                let changes = update(&mut secret, target, data);
                if !changes.outputs && !changes.sensitivity {
                    return Ok(false);
                }
                let replace = context.retry(|| api.replace(&target.name, &params, &secret));
                (changes.outputs, replace.await)
            }
        };
        match answer {
            Ok(_) => return Ok(changed),
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
    use sluice_api::terraform::outputs_secret::non_sensitive_keys;

    use super::*;

    fn data(pairs: &[(&str, &str)], non_sensitive: &[&str]) -> OutputsData {
        let value = |text: &str| ByteString(text.as_bytes().to_vec());
        OutputsData {
            values: pairs
                .iter()
                .map(|(key, text)| ((*key).to_owned(), value(text)))
                .collect(),
            non_sensitive: non_sensitive.iter().map(|key| (*key).to_owned()).collect(),
        }
    }

    fn target(annotations: &[(&str, &str)]) -> OutputsTarget {
        let annotations = annotations.iter();
        OutputsTarget {
            name: "out".into(),
            outputs: vec![],
            labels: BTreeMap::from([("a".into(), "b".into())]),
            annotations: annotations
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn stack() -> Stack {
        Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u-1".into(),
        }
    }

    const fn changes(outputs: bool, sensitivity: bool) -> Changes {
        Changes { outputs, sensitivity }
    }

    #[test]
    fn foreign_labels_and_annotations_are_retained() {
        let target = target(&[("a", "c")]);
        let one = data(&[("k", "v")], &[]);
        let mut held = Secret::default();
        held.metadata.labels = Some(BTreeMap::from([("other".into(), "x".into())]));
        held.metadata.annotations = Some(BTreeMap::from([("other".into(), "x".into())]));
        assert_eq!(update(&mut held, &target, &one), changes(true, true));
        assert_eq!(held.metadata.labels.as_ref().unwrap().len(), 2);
        let annotations = held.metadata.annotations.as_ref().unwrap();
        assert_eq!(
            (annotations["a"].as_str(), annotations["other"].as_str()),
            ("c", "x")
        );
        assert_eq!(
            update(&mut held, &target, &one),
            changes(false, false),
            "nothing is left to do"
        );
        assert!(update(&mut held, &target, &data(&[], &[])).outputs);
    }

    #[test]
    fn an_output_that_becomes_sensitive_is_so_with_the_same_write() {
        let target = target(&[]);
        let pairs = [("host", "db"), ("token", "hunter2")];
        let mut secret = new_secret(&target, &stack(), &data(&pairs, &["host", "token"]));
        let keys = |secret: &Secret| -> Vec<String> {
            let keys = non_sensitive_keys(secret).unwrap();
            keys.into_iter().collect()
        };
        assert_eq!(keys(&secret), ["host", "token"]);
        assert_eq!(
            update(&mut secret, &target, &data(&pairs, &["host"])),
            changes(false, true),
            "the values are the same"
        );
        assert_eq!(keys(&secret), ["host"]);
        let other = data(&[("host", "db-2"), ("token", "hunter3")], &[]);
        assert_eq!(update(&mut secret, &target, &other), changes(true, true));
        assert_eq!(keys(&secret), [""; 0]);
    }

    /// As tofu-controller, or an earlier version, wrote it.
    #[test]
    fn a_secret_without_the_annotation_gets_it() {
        let data = data(&[("host", "db")], &["host"]);
        let mut secret = new_secret(&target(&[]), &stack(), &data);
        let annotations = secret.metadata.annotations.take();
        assert_eq!(update(&mut secret, &target(&[]), &data), changes(false, true));
        assert_eq!(secret.metadata.annotations, annotations);
    }

    #[test]
    fn the_spec_cannot_set_the_annotation_of_the_keys() {
        let pairs = [("token", "hunter2")];
        let data = data(&pairs, &[]);
        let mut open = Secret {
            data: Some(data.values.clone()),
            ..Secret::default()
        };
        let keys = BTreeSet::from(["token".to_owned()]);
        set_non_sensitive_keys(&mut open, &keys);
        let forged = open.metadata.annotations.as_ref().unwrap()[NON_SENSITIVE_OUTPUTS].clone();
        let target = target(&[(NON_SENSITIVE_OUTPUTS, forged.as_str()), ("c", "d")]);
        let mut secret = new_secret(&target, &stack(), &data);
        assert_eq!(non_sensitive_keys(&secret), Some(BTreeSet::new()));
        assert_eq!(secret.metadata.annotations.as_ref().unwrap()["c"], "d");
        assert_eq!(update(&mut secret, &target, &data), changes(false, false));
        assert_eq!(non_sensitive_keys(&secret), Some(BTreeSet::new()));
        // Set on the Secret itself.
        assert!(update(&mut open, &target, &data).sensitivity);
        assert_eq!(non_sensitive_keys(&open), Some(BTreeSet::new()));
    }

    #[test]
    fn only_an_own_or_released_secret_is_written() {
        let (stack, target, none) = (stack(), target(&[]), data(&[], &[]));
        let mut secret = new_secret(&target, &stack, &none);
        assert!(may_write(&secret, &stack));
        secret.metadata.owner_references = None;
        assert!(may_write(&secret, &stack), "made by hand before the stack was");
        let mut secret = new_secret(&target, &stack, &none);
        secret.metadata.owner_references.as_mut().unwrap()[0].uid = "u-2".into();
        assert!(!may_write(&secret, &stack));
        secret.metadata.labels = Some(BTreeMap::from([(ADOPT_LABEL.into(), "true".into())]));
        assert!(may_write(&secret, &stack));
    }
}
