//! Reads the keys of Secrets and ConfigMaps, live.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use sluice_api::terraform::KeySource;

use crate::inputs::Pairs;

/// A Secret or ConfigMap that a field of the spec names cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {kind:?} {name} of {field}: {text}")]
pub(in crate::reconcile) struct ReadError {
    kind: KeySource,
    name: String,
    field: &'static str,
    text: String,
}

impl ReadError {
    pub(super) fn new(kind: KeySource, name: &str, field: &'static str, error: &kube::Error) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            field,
            text: api_message(error),
        }
    }
}

/// Reads the keys and values of one object.
pub(super) async fn pairs(
    kind: KeySource,
    name: &str,
    namespace: &str,
    client: &Client,
) -> Result<Pairs, kube::Error> {
    match kind {
        KeySource::Secret => secret(name, namespace, client).await,
        KeySource::ConfigMap => config(name, namespace, client).await,
    }
}

/// Reads the keys and values of a Secret.
pub(super) async fn secret(name: &str, namespace: &str, client: &Client) -> Result<Pairs, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let data = api.get(name).await?.data.unwrap_or_default();
    Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
}

async fn config(name: &str, namespace: &str, client: &Client) -> Result<Pairs, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = api.get(name).await?;
    let text = map.data.unwrap_or_default().into_iter();
    let binary = map.binary_data.unwrap_or_default().into_iter();
    Ok(text
        .map(|(key, value)| (key, value.into_bytes()))
        .chain(binary.map(|(key, value)| (key, value.0)))
        .collect())
}

/// Returns whether `optional` covers this error: the object is missing or forbidden. Other errors are not covered:
/// the stack would run without these inputs now, and with them a moment later.
pub(super) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 403 | 404))
}

/// Returns the message of the API without that of the client.
pub(in crate::reconcile) fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn optional_covers_absent_objects_but_not_other_errors() {
        let api = |code| kube::Error::Api(Status::failure("no", "No").with_code(code).boxed());
        assert!(is_absent(&api(404)) && is_absent(&api(403)));
        for code in [401, 429, 500, 503, 504] {
            assert!(!is_absent(&api(code)), "{code}");
        }
        assert!(!is_absent(&kube::Error::LinesCodecMaxLineLengthExceeded));
    }
}
