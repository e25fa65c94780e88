//! Converts the content of a file to the served object, and back.

use std::sync::Arc;

use git2::Oid;
use serde_json::Value;
use sha1_checked::{Digest as _, Sha1};
use uuid::Uuid;

use crate::admission::{self, Endpoint};
use crate::meta;
use crate::resource::{Resource, Strategy};
use crate::store::state::Key;

/// Metadata that follows from the history, so that no file contains it.
const DERIVED: [&str; 4] = ["uid", "resourceVersion", "generation", "creationTimestamp"];
/// Namespace of the uids.
const UID_NAMESPACE: Uuid = Uuid::from_u128(0x7d2c_41a8_5b0e_4f6b_9a3e_c1d0_6f85_2e97);

/// Returns the object that a file describes, prepared and validated as a write of it would be. The derived metadata is that of
/// `before`, or random. The error is the reason.
pub(super) fn admit(resource: &Resource, written: &Value, before: Option<&Value>) -> Result<Value, String> {
    let mut object = without_derived(written);
    let namespace = match meta::namespace(&object) {
        _ if !resource.namespaced => Value::Null,
        "" => "default".into(),
        namespace => namespace.into(),
    };
    meta::set(&mut object, "namespace", namespace);
    admission::normalize(resource, &mut object)?;
    // An empty field is none.
    let status = object.get("status").filter(|status| !status.is_null()).cloned();
    let deletion = ["deletionTimestamp", "deletionGracePeriodSeconds"]
        .map(|field| (field, object["metadata"][field].clone()));
    let admitted = match before {
        None => admission::prepare_create(resource, object),
        Some(before) => {
            let mut before = before.clone();
            before["apiVersion"] = resource.api_version().into();
            admission::prepare_update(resource, object, &before, Endpoint::Main)
        }
    };
    let mut admitted = admitted.map_err(|error| error.message().to_owned())?;
    if let Some(status) = &status {
        check_status(resource, &admitted, status)?;
    }
    if resource.has_status
        && resource.strategy != Strategy::Namespace
        && let Some(fields) = admitted.as_object_mut()
    {
        match status {
            Some(status) => fields.insert("status".to_owned(), status),
            // That of a definition follows from its spec, and users take definitions from elsewhere.
            None if resource.strategy == Strategy::Definition => None,
            None => fields.remove("status"),
        };
    }
    if resource.strategy == Strategy::Definition {
        admission::record_storage_version(&mut admitted);
    }
    if !meta::is_deleting(&admitted) && !deletion[0].1.is_null() {
        let time = deletion_time(&deletion[0].1)?;
        for (field, value) in deletion {
            meta::set(&mut admitted, field, value);
        }
        meta::set(&mut admitted, "deletionTimestamp", time.into());
        // As in kube-apiserver, the deletion of a definition leaves its generation.
        if resource.strategy != Strategy::Definition {
            raise_generation(&mut admitted);
        }
    }
    admitted["apiVersion"] = resource.storage_api_version().into();
    Ok(admitted)
}

/// Validates a status as a write of it would be. A client that decodes types fails for the list of all objects if one is not valid.
fn check_status(resource: &Resource, admitted: &Value, status: &Value) -> Result<(), String> {
    // Without the subresource it is validated with the other fields. That of a definition follows from its spec.
    let has_subresource = resource.has_status && resource.strategy == Strategy::Custom;
    if !has_subresource || admitted.get("status") == Some(status) {
        return Ok(());
    }
    let mut object = admitted.clone();
    object["status"] = status.clone();
    admission::prepare_update(resource, object, admitted, Endpoint::Status)
        .map(drop)
        .map_err(|error| error.message().to_owned())
}

/// Returns a time of deletion in the format of meta/v1 `Time`: clients cannot decode another one. The error is the reason.
fn deletion_time(written: &Value) -> Result<String, String> {
    let text = written.as_str().unwrap_or_default();
    let time = text
        .parse::<jiff::Timestamp>()
        .map_err(|error| format!("metadata.deletionTimestamp {text:?} is not valid: {error}"))?;
    Ok(timestamp(time.as_second()))
}

/// Returns a terminating object: its file was removed, and its finalizers are not done.
pub(super) fn terminating(object: &Value, time: &str) -> Value {
    let mut terminating = object.clone();
    if !meta::is_deleting(object) {
        meta::set(&mut terminating, "deletionTimestamp", time.into());
        meta::set(&mut terminating, "deletionGracePeriodSeconds", Value::from(0_i64));
        raise_generation(&mut terminating);
    }
    terminating
}

fn raise_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        meta::set(object, "generation", (generation + 1).into());
    }
}

