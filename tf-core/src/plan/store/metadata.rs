//! Names, labels, annotations and owners of stored plans: those of tofu-controller, so that its tools find them, and our own.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest as _, Sha256};
use sluice_api::annotation;
use sluice_api::terraform::{workspace_label, workspace_part};

use super::PlanName;
use crate::bundle::Stack;
use crate::chunk::ChunkError;

/// Length limit of the prefix of an object name; a digest and an index follow.
const NAME_LIMIT: usize = 230;

/// Annotation: number of chunks.
pub const CHUNKS: &str = "infra.sluice.dev/plan-chunks";
/// Annotation: SHA-256 over all chunks.
pub const DIGEST: &str = "infra.sluice.dev/plan-digest";
/// Annotation: the run that created the plan.
pub const RUN: &str = "infra.sluice.dev/run";

/// Returns the label selector of the plan Secrets of a stack in all workspaces.
#[must_use]
pub fn selector_of_all_workspaces(stack: &str) -> String {
    format!("{}={}", annotation::PLAN_NAME, short_label(stack))
}

/// Returns the label selector of the objects with any of these plan names.
#[must_use]
pub fn selector_of_names(names: &[&str]) -> String {
    let labels: Vec<_> = names.iter().map(|name| short_label(name)).collect();
    format!("{} in ({})", annotation::PLAN_NAME, labels.join(","))
}

/// Whether an object has this plan name.
#[must_use]
pub fn has_plan_name(metadata: &ObjectMeta, name: &str) -> bool {
    let labels = metadata.labels.as_ref();
    labels.and_then(|all| all.get(annotation::PLAN_NAME)) == Some(&short_label(name))
}

/// Returns the label selector of the plan Secrets of a stack.
#[must_use]
pub fn selector(stack: &str, workspace: &str) -> String {
    let labels = labels(stack, workspace);
    labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns `tfplan-<workspace>-<name>`.
#[must_use]
pub fn base_name(name: &PlanName) -> String {
    object_name("tfplan", &name.workspace, &name.stack.name)
}

/// Returns `<kind>-<workspace>-<stack>`, shortened with a hash if it is too long.
#[must_use]
pub fn object_name(kind: &str, workspace: &str, stack: &str) -> String {
    let name = format!("{kind}-{}-{stack}", workspace_part(workspace));
    if name.len() <= NAME_LIMIT {
        return name;
    }
    let prefix: String = name.chars().take(NAME_LIMIT - 17).collect();
    let hash = hex::encode(&Sha256::digest(name.as_bytes())[..8]);
    format!("{}-{hash}", prefix.trim_end_matches(['-', '.']))
}

/// Returns the labels of the objects of a plan.
#[must_use]
pub fn labels(plan_name: &str, workspace: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (annotation::PLAN_NAME.to_owned(), short_label(plan_name)),
        (annotation::PLAN_WORKSPACE.to_owned(), workspace_label(workspace)),
    ])
}

/// Returns the annotations of one chunk.
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

/// Returns the owner reference to the Terraform object, which does not block its deletion.
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

/// Returns an immutable Secret that the Terraform object owns.
#[must_use]
pub fn immutable_secret(
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

/// Returns a label value of at most 63 characters: longer texts end with a hash, as in tofu-controller.
#[must_use]
pub fn short_label(text: &str) -> String {
    if text.len() <= 63 {
        return text.to_owned();
    }
    let prefix: String = text.chars().take(46).collect();
    format!("{prefix}-{}", hex::encode(&Sha256::digest(text.as_bytes())[..8]))
}

/// Returns the value of an annotation, or an empty text.
#[must_use]
pub(crate) fn annotation_of<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(key))
        .map_or("", String::as_str)
}

/// Sorts the chunks of one object by their index. Returns nothing if there are none.
pub(crate) fn complete_chunks<'s>(
    secrets: impl Iterator<Item = &'s Secret>,
    index_key: &str,
    count_key: &str,
) -> Result<Vec<&'s Secret>, ChunkError> {
    let index = |secret: &Secret| annotation_of(&secret.metadata, index_key).parse().ok();
    let mut chunks: Vec<(usize, &Secret)> = secrets
        .filter_map(|secret| Some((index(secret)?, secret)))
        .collect();
    chunks.sort_by_key(|(index, _)| *index);
    let Some((_, first)) = chunks.first() else {
        return Ok(Vec::new());
    };
    let expected = annotation_of(&first.metadata, count_key).parse().unwrap_or(0);
    let found = chunks.len();
    let mut indexes = chunks.iter().enumerate();
    if found != expected || indexes.any(|(position, (index, _))| position != *index) {
        return Err(ChunkError::Incomplete { found, expected });
    }
    Ok(chunks.into_iter().map(|(_, secret)| secret).collect())
}

/// Whether an object is part of the plan with this id that this run created.
#[must_use]
pub fn is_of_plan(metadata: &ObjectMeta, id: &str, run: &str) -> bool {
    annotation_of(metadata, annotation::PLAN_ID) == id && annotation_of(metadata, RUN) == run
}
