//! The copies of a state that runs made before they applied.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde::Serialize;
use sluice_api::terraform::Terraform;
use sluice_runtime::clock::{Clock as _, SystemClock};
use sluice_tf_core::bundle::Stack;
use sluice_tf_core::plan::store::RUN;
use sluice_tf_core::state_copy::{
    ID, LABEL, LINEAGE, RESOURCES, REVISION, SERIAL, StateCopyError, TIME, WORKSPACE, decode,
    selector_of_all_workspaces,
};

use super::stored::StoredState;
use crate::cluster::Cluster;
use crate::output::{Cell, Table, age};
use crate::{CliError, stack};

/// The id of the current state in the list.
const CURRENT: &str = "current";

/// A state in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CopyEntry {
    /// The id of the copy, or `current`.
    pub(super) id: String,
    workspace: String,
    serial: String,
    lineage: String,
    resources: String,
    /// When a run needed the copy last, as RFC 3339.
    copied_at: String,
    /// The run that applied next.
    run: String,
    /// What it applied.
    revision: String,
}

impl CopyEntry {
    /// Describes the state in the backend.
    pub(super) fn of_current(stack: &Terraform, state: &StoredState) -> Self {
        Self {
            id: CURRENT.to_owned(),
            workspace: stack.spec.workspace_name().to_owned(),
            serial: state.summary.serial.to_string(),
            lineage: state.summary.lineage.clone(),
            resources: state.summary.resources.to_string(),
            copied_at: String::new(),
            run: String::new(),
            revision: String::new(),
        }
    }
}

/// A copy that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadCopy {
    /// Its workspace.
    pub(super) workspace: String,
    /// The state in it.
    pub(super) state: StoredState,
}

/// Reads the metadata of all copies of a stack: the copies themselves may be large.
pub(super) async fn list(cluster: &Cluster, stack: &Terraform) -> Result<Vec<ObjectMeta>, CliError> {
    let namespace = stack.namespace().unwrap_or_default();
    let params = ListParams::default().labels(&selector_of_all_workspaces(&stack.name_any()));
    let listed = cluster
        .objects_in::<Secret>(&namespace)
        .list_metadata(&params)
        .await;
    let listed = listed.map_err(|source| CliError::Api {
        action: "list",
        object: "secrets".to_owned(),
        source: Box::new(source),
    })?;
    Ok(listed.items.into_iter().map(|secret| secret.metadata).collect())
}

/// Reads one copy.
///
/// # Errors
/// There is none with this id, it is sealed, or damaged.
pub(super) async fn read(cluster: &Cluster, stack: &Terraform, id: &str) -> Result<ReadCopy, CliError> {
    let name = stack.name_any();
    let copies = list(cluster, stack).await?;
    let Some(found) = copies.iter().find(|copy| label(copy, ID) == id) else {
        return Err(CliError::NotFound {
            object: format!("copy {id} of terraform {}", stack::full_name(stack)),
            list_command: format!("sluice state list {name}"),
        });
    };
    let selector = format!(
        "{LABEL}={},{WORKSPACE}={},{ID}={id}",
        label(found, LABEL),
        label(found, WORKSPACE)
    );
    let namespace = stack.namespace().unwrap_or_default();
    let secrets = cluster.objects_in::<Secret>(&namespace);
    let secrets = cluster
        .list_with(&secrets, ListParams::default().labels(&selector))
        .await?;
    let owner = Stack {
        namespace,
        name: name.clone(),
        uid: stack.uid().unwrap_or_default(),
    };
    let workspace = label(found, WORKSPACE).to_owned();
    let opened = decode(&secrets, &owner, &workspace, &[]).map_err(|error| refuse(stack, id, &error))?;
    let state = StoredState::parse(&format!("copy {id}"), opened.state)?;
    Ok(ReadCopy { workspace, state })
}

fn refuse(stack: &Terraform, id: &str, error: &StateCopyError) -> CliError {
    let name = stack.name_any();
    let (cause, next_command) = match error {
        StateCopyError::Sealed { .. } => (
            format!("the copy {id} is sealed: only a run of the stack opens it"),
            format!("sluice debug {name}"),
        ),
        other => (other.to_string(), format!("sluice state list {name}")),
    };
    CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause,
        next_command,
    }
}

/// Returns one entry for each copy, newest first. A large copy has several Secrets. Pure.
#[must_use]
pub(super) fn entries(secrets: &[ObjectMeta]) -> Vec<CopyEntry> {
    let mut copies: BTreeMap<(&str, &str), CopyEntry> = BTreeMap::new();
    for secret in secrets {
        let entry = CopyEntry {
            id: label(secret, ID).to_owned(),
            workspace: label(secret, WORKSPACE).to_owned(),
            serial: label(secret, SERIAL).to_owned(),
            lineage: annotation(secret, LINEAGE).to_owned(),
            resources: annotation(secret, RESOURCES).to_owned(),
            copied_at: annotation(secret, TIME).to_owned(),
            run: annotation(secret, RUN).to_owned(),
            revision: annotation(secret, REVISION).to_owned(),
        };
        let key = (label(secret, WORKSPACE), label(secret, ID));
        // A run that needs a copy again may have been stopped between two of its Secrets.
        let is_newer = copies
            .get(&key)
            .is_none_or(|known| known.copied_at < entry.copied_at);
        if is_newer {
            copies.insert(key, entry);
        }
    }
    let mut entries: Vec<_> = copies.into_values().collect();
    entries.sort_by_cached_key(|entry| Reverse(entry.copied_at.clone()));
    entries
}

/// Returns the table of a list.
#[must_use]
pub(super) fn table(entries: &[CopyEntry]) -> Table {
    let now = SystemClock.now();
    let mut table = Table::new(&[
        "ID",
        "WORKSPACE",
        "SERIAL",
        "LINEAGE",
        "RESOURCES",
        "AGE",
        "BEFORE RUN",
        "OF REVISION",
    ]);
    for entry in entries {
        let copied: Option<Timestamp> = entry.copied_at.parse().ok();
        let copied = copied.map(|copied| age(copied, now)).unwrap_or_default();
        let texts = [
            &entry.id,
            &entry.workspace,
            &entry.serial,
            &entry.lineage,
            &entry.resources,
            &copied,
            &entry.run,
            &entry.revision,
        ];
        table.push(texts.map(|text| Cell::from(text.as_str())).into());
    }
    table
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    value(metadata.labels.as_ref(), key)
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    value(metadata.annotations.as_ref(), key)
}

fn value<'a>(values: Option<&'a BTreeMap<String, String>>, key: &str) -> &'a str {
    values
        .and_then(|values| values.get(key))
        .map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(id: &str, serial: &str, copied_at: &str) -> ObjectMeta {
        let map = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Some(owned.collect())
        };
        ObjectMeta {
            labels: map(&[(ID, id), (WORKSPACE, "default"), (SERIAL, serial)]),
            annotations: map(&[(TIME, copied_at), (LINEAGE, "l-1"), (RUN, "app-u-4")]),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn each_copy_is_listed_once_and_the_newest_first() {
        let secrets = [
            secret("a", "3", "2026-01-01T00:00:00Z"),
            secret("b", "5", "2026-01-03T00:00:00Z"),
            secret("a", "3", "2026-01-02T00:00:00Z"),
        ];
        let entries = entries(&secrets);
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| (entry.id.as_str(), entry.serial.as_str(), entry.copied_at.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("b", "5", "2026-01-03T00:00:00Z"),
                ("a", "3", "2026-01-02T00:00:00Z")
            ]
        );
        assert!(!table(&entries).is_empty());
    }
}
