//! The labels of the Secrets with states. Terraform finds a state of the kubernetes backend by its labels and writes it by its
//! name: if the labels of the backend differ from those of the Secret, already `init` replaces the state by an empty one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use sluice_tf_core::chunk::decompress;
use sluice_tf_core::state_summary::StateSummary;

use crate::run::cli::version;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;

/// The CLI that finds states by labels. Every version of OpenTofu finds them by name.
const SELECTING_CLI: &str = "terraform";
/// Its first version that does (hashicorp/terraform#29678), major and minor number.
const FIRST_SELECTING_VERSION: (u64, u64) = (1, 6);

/// The data key of a state in its Secret: gzip.
pub(super) const DATA_KEY: &str = "tfstate";
/// Largest state that is read.
const LIMIT: u64 = 64 * 1024 * 1024;

/// Fails if a command of the run would not find a state in its Secret, before `init`. That runs in the workspace `default`, whatever
/// the workspace of the stack is.
pub(crate) async fn check(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    let Some(secrets) = &bundle.state_check.secrets else {
        return Ok(());
    };
    if cli.tool.name != SELECTING_CLI {
        return Ok(());
    }
    let api = context.api::<Secret>();
    for name in &secrets.names {
        let found = context.retry_until(&cli.limits.stop, || api.get_opt(name)).await;
        let Some(found) = found.map_err(RunError::api("read the labels of the state"))? else {
            continue;
        };
        let missing = missing(&secrets.labels, found.labels());
        if missing.is_empty() || is_empty(&found) {
            continue;
        }
        // Queried only here: it costs a process.
        if !selects_by_labels(&version::find(session).await?) {
            return Ok(());
        }
        return Err(RunError::StateLabels {
            secret: name.clone(),
            missing: missing.join(" "),
        });
    }
    Ok(())
}

/// Whether this version of Terraform finds states by labels. A prerelease behaves as its release; an unknown version may do so.
fn selects_by_labels(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= FIRST_SELECTING_VERSION,
        _ => true,
    }
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
    fn older_versions_find_a_state_by_its_name() {
        for (version, selects) in [
            ("1.5.7", false),
            ("0.15.5", false),
            ("1.6.0", true),
            ("1.6.0-beta1", true),
            ("1.13.4", true),
            ("2.0.0", true),
            ("unknown", true),
            ("", true),
        ] {
            assert_eq!(selects_by_labels(version), selects, "{version}");
        }
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
