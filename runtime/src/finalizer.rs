//! Adding and removing this controller's finalizer, safely next to other writers of the list.

use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::status::{Applied, Part, WriteError, write};

/// Makes sure that the object carries the finalizer, unless it is being deleted (the API forbids new ones then).
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

/// Makes sure that the object does not carry the finalizer; an object that goes with it is [`Applied::Gone`] or its
/// last form.
///
/// # Errors
/// As [`crate::status::apply`].
pub async fn release<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<Applied<K>, WriteError>
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

/// Whether the object carries the finalizer.
pub fn is_held<K: Resource>(object: &K, finalizer: &str) -> bool {
    object
        .meta()
        .finalizers
        .as_deref()
        .unwrap_or_default()
        .iter()
        .any(|name| name == finalizer)
}
