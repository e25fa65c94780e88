//! The objects of a real tofu-controller 0.16.5 (`tests/assets/tofu-controller-0.16.5`), for tests that take them over.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The namespace of the objects.
pub const NAMESPACE: &str = "team";
/// The source of the stacks.
pub const SOURCE: &str = "stacks";
/// The commit of the source at which the objects were recorded.
pub const COMMIT: &str = "8444f5e8a254ab5b76722b3cb6fa9ee15535ddc8";
/// The id of every plan. It ends with the first ten digits of the commit.
pub const PLAN_ID: &str = "plan-main-8444f5e8a2";
/// The stacks that are applied and unchanged.
pub const APPLIED: [&str; 5] = ["applied-auto", "applied-manual", "base", "dependent", "suffixed"];
/// The stacks with a plan that waits for an approval.
pub const WAITING: [&str; 2] = ["waiting", "waiting-json"];
/// The source at that commit: paths and contents.
pub const MODULES: [(&str, &str); 3] = [
    (
        "app/main.tf",
        include_str!("../../assets/tofu-controller-0.16.5/modules/app/main.tf"),
    ),
    (
        "bad/main.tf",
        include_str!("../../assets/tofu-controller-0.16.5/modules/bad/main.tf"),
    ),
    (
        "base/main.tf",
        include_str!("../../assets/tofu-controller-0.16.5/modules/base/main.tf"),
    ),
];

const DEFINITION_YAML: &str = include_str!("../../assets/tofu-controller-0.16.5/crd.yaml");
const SOURCE_YAML: &str = include_str!("../../assets/tofu-controller-0.16.5/gitrepository.yaml");
const STACKS_YAML: &str = include_str!("../../assets/tofu-controller-0.16.5/terraforms.yaml");
/// All other objects by group and kind.
const OTHERS: [(&str, &str, &str); 3] = [
    (
        "",
        "Secret",
        include_str!("../../assets/tofu-controller-0.16.5/secrets.yaml"),
    ),
    (
        "",
        "ConfigMap",
        include_str!("../../assets/tofu-controller-0.16.5/configmaps.yaml"),
    ),
    (
        "coordination.k8s.io",
        "Lease",
        include_str!("../../assets/tofu-controller-0.16.5/leases.yaml"),
    ),
];
/// The day on which the objects were recorded.
const DAY: &str = "2026-11-22T";

/// Why the objects cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// A file is not YAML.
    #[error("a file of tofu-controller's objects: {0}")]
    File(#[from] serde_yaml_ng::Error),
    /// A document is not an object.
    #[error("a document of tofu-controller's objects: {0}")]
    Document(#[from] serde_json::Error),
    /// The API refuses an object.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

fn documents(text: &str) -> Result<Vec<Value>, ObjectError> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents
        .map(|document| Value::deserialize(document).map_err(ObjectError::from))
        .collect()
}

/// Returns the definition of its kind, without descriptions.
///
/// # Errors
/// When the file is not YAML.
pub fn definition() -> Result<Value, ObjectError> {
    Ok(serde_yaml_ng::from_str(DEFINITION_YAML)?)
}

/// Returns the source with its status; its addresses are placeholders.
///
/// # Errors
/// When the file is not YAML.
pub fn source() -> Result<Value, ObjectError> {
    Ok(serde_yaml_ng::from_str(SOURCE_YAML)?)
}

/// Returns the stacks, as if their source were at this commit. Their last success is now, so nothing is due.
///
/// # Errors
/// When the file is not YAML.
pub fn stacks(commit: &str) -> Result<Vec<Value>, ObjectError> {
    let current = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    // A check is due at a random offset in the interval, which no test may reach.
    let recorded = at_commit(STACKS_YAML, commit).replace("interval: 60m", "interval: 240h");
    let lines = recorded.split('\n').map(|line| match line.find(DAY) {
        Some(at) => line.replacen(&line[at..at + current.len()], &current, 1),
        None => line.to_owned(),
    });
    documents(&lines.collect::<Vec<_>>().join("\n"))
}

/// Replaces the commit, also in the ids of plans.
fn at_commit(text: &str, commit: &str) -> String {
    let digits = PLAN_ID.rsplit('-').next().unwrap_or_default();
    text.replace(COMMIT, commit)
        .replace(digits, &commit[..digits.len().min(commit.len())])
}

/// Returns the API of a kind in a namespace.
#[must_use]
pub fn objects(client: &Client, namespace: &str, group: &str, kind: &str) -> Api<DynamicObject> {
    let version = match group {
        "infra.contrib.fluxcd.io" => "v1alpha2",
        _ => "v1",
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Creates an object with its status, without server-set fields, and with an edit for each generation after the first one, at most one.
///
/// # Errors
/// When the API refuses it.
pub async fn create(api: &Api<DynamicObject>, source: &Value) -> Result<DynamicObject, ObjectError> {
    let mut created = source.clone();
    if let Some(metadata) = created["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
    }
    let is_edited = source["metadata"]["generation"].as_i64() == Some(2);
    if is_edited {
        created["spec"]["interval"] = json!("59m");
    }
    let name = source["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::default();
    let mut object = api
        .create(&PostParams::default(), &serde_json::from_value(created)?)
        .await?;
    if is_edited {
        let edit = Patch::Merge(json!({ "spec": { "interval": source["spec"]["interval"] } }));
        object = api.patch(name, &params, &edit).await?;
    }
    if let Some(status) = source.get("status") {
        let status = Patch::Merge(json!({ "status": status }));
        object = api.patch_status(name, &params, &status).await?;
    }
    Ok(object)
}

/// Creates the stacks and all that belongs to them, as if their source were at this commit. The source itself is the caller's.
///
/// # Errors
/// When the API refuses an object.
pub async fn create_stacks(client: &Client, namespace: &str, commit: &str) -> Result<(), ObjectError> {
    let mut uids = BTreeMap::new();
    let api = objects(client, namespace, "infra.contrib.fluxcd.io", "Terraform");
    for stack in stacks(commit)? {
        let created = create(&api, &stack).await?;
        let recorded = stack["metadata"]["uid"].as_str().unwrap_or_default();
        uids.insert(recorded.to_owned(), created.uid().unwrap_or_default());
    }
    for (group, kind, text) in OTHERS {
        let text = uids
            .iter()
            .fold(at_commit(text, commit), |text, (old, new)| text.replace(old, new));
        for source in documents(&text)? {
            create(&objects(client, namespace, group, kind), &source).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_applied_or_waiting_stack_is_recorded_at_the_commit() {
        let other = "0123456789abcdef0123456789abcdef01234567";
        let stacks = stacks(other).unwrap();
        for name in APPLIED.iter().chain(&WAITING) {
            let stack = stacks
                .iter()
                .find(|stack| stack["metadata"]["name"] == *name)
                .unwrap();
            let text = stack.to_string();
            assert!(text.contains(&format!("main@sha1:{other}")), "{name}");
            assert!(!text.contains("8444f5e8a2") && !text.contains(DAY), "{text}");
        }
        assert_eq!(source().unwrap()["metadata"]["name"], SOURCE);
        assert_eq!(definition().unwrap()["spec"]["names"]["kind"], "Terraform");
    }
}
