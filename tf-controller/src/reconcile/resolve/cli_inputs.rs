//! Reads the CLI inputs besides the module: `backendConfigsFrom`, `cliConfigSecretRef`, `fileMappings`.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sluice_api::reference::{self, AccessDenied, CrossNamespace};
use sluice_api::terraform::{FileLocation, FileMapping, KeySource, NamespacedReference, Reason, Terraform};
use sluice_tf_core::bundle::{CliConfig, Content, Location, MappedFile};

use super::{InputReader, ReadError};
use crate::inputs::Pairs;

/// The ending of the only key of the Secret with the CLI configuration.
const CLI_CONFIG_ENDING: &str = ".tfrc";

/// Why a CLI input cannot be resolved. Never contains a value.
#[derive(Debug, thiserror::Error)]
pub(in crate::reconcile) enum CliInputError {
    /// A Secret or ConfigMap cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A value is not text.
    #[error("the value of key {key:?} in {name} of {field} is not text")]
    NotText {
        /// Name of the Secret or ConfigMap.
        name: String,
        /// The field that names it.
        field: &'static str,
        /// The key.
        key: String,
    },
    /// The CLI configuration is in another namespace.
    #[error(transparent)]
    Denied(#[from] AccessDenied),
    /// The Secret with the CLI configuration cannot be used.
    #[error("cannot process cli config: {0}")]
    CliConfig(String),
}

impl CliInputError {
    /// The reason in `Ready`.
    pub(super) const fn public_reason(&self) -> &'static str {
        match self {
            Self::Read(_) | Self::NotText { .. } => Reason::TfExecInitFailed.as_str(),
            Self::Denied(_) => Reason::AccessDenied.as_str(),
            Self::CliConfig(_) => Reason::TfExecNewFailed.as_str(),
        }
    }
}

/// Returns the pairs of all `backendConfigsFrom`; the last of a name wins. `optional` covers an object that is
/// absent. A selected key that a Secret lacks is empty; one that a ConfigMap lacks is omitted.
pub(super) async fn backend_arguments(
    stack: &Terraform,
    reader: &InputReader,
) -> Result<BTreeMap<String, String>, CliInputError> {
    const FIELD: &str = "backendConfigsFrom";
    let mut all = BTreeMap::new();
    for from in &stack.spec.backend_configs_from {
        let pairs = match reader.read(from.kind, &from.name, FIELD).await {
            Ok(pairs) => pairs,
            Err(error) if from.optional && error.is_absent() => continue,
            Err(error) => return Err(error.into()),
        };
        for (key, value) in select_keys(pairs, &from.keys, from.kind == KeySource::Secret) {
            let value = String::from_utf8(value).map_err(|_| CliInputError::NotText {
                name: from.name.clone(),
                field: FIELD,
                key: key.clone(),
            })?;
            all.insert(key, value);
        }
    }
    Ok(all)
}

/// Returns the pairs of these keys; all if there are none.
fn select_keys(mut pairs: Pairs, keys: &[String], missing_is_empty: bool) -> Vec<(String, Vec<u8>)> {
    if keys.is_empty() {
        return pairs.into_iter().collect();
    }
    let take = |key: &String| match pairs.remove(key) {
        Some(value) => Some((key.clone(), value)),
        None => missing_is_empty.then(|| (key.clone(), Vec::new())),
    };
    keys.iter().filter_map(take).collect()
}

/// Reads the CLI configuration.
pub(super) async fn cli_config(
    stack: &Terraform,
    policy: CrossNamespace,
    reader: &InputReader,
) -> Result<Option<CliConfig>, CliInputError> {
    let Some(NamespacedReference { name, namespace }) = &stack.spec.cli_config_secret_ref else {
        return Ok(None);
    };
    let own = stack.namespace().unwrap_or_default();
    let target = reference::resolve(&own, namespace, name, policy)?;
    let read = reader
        .read_object(KeySource::Secret, &target, "cliConfigSecretRef")
        .await;
    let pairs = read.map_err(|error| match error {
        ReadError::Api { text, .. } => {
            CliInputError::CliConfig(format!("cannot read Secret {target}: {text}"))
        }
        refused => refused.into(),
    })?;
    let mut pairs = pairs.into_iter();
    match (pairs.next(), pairs.next()) {
        (Some((name, bytes)), None) if name.ends_with(CLI_CONFIG_ENDING) => Ok(Some(CliConfig {
            name,
            content: Content(bytes),
        })),
        (Some((name, _)), None) => Err(CliInputError::CliConfig(format!(
            "the key {name:?} of Secret {target} does not end in {CLI_CONFIG_ENDING}"
        ))),
        _ => Err(CliInputError::CliConfig(format!(
            "Secret {target} must have exactly one key, and its name must end in {CLI_CONFIG_ENDING}"
        ))),
    }
}

/// Reads the mapped files, in order. A key that its Secret lacks is an empty file.
pub(super) async fn files(stack: &Terraform, reader: &InputReader) -> Result<Vec<MappedFile>, CliInputError> {
    let mut read: BTreeMap<&str, Pairs> = BTreeMap::new();
    let mut files = Vec::new();
    for mapping in &stack.spec.file_mappings {
        let name = mapping.secret_ref.name.as_str();
        if !read.contains_key(name) {
            let pairs = reader.read(KeySource::Secret, name, "fileMappings").await?;
            read.insert(name, pairs);
        }
        let bytes = read
            .get(name)
            .and_then(|pairs| pairs.get(&mapping.secret_ref.key));
        files.push(mapped(mapping, bytes.cloned().unwrap_or_default()));
    }
    Ok(files)
}

fn mapped(mapping: &FileMapping, bytes: Vec<u8>) -> MappedFile {
    MappedFile {
        location: match mapping.location {
            FileLocation::Home => Location::Home,
            FileLocation::Workspace => Location::Workspace,
        },
        path: mapping.path.clone(),
        content: Content(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_are_empty_or_omitted_by_kind() {
        let pairs: Pairs = [("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())].into();
        let names = |keys: &[&str], empty| {
            let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
            select_keys(pairs.clone(), &keys, empty)
                .into_iter()
                .map(|(key, value)| format!("{key}={}", String::from_utf8(value).unwrap()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&[], true), ["a=1", "b=2"]);
        assert_eq!(names(&["b", "x"], true), ["b=2", "x="]);
        assert_eq!(names(&["b", "x"], false), ["b=2"]);
    }
}
