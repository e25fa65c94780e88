//! The readable forms of a plan under upstream's fixed names (pure): text in ConfigMaps, or JSON in Secrets, since the CLI's
//! JSON shows sensitive values and its text does not.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::effect::Effect;
use super::store::{PlanName, annotations, base_name, labels, owner};
use crate::chunk::{self, CHUNK};

/// Longest text of the CLI, and longest text of an effect, that is stored.
pub const TEXT_LIMIT: usize = 8 * 1024 * 1024;

/// The ConfigMaps of a plan's text, one unless it is long.
#[must_use]
pub fn config_maps(text: &str, name: &PlanName) -> Vec<ConfigMap> {
    let pieces = split_text(text);
    let count = pieces.len();
    let map = |(index, piece): (usize, &str)| ConfigMap {
        metadata: metadata(&base_name(name), &name.stack.name, name, index, count),
        data: Some(BTreeMap::from([("tfplan".to_owned(), piece.to_owned())])),
        ..ConfigMap::default()
    };
    pieces.into_iter().enumerate().map(map).collect()
}

/// The CLI's text of a plan, followed by everything that its id covers.
#[must_use]
pub fn with_effect(human: &str, effect: &Effect) -> String {
    format!(
        "{}\n\n{}",
        excerpt(human, TEXT_LIMIT),
        excerpt(&effect.text(), TEXT_LIMIT)
    )
}

/// The Secrets of a plan's JSON and of its effect, both given compressed.
#[must_use]
pub fn secrets(json: &[u8], effect: &[u8], name: &PlanName) -> Vec<Secret> {
    let pieces = chunk::pack(&[("tfplan", json), ("effect", effect)]);
    let count = pieces.len();
    let secret = |(index, piece): (usize, BTreeMap<String, ByteString>)| {
        let labelled = format!("{}.json", name.stack.name);
        let mut metadata = metadata(
            &format!("{}.json", base_name(name)),
            &labelled,
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
            data: Some(piece),
            ..Secret::default()
        }
    };
    pieces.into_iter().enumerate().map(secret).collect()
}

fn metadata(base: &str, labelled: &str, name: &PlanName, index: usize, count: usize) -> ObjectMeta {
    let full = if count == 1 {
        base.to_owned()
    } else {
        format!("{base}-{index}")
    };
    ObjectMeta {
        name: Some(full),
        namespace: Some(name.stack.namespace.clone()),
        labels: Some(labels(labelled, &name.workspace)),
        annotations: Some(annotations(name, index)),
        owner_references: Some(vec![owner(&name.stack)]),
        ..ObjectMeta::default()
    }
}

/// Pieces of at most [`CHUNK`] bytes, cut between characters; at least one.
fn split_text(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    loop {
        let mut at = rest.len().min(CHUNK);
        while !rest.is_char_boundary(at) {
            at -= 1;
        }
        let (piece, more) = rest.split_at(at);
        pieces.push(piece);
        if more.is_empty() {
            return pieces;
        }
        rest = more;
    }
}

/// The part of the CLI's text that a status and an event show: at most `limit` bytes, cut between lines, and said so.
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
    let front = text[..at].rfind('\n').map_or(&text[..at], |end| &text[..end]);
    format!(
        "{front}\n... ({} more lines)",
        text[front.len()..].lines().count().saturating_sub(1)
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
    fn text_goes_to_one_config_map_under_upstreams_name() {
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
        let text = format!("a{}", "€".repeat(CHUNK));
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
    fn json_goes_to_secrets_with_their_own_label() {
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
    fn an_excerpt_ends_at_a_line_and_says_what_is_left_out() {
        let text = (0..100)
            .map(|line| format!("line {line}"))
            .collect::<Vec<_>>()
            .join("\n");
        let cut = excerpt(&text, 300);
        assert!(cut.len() <= 300 && cut.ends_with("more lines)"), "{cut}");
        assert_eq!(excerpt("short\n", 300), "short");
    }
}
