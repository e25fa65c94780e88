//! The keys of an outputs Secret whose values are not sensitive. The data of the Secret is as tofu-controller writes it and does not say
//! this, so an annotation does: tf-runner writes it with the data, and the command line reads it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::annotation::NON_SENSITIVE_OUTPUTS;
use crate::digest::Digest;

/// The API server's limit for all annotations of an object, keys and values, in bytes: `TotalAnnotationSizeLimitB` in
/// k8s.io/apimachinery, pkg/api/validation/objectmeta.go.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The value of the annotation.
#[derive(Deserialize)]
struct NonSensitiveOutputs {
    /// Digest of the keys and their values. A program that does not know the annotation may replace the data and leave it:
    /// tofu-controller, or an earlier version of tf-runner.
    digest: Digest,
    keys: BTreeSet<String>,
}

/// Sets the annotation for the data of the Secret. Removes it if a key is not in the data, or if the annotations would be too large.
/// Returns whether it was changed.
pub fn set_non_sensitive_keys(secret: &mut Secret, keys: &BTreeSet<String>) -> bool {
    let digest = secret.data.as_ref().and_then(|data| digest(data, keys));
    let mut annotations = secret.metadata.annotations.take().unwrap_or_default();
    let before = annotations.remove(NON_SENSITIVE_OUTPUTS);
    let others: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    let after = digest
        .map(|digest| json!({ "digest": digest.to_string(), "keys": keys }).to_string())
        .filter(|value| others + NON_SENSITIVE_OUTPUTS.len() + value.len() <= ANNOTATIONS_LIMIT);
    let is_changed = before != after;
    if let Some(value) = after {
        annotations.insert(NON_SENSITIVE_OUTPUTS.to_owned(), value);
    }
    secret.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    is_changed
}

/// Returns the keys whose values are not sensitive. `None`: the Secret does not say it. The annotation is missing, malformed, or was
/// written for other values.
#[must_use]
pub fn non_sensitive_keys(secret: &Secret) -> Option<BTreeSet<String>> {
    let text = secret.metadata.annotations.as_ref()?.get(NON_SENSITIVE_OUTPUTS)?;
    let recorded: NonSensitiveOutputs = serde_json::from_str(text).ok()?;
    let current = digest(secret.data.as_ref()?, &recorded.keys)?;
    (current == recorded.digest).then_some(recorded.keys)
}

/// Returns the digest of these keys and their values; `None` if a key is not in the data. It covers no sensitive value, because metadata
/// is shown where data is not, for example by `kubectl describe`, and a short value can be guessed from its digest.
fn digest(data: &BTreeMap<String, ByteString>, keys: &BTreeSet<String>) -> Option<Digest> {
    let mut hash = Sha256::new();
    for key in keys {
        let value = Sha256::digest(&data.get(key)?.0);
        // Keys of a Secret contain no space and no newline, so no other keys and values have the same lines.
        hash.update(format!("{key} {}\n", hex::encode(value)));
    }
    Some(Digest::sha256(hash.finalize().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> BTreeSet<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    /// A Secret with the outputs `host`, `port` and `token`.
    fn secret() -> Secret {
        let pairs = [("host", "db"), ("port", "5432"), ("token", "hunter2")];
        let data = pairs.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
        Secret {
            data: Some(data.into()),
            ..Secret::default()
        }
    }

    fn set_value(secret: &mut Secret, key: &str, value: &str) {
        let data = secret.data.get_or_insert_default();
        data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
    }

    fn annotation(secret: &Secret) -> Option<&String> {
        secret.metadata.annotations.as_ref()?.get(NON_SENSITIVE_OUTPUTS)
    }

    #[test]
    fn the_keys_are_read_as_they_were_set() {
        let mut secret = secret();
        assert_eq!(non_sensitive_keys(&secret), None);
        for set in [keys(&["host", "port"]), keys(&["port"]), keys(&[])] {
            assert!(set_non_sensitive_keys(&mut secret, &set), "{set:?}");
            assert!(!set_non_sensitive_keys(&mut secret, &set), "{set:?}");
            assert_eq!(non_sensitive_keys(&secret), Some(set));
        }
        let text = annotation(&secret).unwrap();
        assert!(!text.contains("token") && !text.contains("host"), "{text}");
    }

    /// As after a write of tofu-controller, which leaves the annotations.
    #[test]
    fn an_annotation_of_other_values_says_nothing() {
        let mut marked = secret();
        set_non_sensitive_keys(&mut marked, &keys(&["host", "port"]));
        let mut replaced = marked.clone();
        set_value(&mut replaced, "host", "another-token");
        assert_eq!(non_sensitive_keys(&replaced), None);
        let mut removed = marked.clone();
        removed.data.as_mut().unwrap().remove("port");
        assert_eq!(non_sensitive_keys(&removed), None);
        let mut emptied = marked.clone();
        emptied.data = None;
        assert_eq!(non_sensitive_keys(&emptied), None);
        set_value(&mut marked, "token", "hunter3");
        assert_eq!(
            non_sensitive_keys(&marked),
            Some(keys(&["host", "port"])),
            "their values are the same"
        );
    }

    #[test]
    fn a_malformed_annotation_says_nothing() {
        for text in [
            "",
            "host",
            "[\"host\"]",
            "{\"keys\":[\"host\"]}",
            "{\"digest\":\"sha256:00\",\"keys\":[\"host\"]}",
        ] {
            let mut secret = secret();
            let annotations = [(NON_SENSITIVE_OUTPUTS.to_owned(), text.to_owned())];
            secret.metadata.annotations = Some(annotations.into());
            assert_eq!(non_sensitive_keys(&secret), None, "{text}");
        }
    }

    #[test]
    fn a_key_without_a_value_removes_the_annotation() {
        let mut secret = secret();
        set_non_sensitive_keys(&mut secret, &keys(&["host"]));
        assert!(set_non_sensitive_keys(&mut secret, &keys(&["host", "absent"])));
        assert_eq!(secret.metadata.annotations, None);
    }

    #[test]
    fn an_annotation_that_does_not_fit_is_removed_and_others_stay() {
        let mut secret = secret();
        set_non_sensitive_keys(&mut secret, &keys(&["host"]));
        let size = NON_SENSITIVE_OUTPUTS.len() + annotation(&secret).unwrap().len();
        let other = |size: usize| ("a".to_owned(), "x".repeat(size - 1));
        let fits = other(ANNOTATIONS_LIMIT - size);
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.extend([fits]);
        assert!(!set_non_sensitive_keys(&mut secret, &keys(&["host"])));
        assert_eq!(non_sensitive_keys(&secret), Some(keys(&["host"])));
        let exceeds = other(ANNOTATIONS_LIMIT - size + 1);
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.extend([exceeds.clone()]);
        assert!(set_non_sensitive_keys(&mut secret, &keys(&["host"])));
        let others: BTreeMap<_, _> = [exceeds].into();
        assert_eq!(secret.metadata.annotations, Some(others));
    }
}
