//! The inventory: names, types and identifiers of the resources, from a bounded read of `state pull`. Other attributes are
//! ignored.

use std::io::Read;

use serde::Deserialize;
use sluice_api::run::RunStatusLimit;
use sluice_api::terraform::{InventoryEntry, ResourceInventory};
use sluice_tf_core::cli::text::truncate;
use sluice_tf_core::redaction::Redactor;

/// Largest state that is read.
const LIMIT: u64 = 64 * 1024 * 1024;

/// The reason why the resources of the state cannot be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InventoryError {
    #[error("the state is larger than {LIMIT} bytes; set enableInventory: false")]
    TooLarge,
    /// The state is malformed. The message of the parser is left out, because it may quote a value.
    #[error("the output of `state pull` is invalid (line {line}, column {column})")]
    Malformed { line: usize, column: usize },
    #[error("the output of `state pull` cannot be read")]
    Unreadable(#[from] std::io::Error),
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    instances: Vec<Instance>,
}

#[derive(Deserialize)]
struct Instance {
    #[serde(default)]
    attributes: Option<Attributes>,
    #[serde(default)]
    attributes_flat: Option<Attributes>,
}

/// The two identifying attributes.
#[derive(Default, Deserialize)]
struct Attributes {
    #[serde(default)]
    arn: serde_json::Value,
    #[serde(default)]
    id: serde_json::Value,
}

/// The entries of a state, data sources too, sorted; at most [`RunStatusLimit::INVENTORY`]. A workspace without a state has none.
///
/// An identifier may be sensitive. It is redacted before it is cut: half a value would not be recognised.
pub(crate) fn parse(source: impl Read, secrets: &Redactor) -> Result<ResourceInventory, InventoryError> {
    let mut bytes = Vec::new();
    source.take(LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT {
        return Err(InventoryError::TooLarge);
    }
    if bytes.trim_ascii().is_empty() {
        return Ok(ResourceInventory::default());
    }
    let state: State = serde_json::from_slice(&bytes).map_err(|error| InventoryError::Malformed {
        line: error.line(),
        column: error.column(),
    })?;
    let mut entries: Vec<_> = state
        .resources
        .iter()
        .flat_map(|resource| entries(resource, secrets))
        .collect();
    entries.sort_by(|one, other| {
        (&one.kind, &one.name, &one.identifier).cmp(&(&other.kind, &other.name, &other.identifier))
    });
    entries.truncate(RunStatusLimit::INVENTORY);
    Ok(ResourceInventory { entries })
}

fn entries(resource: &Resource, secrets: &Redactor) -> impl Iterator<Item = InventoryEntry> {
    resource.instances.iter().map(|instance| InventoryEntry {
        name: shorten(&resource.name),
        kind: shorten(&resource.kind),
        identifier: shorten(&secrets.redact(&identifier(instance))),
    })
}

/// `arn`, else `id`, else nothing.
fn identifier(instance: &Instance) -> String {
    let attributes = instance.attributes.as_ref().or(instance.attributes_flat.as_ref());
    let texts = attributes
        .map(|found| [&found.arn, &found.id])
        .into_iter()
        .flatten();
    texts
        .filter_map(|value| match value {
            serde_json::Value::String(text) => Some(text.clone()),
            serde_json::Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

fn shorten(text: &str) -> String {
    truncate(text, RunStatusLimit::INVENTORY_TEXT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn listed(state: &serde_json::Value) -> Vec<String> {
        let inventory = parse(state.to_string().as_bytes(), &Redactor::default()).unwrap();
        let line = |entry: &InventoryEntry| format!("{} {} {}", entry.kind, entry.name, entry.identifier);
        inventory.entries.iter().map(line).collect()
    }

    #[test]
    fn resources_and_data_sources_of_all_modules_are_listed_with_their_ids() {
        let state = json!({ "version": 4, "resources": [
            { "mode": "managed", "type": "kubernetes_config_map", "name": "cm",
              "instances": [{ "attributes": { "id": "default/cm", "data": { "password": "hunter2" } } }] },
            { "module": "module.a", "mode": "managed", "type": "aws_vpc", "name": "net",
              "instances": [{ "index_key": 0, "attributes": { "arn": "arn:1", "id": "vpc-1" } }, { "attributes": { "arn": "", "id": 7 } }] },
            { "mode": "data", "type": "aws_ami", "name": "it", "instances": [{ "attributes": null }] },
            { "mode": "managed", "type": "old", "name": "flat", "instances": [{ "attributes_flat": { "id": "f" } }] },
            { "mode": "managed", "type": "none", "name": "left", "instances": [] } ] });
        let expected = [
            "aws_ami it ",
            "aws_vpc net 7",
            "aws_vpc net arn:1",
            "kubernetes_config_map cm default/cm",
            "old flat f",
        ];
        assert_eq!(listed(&state), expected);
        assert_eq!(parse(&b"\n"[..], &Redactor::default()).unwrap().entries, []);
    }

    #[test]
    fn a_state_of_any_size_gives_a_bounded_list() {
        let instances: Vec<_> = (0..3000)
            .map(|n| json!({ "attributes": { "id": "x".repeat(n) } }))
            .collect();
        let state = json!({ "resources": [{ "type": "t", "name": "n", "instances": instances }] });
        let entries = listed(&state);
        assert_eq!(entries.len(), RunStatusLimit::INVENTORY);
        assert!(
            entries
                .iter()
                .all(|entry| entry.len() < RunStatusLimit::INVENTORY_TEXT + 16)
        );
    }

    #[test]
    fn a_value_at_the_cut_of_an_identifier_is_removed_completely() {
        let mut secrets = Redactor::default();
        secrets.add_text("a-value-of-the-state");
        let front = "x".repeat(RunStatusLimit::INVENTORY_TEXT - 4);
        let state = json!({ "resources": [{ "type": "t", "name": "n", "instances":
            [{ "attributes": { "id": format!("{front}a-value-of-the-state") } }] }] });
        let inventory = parse(state.to_string().as_bytes(), &secrets).unwrap();
        assert_eq!(inventory.entries[0].identifier, format!("{front}(sen..."));
    }

    #[test]
    fn a_malformed_state_is_not_quoted() {
        let error = parse(
            r#"{"resources":[{"name":"hunter2"#.as_bytes(),
            &Redactor::default(),
        )
        .unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(bytes.as_slice(), &Redactor::default());
        }
    }
}
