//! Which changes of an object trigger a reconciliation. Status writes of the controller do not.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kube::Resource;
use sluice_api::annotation::REQUESTED_AT;

/// Hash of the generation, the reconcile request, the finalizers and the start of deletion.
#[expect(clippy::unnecessary_wraps, reason = "signature of kube's predicates")]
pub(super) fn reconcile_trigger<K: Resource>(object: &K) -> Option<u64> {
    let meta = object.meta();
    let requested = meta
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(REQUESTED_AT));
    let mut hasher = DefaultHasher::new();
    (
        meta.generation,
        requested,
        &meta.finalizers,
        meta.deletion_timestamp.is_some(),
    )
        .hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    use super::*;

    fn look(metadata: &Value) -> Option<u64> {
        let object: ConfigMap = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        reconcile_trigger(&object)
    }

    #[test]
    fn user_changes_trigger_and_status_writes_do_not() {
        let plain = look(&json!({"generation": 1}));
        for same in [
            json!({"generation": 1, "resourceVersion": "9"}),
            json!({"generation": 1, "labels": {"a": "b"}, "annotations": {"a": "b"}}),
        ] {
            assert_eq!(look(&same), plain, "{same}");
        }
        for other in [
            json!({"generation": 2}),
            json!({"generation": 1, "annotations": {REQUESTED_AT: "now"}}),
            json!({"generation": 1, "finalizers": ["x"]}),
            json!({"generation": 1, "deletionTimestamp": "2026-01-02T03:04:05Z"}),
        ] {
            assert_ne!(look(&other), plain, "{other}");
        }
    }
}
