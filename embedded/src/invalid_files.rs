//! Events for edits in a Git repository that are not valid: the object stays as it was, and `kubectl describe` says why.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::resource::Strategy;
use crate::service::Api;
use crate::status_error::StatusError;
use crate::store::{InvalidFile, Key, Write};
use crate::{admission, meta};

/// Reason of the Events.
const REASON: &str = "InvalidFile";
/// Component that reports the Events.
const COMPONENT: &str = "sluice";
/// Maximum length of a message in characters: that of kube-apiserver for the Events of `events.k8s.io`.
const MAX_MESSAGE: usize = 1024;
/// Maximum length of the part of a name that comes from the object, so that the whole name is valid.
const MAX_NAME: usize = 200;

/// Creates an Event for each object that an invalid edit would have changed, once for each commit.
pub(crate) async fn report(api: &Api) {
    let Some(resource) = api.registry().by_strategy(Strategy::Event).cloned() else {
        return;
    };
    for file in api.store.take_invalid_files() {
        let Some(object) = api.store.read().get(&file.key).cloned() else {
            continue;
        };
        let event = event(&file, &object);
        let key = Key::new(
            resource.group_resource(),
            meta::namespace(&event),
            meta::name(&event),
        );
        let (at, resource) = (key.clone(), Arc::clone(&resource));
        let outcome = api.store.write(key, move |state| {
            if let Some(existing) = state.get(&at) {
                return Ok(Write::Unchanged(existing.clone()));
            }
            let mut event = event.clone();
            admission::normalize(&resource, &mut event).map_err(StatusError::bad_request)?;
            admission::prepare_create(&resource, event).map(Write::Put)
        });
        if let Err(error) = outcome.await {
            tracing::warn!(error = error.message(), "cannot report an invalid file");
        }
    }
}

/// Returns the Event of an object. Its name contains the commit, so that a commit has one Event for each object.
fn event(file: &InvalidFile, object: &Value) -> Value {
    let namespace = match meta::namespace(object) {
        "" => "default",
        namespace => namespace,
    };
    let name: String = meta::name(object).chars().take(MAX_NAME).collect();
    let name = name.trim_end_matches(['-', '.']);
    let commit: String = file.commit.chars().take(16).collect();
    let message = format!(
        "{} of commit {commit} changes nothing: {}",
        file.path, file.reason
    );
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    let mut involved = json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "name": meta::name(object),
        "uid": meta::uid(object),
        "resourceVersion": meta::resource_version(object),
    });
    if !meta::namespace(object).is_empty() {
        involved["namespace"] = namespace.into();
    }
    let now = meta::now();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{name}.{commit}"), "namespace": namespace},
        "involvedObject": involved,
        "type": "Warning",
        "reason": REASON,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_object_file_and_commit() {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod", "uid": "1"}});
        let file = InvalidFile {
            key: Key::new("namespaces", "", "prod"),
            path: "prod.yaml".to_owned(),
            commit: "0123456789abcdef0123".to_owned(),
            reason: "x".repeat(2 * MAX_MESSAGE),
        };
        let event = event(&file, &object);
        assert_eq!(meta::name(&event), "prod.0123456789abcdef");
        assert_eq!(meta::namespace(&event), "default");
        assert_eq!(event["involvedObject"]["uid"], "1");
        assert!(event["involvedObject"]["namespace"].is_null());
        let message = event["message"].as_str().unwrap();
        assert!(
            message.starts_with("prod.yaml of commit 0123456789abcdef changes nothing: x"),
            "{message}"
        );
        assert_eq!(message.len(), MAX_MESSAGE);
    }
}
