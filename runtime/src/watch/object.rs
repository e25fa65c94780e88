//! An object as a watch receives it: decoded, or with the reason why it does not decode.
//!
//! kube's `DeserializeGuard` does the same, but builds a generic copy of each object, with its history, and clones that copy before it
//! decodes it; and each clone of the object copies the object. Here one copy is built, and clones share the decoded object: the cache,
//! the reconciliations and their readers copy nothing.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::error_boundary::InvalidObject;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of a watch; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct WatchedObject<K>(pub(super) Result<Arc<K>, Arc<InvalidObject>>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for WatchedObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let error = match K::deserialize(&object) {
            Ok(decoded) => return Ok(Self(Ok(Arc::new(decoded)))),
            Err(error) => error.to_string(),
        };
        let metadata = match object.get("metadata") {
            Some(metadata) => ObjectMeta::deserialize(metadata).map_err(D::Error::custom)?,
            None => ObjectMeta::default(),
        };
        Ok(Self(Err(Arc::new(InvalidObject { error, metadata }))))
    }
}

impl<K: Resource + Clone> Resource for WatchedObject<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => Arc::make_mut(object).meta_mut(),
            Err(invalid) => &mut Arc::make_mut(invalid).metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn decode(object: Value) -> Result<WatchedObject<ConfigMap>, String> {
        serde_json::from_value(object).map_err(|error| error.to_string())
    }

    #[test]
    fn a_clone_shares_the_decoded_object() {
        let object = decode(json!({ "metadata": { "name": "a" }, "data": { "key": "value" } })).unwrap();
        assert_eq!(object.meta().name.as_deref(), Some("a"));
        let (first, second) = (object.clone().0.unwrap(), object.0.unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(first.data.as_ref().unwrap()["key"], "value");
    }

    #[test]
    fn an_object_that_does_not_decode_keeps_its_metadata() {
        let object =
            decode(json!({ "metadata": { "name": "a", "namespace": "ns" }, "data": "no map" })).unwrap();
        let invalid = object.clone().0.unwrap_err();
        assert!(invalid.error.contains("invalid type"), "{}", invalid.error);
        assert_eq!(object.meta().name.as_deref(), Some("a"));
        assert_eq!(object.meta().namespace.as_deref(), Some("ns"));
        assert_eq!(
            decode(json!({ "data": 1 })).unwrap().meta(),
            &ObjectMeta::default()
        );
        assert!(decode(json!({ "metadata": 1, "data": 1 })).is_err());
    }

    #[test]
    fn a_change_of_the_metadata_stays_out_of_other_clones() {
        for data in [json!({}), json!("no map")] {
            let mut object = decode(json!({ "metadata": { "name": "a" }, "data": data })).unwrap();
            let other = object.clone();
            object.meta_mut().name = Some("b".to_owned());
            assert_eq!(object.meta().name.as_deref(), Some("b"));
            assert_eq!(other.meta().name.as_deref(), Some("a"));
        }
    }
}
