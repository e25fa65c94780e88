//! Adds and removes a controller's finalizer, safely with other writers of the list.

use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::status::{Applied, Part, WriteError, write};

/// Adds the finalizer, unless the object is being deleted, when the API rejects new finalizers.
///
/// # Errors
/// As [`crate::status::apply`].
pub async fn ensure<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<Applied<K>, WriteError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    write(api, object, Part::Finalizers, |object| {
        let meta = object.meta();
        let held = meta.finalizers.as_deref().unwrap_or_default();
        if meta.deletion_timestamp.is_some() || held.iter().any(|name| name == finalizer) {
            return Ok(None);
        }
        let wanted: Vec<&str> = held.iter().map(String::as_str).chain([finalizer]).collect();
        Ok(Some(json!({ "metadata": { "finalizers": wanted } })))
    })
    .await
}

/// Removes the finalizer. If that deletes the object, the result is [`Applied::Gone`] or the object's last version.
///
/// # Errors
/// As [`crate::status::apply`].
pub async fn remove<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<Applied<K>, WriteError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    write(api, object, Part::Finalizers, |object| {
        let held = object.meta().finalizers.as_deref().unwrap_or_default();
        if held.iter().all(|name| name != finalizer) {
            return Ok(None);
        }
        let wanted: Vec<&str> = held
            .iter()
            .map(String::as_str)
            .filter(|name| *name != finalizer)
            .collect();
        Ok(Some(json!({ "metadata": { "finalizers": wanted } })))
    })
    .await
}

/// Returns whether the object has the finalizer.
pub fn is_present<K: Resource>(object: &K, finalizer: &str) -> bool {
    object
        .meta()
        .finalizers
        .as_deref()
        .unwrap_or_default()
        .iter()
        .any(|name| name == finalizer)
}
