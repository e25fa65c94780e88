//! Names, labels, annotations and owners of stored plans: upstream's, so that its tools find them, and Sluice's own.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest as _, Sha256};
use sluice_api::annotation;
use sluice_api::terraform::{workspace_label, workspace_part};

use super::PlanName;
use crate::bundle::Stack;

/// Longest front of an object's name: a digest and a number follow.
const NAME_LIMIT: usize = 230;

/// Annotation: number of chunks.
pub const CHUNKS: &str = "infra.sluice.dev/plan-chunks";
/// Annotation: SHA-256 over all chunks.
pub const DIGEST: &str = "infra.sluice.dev/plan-digest";
/// Annotation: the run that made the plan.
pub const RUN: &str = "infra.sluice.dev/run";

/// The label selector of a stack's plan Secrets in all workspaces.
#[must_use]
pub fn selector_of_all(stack: &str) -> String {
    format!("{}={}", annotation::PLAN_NAME, short_label(stack))
}

/// The label selector of what is stored of plans under any of these names.
#[must_use]
pub fn selector_of_any(names: &[&str]) -> String {
    let labels: Vec<_> = names.iter().map(|name| short_label(name)).collect();
    format!("{} in ({})", annotation::PLAN_NAME, labels.join(","))
}

/// Whether an object is stored under this name.
#[must_use]
pub fn is_labelled(metadata: &ObjectMeta, name: &str) -> bool {
    let labels = metadata.labels.as_ref();
    labels.and_then(|all| all.get(annotation::PLAN_NAME)) == Some(&short_label(name))
}

/// The label selector of a stack's plan Secrets.
#[must_use]
pub fn selector(stack: &str, workspace: &str) -> String {
    let labels = labels(stack, workspace);
    labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// `tfplan-<workspace>-<name>`.
#[must_use]
pub fn base_name(name: &PlanName) -> String {
    object_name("tfplan", &name.workspace, &name.stack.name)
}

/// `<kind>-<workspace>-<stack>`, as upstream names them, where that is a name; else one that is, with a hash.
#[must_use]
pub fn object_name(kind: &str, workspace: &str, stack: &str) -> String {
    let name = format!("{kind}-{}-{stack}", workspace_part(workspace));
    if name.len() <= NAME_LIMIT {
        return name;
    }
    let front: String = name.chars().take(NAME_LIMIT - 17).collect();
    let hash = hex::encode(&Sha256::digest(name.as_bytes())[..8]);
    format!("{}-{hash}", front.trim_end_matches(['-', '.']))
}

/// Labels of everything stored of a plan.
#[must_use]
pub fn labels(plan_name: &str, workspace: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (annotation::PLAN_NAME.to_owned(), short_label(plan_name)),
        (annotation::PLAN_WORKSPACE.to_owned(), workspace_label(workspace)),
    ])
}

/// Annotations of one chunk.
#[must_use]
pub fn annotations(name: &PlanName, index: usize) -> BTreeMap<String, String> {
    BTreeMap::from([
        (annotation::PLAN_ID.to_owned(), name.id.clone()),
        (annotation::PLAN_FULL_NAME.to_owned(), name.stack.name.clone()),
        (annotation::PLAN_FULL_WORKSPACE.to_owned(), name.workspace.clone()),
        (annotation::PLAN_CHUNK.to_owned(), index.to_string()),
        (RUN.to_owned(), name.run.clone()),
    ])
}

/// The Terraform as an owner that does not block its deletion.
#[must_use]
pub fn owner(stack: &Stack) -> OwnerReference {
    OwnerReference {
        api_version: "infra.contrib.fluxcd.io/v1alpha2".to_owned(),
        kind: "Terraform".to_owned(),
        name: stack.name.clone(),
        uid: stack.uid.clone(),
        ..OwnerReference::default()
    }
}

/// One of the immutable Secrets that a stack owns, of which several keep what is too large for one.
#[must_use]
pub fn piece(
    stack: &Stack,
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    data: BTreeMap<String, ByteString>,
) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(stack.namespace.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner(stack)]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// A label value of at most 63 characters: longer ones are cut and told apart by a hash, as upstream.
#[must_use]
pub fn short_label(text: &str) -> String {
    if text.len() <= 63 {
        return text.to_owned();
    }
    let front: String = text.chars().take(46).collect();
    format!("{front}-{}", hex::encode(&Sha256::digest(text.as_bytes())[..8]))
}

/// An annotation, or nothing.
#[must_use]
pub(super) fn held<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(key))
        .map_or("", String::as_str)
}

/// Whether an object is part of the plan with this id that this run made.
#[must_use]
pub fn is_of(metadata: &ObjectMeta, id: &str, run: &str) -> bool {
    held(metadata, annotation::PLAN_ID) == id && held(metadata, RUN) == run
}
