//! The labels of the Secret with the state. Terraform finds a state of the kubernetes backend by its labels and writes it by its
//! name: if the labels of the backend differ from those of the Secret, already `init` replaces the state by an empty one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use sluice_tf_core::chunk::decompress;
use sluice_tf_core::state_summary::StateSummary;

use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;

/// The CLI that finds states by labels. OpenTofu finds them by name.
const SELECTING_CLI: &str = "terraform";

/// The data key of a state in its Secret: gzip.
const DATA_KEY: &str = "tfstate";
/// Largest state that is read.
const LIMIT: u64 = 64 * 1024 * 1024;

/// Fails if the CLI would not find the state in its Secret, before the CLI is started.
pub(crate) async fn check(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    let Some(secret) = &bundle.state_check.secret else {
        return Ok(());
    };
    if cli.tool.name != SELECTING_CLI {
        return Ok(());
    }
    let api = context.api::<Secret>();
    let found = context.retry(|| api.get_opt(&secret.name)).await;
    let Some(found) = found.map_err(RunError::api("read the labels of the state"))? else {
        return Ok(());
    };
    let missing = missing(&secret.labels, found.labels());
    if missing.is_empty() || is_empty(&found) {
        return Ok(());
    }
    Err(RunError::StateLabels {
        secret: secret.name.clone(),
        missing: missing.join(" "),
    })
}

/// Whether the Secret has an empty state, which nothing is lost with. The backend creates one where it finds none. A state in several
/// Secrets is not empty.
fn is_empty(secret: &Secret) -> bool {
    let state = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
    let state = state.and_then(|packed| decompress(&packed.0, LIMIT).ok());
    let summary = state.and_then(|state| StateSummary::parse(&state).ok());
    summary.flatten().is_some_and(|summary| summary.is_empty)
}

/// Returns the labels that the Secret does not have.
fn missing(desired: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> Vec<String> {
    let missing = desired
        .iter()
        .filter(|(label, value)| found.get(*label) != Some(value));
    missing.map(|(label, value)| format!("{label}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use sluice_tf_core::chunk::compress;

    use super::*;

    #[test]
    fn only_an_empty_state_may_be_replaced() {
        let is_empty = |state: &[u8]| {
            let data = [(DATA_KEY.to_owned(), ByteString(state.to_vec()))];
            is_empty(&Secret {
                data: Some(data.into()),
                ..Secret::default()
            })
        };
        let packed = |text: &str| compress(text.as_bytes()).unwrap();
        assert!(is_empty(&packed(
            r#"{"lineage":"l","resources":[],"outputs":{}}"#
        )));
        let full = packed(r#"{"lineage":"l","resources":[{"mode":"managed","instances":[{}]}]}"#);
        assert!(!is_empty(&full));
        assert!(!is_empty(&full[..full.len() / 2]), "one of several Secrets");
        assert!(!is_empty(b"") && !super::is_empty(&Secret::default()));
    }

    #[test]
    fn a_secret_is_found_if_it_has_all_labels() {
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = pairs.iter();
            pairs
                .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
                .collect()
        };
        let found = labels(&[("team", "network"), ("tfstate", "true")]);
        assert!(missing(&labels(&[]), &found).is_empty());
        assert!(missing(&labels(&[("team", "network")]), &found).is_empty());
        let desired = labels(&[("team", "storage"), ("tier", "one")]);
        assert_eq!(missing(&desired, &found), ["team=storage", "tier=one"]);
    }
}