/// Returns an object without the metadata that follows from the history, and without managers that have applied nothing: users read the
/// file, and the next apply needs only what was applied before.
pub(super) fn without_derived(object: &Value) -> Value {
    let mut object = object.clone();
    for field in DERIVED {
        meta::set(&mut object, field, Value::Null);
    }
    if !has_applied(&object) {
        meta::set(&mut object, "managedFields", Value::Null);
    }
    object
}

/// Returns what is read from the file of a written object: the object without the managers that the file does not contain.
pub(super) fn as_read(object: &Arc<Value>) -> Arc<Value> {
    if object["metadata"]["managedFields"].is_null() || has_applied(object) {
        return object.clone();
    }
    let mut read = Value::clone(object);
    meta::set(&mut read, "managedFields", Value::Null);
    Arc::new(read)
}

/// Whether a manager has applied the object.
fn has_applied(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array();
    managers.is_some_and(|managers| managers.iter().any(|manager| manager["operation"] == "Apply"))
}

/// Returns what a file has to say after a write: fields that the write did not change stay as they are written, so that defaults
/// are not added to the file.
pub(super) fn rewrite(written: &Value, before: &Value, after: &Value) -> Value {
    let (Value::Object(file), Value::Object(old), Value::Object(new)) = (written, before, after) else {
        return after.clone();
    };
    let mut file = file.clone();
    for name in old.keys().chain(new.keys()) {
        match (old.get(name), new.get(name)) {
            (before, after) if before == after => {}
            (_, None) => {
                file.remove(name);
            }
            (before, Some(after)) => {
                let written = file.get(name).unwrap_or(&Value::Null);
                let value = rewrite(written, before.unwrap_or(&Value::Null), after);
                file.insert(name.clone(), value);
            }
        }
    }
    Value::Object(file)
}

/// Returns the uid of an object that the commit after `parent` creates: a UUID of version 5. After a rewrite of the branch `parent` can be
/// a commit on which the object was created before, so the number of these creations counts, too.
pub(super) fn uid(key: &Key, parent: Option<Oid>, creations: u64) -> Uuid {
    let mut hash = Sha1::new();
    hash.update(UID_NAMESPACE.as_bytes());
    hash.update(key.to_string().as_bytes());
    hash.update(parent.map(|id| id.to_string()).unwrap_or_default().as_bytes());
    if creations > 0 {
        hash.update(format!("/{creations}").as_bytes());
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_sha1_bytes(bytes).into_uuid()
}

/// Returns a time in the format of meta/v1 `Time`.
pub(super) fn timestamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds)
        .unwrap_or_default()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_keeps_what_a_write_does_not_change() {
        let written = json!({"spec": {"path": "a"}, "metadata": {"name": "x"}});
        let before = json!({"spec": {"path": "a", "interval": "1m"}, "metadata": {"name": "x"}});
        let after =
            json!({"spec": {"path": "b", "interval": "1m"}, "metadata": {"name": "x"}, "status": {"a": 1}});
        let expected = json!({"spec": {"path": "b"}, "metadata": {"name": "x"}, "status": {"a": 1}});
        assert_eq!(rewrite(&written, &before, &after), expected);
    }

    #[test]
    fn a_file_names_managers_only_after_an_apply() {
        let update = json!({"manager": "a", "operation": "Update"});
        let apply = json!({"manager": "b", "operation": "Apply"});
        let file =
            |managers: Value| without_derived(&json!({"metadata": {"name": "x", "managedFields": managers}}));
        assert_eq!(file(json!([update])), json!({"metadata": {"name": "x"}}));
        let applied = json!([update, apply]);
        assert_eq!(file(applied.clone())["metadata"]["managedFields"], applied);
        let updated = Arc::new(json!({"metadata": {"name": "x", "managedFields": [update]}}));
        assert_eq!(*as_read(&updated), json!({"metadata": {"name": "x"}}));
    }

    #[test]
    fn a_uid_names_identity_and_creation() {
        let key = Key::new("configmaps", "default", "a");
        let first = uid(&key, None, 0);
        assert_eq!(first, uid(&key, None, 0), "the same in every process");
        assert_eq!(first.to_string().chars().nth(14), Some('5'), "{first}");
        assert_ne!(first, uid(&Key::new("configmaps", "default", "b"), None, 0));
        let parent = Oid::from_str("1234567890123456789012345678901234567890").unwrap();
        let second = uid(&key, Some(parent), 0);
        assert_ne!(first, second, "a new object has a new uid");
        let again = [1, 2].map(|creations| uid(&key, Some(parent), creations));
        assert!(
            !again.contains(&second) && again[0] != again[1],
            "also on the same commit"
        );
    }
}
