//! Readable plans under the object names of tofu-controller: text in ConfigMaps, or JSON in Secrets, since the JSON of the CLI has
//! sensitive values.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::effect::Effect;
use super::store::{PlanName, annotations, base_name, labels, owner};
use crate::chunk::{self, CHUNK_SIZE};

/// Length limit of the text of the CLI, and of the text of an effect.
pub const TEXT_LIMIT: usize = 8 * 1024 * 1024;

/// Returns the ConfigMaps of the text of a plan.
#[must_use]
pub fn config_maps(text: &str, name: &PlanName) -> Vec<ConfigMap> {
    let chunks = split_text(text);
    let count = chunks.len();
    let map = |(index, chunk): (usize, &str)| ConfigMap {
        metadata: metadata(&base_name(name), &name.stack.name, name, index, count),
        data: Some(BTreeMap::from([("tfplan".to_owned(), chunk.to_owned())])),
        ..ConfigMap::default()
    };
    chunks.into_iter().enumerate().map(map).collect()
}

/// Returns the text of the CLI, followed by the text of the effect.
#[must_use]
pub fn with_effect(human: &str, effect: &Effect) -> String {
    format!(
        "{}\n\n{}",
        excerpt(human, TEXT_LIMIT),
        excerpt(&effect.text(), TEXT_LIMIT)
    )
}

/// Returns the Secrets of the compressed JSON of a plan and of its effect.
#[must_use]
pub fn secrets(json: &[u8], effect: &[u8], name: &PlanName) -> Vec<Secret> {
    let chunks = chunk::pack(&[("tfplan", json), ("effect", effect)]);
    let count = chunks.len();
    let secret = |(index, chunk): (usize, BTreeMap<String, ByteString>)| {
        let plan_name = format!("{}.json", name.stack.name);
        let mut metadata = metadata(
            &format!("{}.json", base_name(name)),
            &plan_name,
            name,
            index,
            count,
        );
        metadata
            .annotations
            .get_or_insert_default()
            .insert("encoding".to_owned(), "gzip".to_owned());
        Secret {
            metadata,
            type_: Some("Opaque".to_owned()),
            data: Some(chunk),
            ..Secret::default()
        }
    };
    chunks.into_iter().enumerate().map(secret).collect()
}

fn metadata(base: &str, plan_name: &str, name: &PlanName, index: usize, count: usize) -> ObjectMeta {
    let full = if count == 1 {
        base.to_owned()
    } else {
        format!("{base}-{index}")
    };
    ObjectMeta {
        name: Some(full),
        namespace: Some(name.stack.namespace.clone()),
        labels: Some(labels(plan_name, &name.workspace)),
        annotations: Some(annotations(name, index)),
        owner_references: Some(vec![owner(&name.stack)]),
        ..ObjectMeta::default()
    }
}

/// Splits a text between characters into at least one chunk of at most [`CHUNK_SIZE`] bytes.
fn split_text(text: &str) -> Vec<&str> {
    let mut chunks = Vec::new();
    let mut rest = text;
    loop {
        let mut at = rest.len().min(CHUNK_SIZE);
        while !rest.is_char_boundary(at) {
            at -= 1;
        }
        let (chunk, more) = rest.split_at(at);
        chunks.push(chunk);
        if more.is_empty() {
            return chunks;
        }
        rest = more;
    }
}

/// Returns the start of the text of the CLI for statuses and events: at most `limit` bytes, cut between lines, with the number of
/// omitted lines.
#[must_use]
pub fn excerpt(text: &str, limit: usize) -> String {
    let text = text.trim();
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut at = limit.saturating_sub(64);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let start = text[..at].rfind('\n').map_or(&text[..at], |end| &text[..end]);
    format!(
        "{start}\n... ({} more lines)",
        text[start.len()..].lines().count().saturating_sub(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Stack;

    fn name() -> PlanName {
        let stack = Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u".into(),
        };
        PlanName {
            stack,
            workspace: "default".into(),
            id: "plan-x".into(),
            run: "net-1".into(),
        }
    }

    #[test]
    fn text_is_stored_in_one_config_map_with_upstreams_name() {
        let maps = config_maps("# plan", &name());
        assert_eq!(maps.len(), 1);
        assert_eq!(maps[0].metadata.name.as_deref(), Some("tfplan-default-net"));
        assert_eq!(maps[0].data.as_ref().unwrap()["tfplan"], "# plan");
        assert!(
            !maps[0]
                .metadata
                .annotations
                .as_ref()
                .unwrap()
                .contains_key("encoding")
        );
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = format!("a{}", "€".repeat(CHUNK_SIZE));
        let maps = config_maps(&text, &name());
        assert_eq!(maps.len(), 4);
        assert_eq!(maps[1].metadata.name.as_deref(), Some("tfplan-default-net-1"));
        let whole: String = maps
            .iter()
            .map(|map| map.data.as_ref().unwrap()["tfplan"].clone())
            .collect();
        assert_eq!(whole, text);
    }

    #[test]
    fn json_is_stored_in_secrets_with_their_own_label() {
        let secrets = secrets(b"gz", b"ef", &name());
        assert_eq!(
            secrets[0].metadata.name.as_deref(),
            Some("tfplan-default-net.json")
        );
        assert_eq!(
            secrets[0].metadata.labels.as_ref().unwrap()["infra.contrib.fluxcd.io/plan-name"],
            "net.json"
        );
    }

    #[test]
    fn an_excerpt_ends_at_a_line_and_counts_the_omitted_rest() {
        let text = (0..100)
            .map(|line| format!("line {line}"))
            .collect::<Vec<_>>()
            .join("\n");
        let cut = excerpt(&text, 300);
        assert!(cut.len() <= 300 && cut.ends_with("more lines)"), "{cut}");
        assert_eq!(excerpt("short\n", 300), "short");
    }
}
