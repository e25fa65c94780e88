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
use crate::cluster::{Cluster, describe, not_found};

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
    changed.map_err(|source| {
        if names_missing_object(&source, name) {
            return not_found::<K>(namespace, name);
        }
        CliError::Api {
            action: "patch",
            object,
            source: Box::new(source),
        }
    })
}

/// Returns whether the object of this name does not exist. A kind that the API does not serve is 404 too, without a name.
fn names_missing_object(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let details = status.details.as_ref();
    status.code == 404 && details.is_some_and(|details| details.name == name)
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
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_an_answer_that_names_the_object_says_that_it_does_not_exist() {
        for (answer, expected) in [
            (json!({"code": 404, "details": {"name": "app"}}), true),
            (json!({"code": 404, "details": {}}), false),
            (json!({"code": 404}), false),
            (json!({"code": 409, "details": {"name": "app"}}), false),
        ] {
            let status: Status = serde_json::from_value(answer.clone()).unwrap();
            let error = kube::Error::Api(Box::new(status));
            assert_eq!(names_missing_object(&error, "app"), expected, "{answer}");
        }
    }

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
