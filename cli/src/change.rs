//! Changes of objects: a merge patch of a few fields, and requests by annotation.

use std::fmt::Debug;

use kube::Resource;
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::annotation::REQUESTED_AT;
use sluice_runtime::clock::{Clock as _, SystemClock};

use crate::CliError;
use crate::cluster::{Cluster, describe};

/// The field manager of all commands but `sluice approve`.
pub(crate) const FIELD_MANAGER: &str = "sluice";

/// Changes fields of an object (RFC 7386), and returns the changed object.
///
/// # Errors
/// The object does not exist, or the API rejects the change.
pub async fn merge<K>(cluster: &Cluster, namespace: &str, name: &str, patch: &Value) -> Result<K, CliError>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let (objects, object) = (cluster.objects_in::<K>(namespace), describe::<K>(namespace, name));
    let patch = Patch::Merge(patch);
    let changed = cluster
        .answer(&object, objects.patch(name, &params, &patch))
        .await;
    changed.map_err(|source| CliError::Api {
        action: "patch",
        object,
        source: Box::new(source),
    })
}

/// Requests a reconciliation, as `flux reconcile` does, and returns the value of the request: the current time.
///
/// # Errors
/// As [`merge`].
pub async fn request<K>(cluster: &Cluster, namespace: &str, name: &str) -> Result<String, CliError>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let token = token();
    let patch = annotation(REQUESTED_AT, Some(&token));
    merge::<K>(cluster, namespace, name, &patch).await?;
    Ok(token)
}

/// Returns a value for the annotation of a request: the time with nanoseconds, which no earlier request has.
#[must_use]
pub fn token() -> String {
    SystemClock.now().to_string()
}

/// Returns the patch that sets an annotation, or removes it.
#[must_use]
pub fn annotation(key: &str, value: Option<&str>) -> Value {
    let mut annotations = serde_json::Map::new();
    annotations.insert(key.to_owned(), json!(value));
    json!({ "metadata": { "annotations": annotations } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_is_set_or_removed() {
        assert_eq!(
            annotation("a/b", Some("1")),
            json!({"metadata": {"annotations": {"a/b": "1"}}})
        );
        assert_eq!(
            annotation("a/b", None),
            json!({"metadata": {"annotations": {"a/b": null}}})
        );
    }
}
