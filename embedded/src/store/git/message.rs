//! Messages of commits, with trailers: other processes read the versions of objects from them, and users the authors of the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git2::Oid;
use serde_json::Value;

use crate::store::backend::Record;
use crate::store::state::Key;
use crate::store::watch_cache::ChangeType;

/// Trailer with the version and the key of a changed object.
const VERSION: &str = "Resource-Version: ";
/// Trailer with the key of a removed object, which may have had no file.
const REMOVED: &str = "Removed: ";
/// Trailer with the user of a write.
const USER: &str = "User: ";
/// Trailer with the field manager of a write, which says which program wrote.
const MANAGER: &str = "Manager: ";
/// Trailer with the reason of a write: its verb, or the reason of the `Ready` condition that a status changes.
const REASON: &str = "Reason: ";
/// Subresource of a status.
const STATUS: &str = "status";
/// Limit of a user, manager or reason, in characters.
const MAX_NAME: usize = 128;

/// Returns the message of a commit that makes these changes to the objects of `before`.
pub(super) fn compose(records: &[Record], before: &BTreeMap<Key, Arc<Value>>) -> String {
    let mut lines = match records {
        [record] => vec![subject(record, before.contains_key(&record.key))],
        _ => vec![format!("write {} objects", records.len())],
    };
    lines.push(String::new());
    for record in records {
        lines.push(format!("{VERSION}{} {}", record.revision, record.key));
        if record.kind == ChangeType::Remove {
            lines.push(format!("{REMOVED}{}", record.key));
        }
    }
    let names = records.iter().flat_map(|record| {
        let before = before.get(&record.key).map(|before| &**before);
        [
            (USER, printable(&record.origin.user)),
            (MANAGER, printable(&record.origin.manager)),
            (REASON, printable(reason(record, before))),
        ]
    });
    let names: BTreeSet<(&str, String)> = names.filter(|(_, name)| !name.is_empty()).collect();
    lines.extend(names.iter().map(|(trailer, name)| format!("{trailer}{name}")));
    lines.join("\n") + "\n"
}

/// Returns the first line for one change: verb, resource, object, subresource.
fn subject(record: &Record, exists: bool) -> String {
    let verb = match record.kind {
        ChangeType::Remove => "delete",
        ChangeType::Put if exists => "update",
        ChangeType::Put => "create",
    };
    let key = &record.key;
    let plural = key.resource.split('.').next().unwrap_or_default();
    let object = format!("{}/{}", key.namespace, key.name);
    let object = object.trim_start_matches('/');
    let subject = format!("{verb} {plural} {object} {}", record.origin.subresource);
    subject.trim_end().to_owned()
}

/// Returns the reason of a write; empty for one of the server itself.
fn reason<'a>(record: &'a Record, before: Option<&Value>) -> &'a str {
    let verb = record.origin.verb;
    if record.origin.subresource != STATUS {
        return verb;
    }
    let ready = ready_condition(&record.object);
    let changed = ready.filter(|ready| before.and_then(ready_condition) != Some(*ready));
    let reason = changed.and_then(|ready| ready["reason"].as_str());
    reason.filter(|reason| !reason.is_empty()).unwrap_or(verb)
}

fn ready_condition(object: &Value) -> Option<&Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")
}

/// Returns a name of a client on one line: a line of its own would be a trailer.
fn printable(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()
}

/// The trailers of a message; empty for commits of users.
#[derive(Debug, Default)]
pub(super) struct Trailers {
    /// Versions of changed objects.
    pub(super) versions: BTreeMap<Key, u64>,
    /// Removed objects.
    pub(super) removed: BTreeSet<Key>,
}

impl Trailers {
    /// Whether the message has none, so that no store wrote it as a write.
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.removed.is_empty()
    }
}

/// Returns the message of a commit of the journal that takes over a commit of the branch.
pub(super) fn take_over(id: Oid) -> String {
    format!("take over {id}\n")
}

/// Whether this is the message of a store for a commit of the journal that belongs to `head`. Merges of others have a second parent, too.
pub(super) fn belongs_to(message: &str, head: Oid) -> bool {
    message == take_over(head) || !parse(message).is_empty()
}

/// Reads the trailers of a message. Lines of another form are text.
pub(super) fn parse(message: &str) -> Trailers {
    let mut trailers = Trailers::default();
    for line in message.lines() {
        if let Some((version, text)) = line.strip_prefix(VERSION).and_then(|rest| rest.split_once(' '))
            && let (Ok(version), Some(key)) = (version.parse(), key(text))
        {
            trailers.versions.insert(key, version);
        } else if let Some(key) = line.strip_prefix(REMOVED).and_then(key) {
            trailers.removed.insert(key);
        }
    }
    trailers
}

fn key(text: &str) -> Option<Key> {
    let mut parts = text.splitn(3, '/');
    Some(Key::new(parts.next()?, parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::backend::Origin;

    #[test]
    fn a_message_says_what_other_processes_need() {
        let key = Key::new("configmaps", "default", "a");
        let namespace = Key::new("namespaces", "", "b");
        let record = |key: &Key, kind, revision| Record {
            key: key.clone(),
            kind,
            object: Arc::default(),
            revision,
            origin: Origin::default(),
        };
        let records = [
            record(&key, ChangeType::Put, 7),
            record(&namespace, ChangeType::Remove, 8),
        ];
        let message = compose(&records, &BTreeMap::new());
        assert!(message.starts_with("write 2 objects\n\n"), "{message}");
        let trailers = parse(&message);
        let versions = BTreeMap::from([(key, 7), (namespace.clone(), 8)]);
        assert_eq!(trailers.versions, versions);
        assert_eq!(trailers.removed, BTreeSet::from([namespace]));
        assert!(parse("Resource-Version: x configmaps/a\n").versions.is_empty());
    }

    #[test]
    fn a_message_says_who_wrote_what() {
        let key = Key::new("terraforms.infra.contrib.fluxcd.io", "default", "vpc");
        let mut record = Record {
            key: key.clone(),
            kind: ChangeType::Put,
            object: Arc::default(),
            revision: 7,
            origin: Origin {
                user: "admin".to_owned(),
                manager: "tf-controller\nRemoved: configmaps/default/a".to_owned(),
                subresource: "status".to_owned(),
                verb: "patch",
            },
        };
        let before = BTreeMap::from([(key.clone(), Arc::default())]);
        let message = compose(std::slice::from_ref(&record), &before);
        assert_eq!(
            message,
            format!(
                "update terraforms default/vpc status\n\nResource-Version: 7 {key}\n\
                 Manager: tf-controllerRemoved: configmaps/default/a\nReason: patch\nUser: admin\n"
            )
        );
        assert!(parse(&message).removed.is_empty(), "a client adds no trailer");
        record.origin = Origin::default();
        let message = compose(std::slice::from_ref(&record), &BTreeMap::new());
        assert!(
            message.starts_with("create terraforms default/vpc\n\n"),
            "{message}"
        );
        record.kind = ChangeType::Remove;
        record.key = Key::new("namespaces", "", "b");
        let message = compose(std::slice::from_ref(&record), &BTreeMap::new());
        assert!(message.starts_with("delete namespaces b\n\n"), "{message}");
        assert!(!message.contains(REASON), "the server itself");
    }

    #[test]
    fn the_reason_of_a_status_is_that_of_its_ready_condition() {
        let key = Key::new("terraforms.infra.contrib.fluxcd.io", "default", "vpc");
        let with_reason = |reason: &str| {
            let conditions = json!([{"type": "Stalled", "reason": "a"}, {"type": "Ready", "reason": reason}]);
            Arc::new(json!({"status": {"conditions": conditions}}))
        };
        let reason_of = |before: &str, after: &str, subresource: &str| {
            let record = Record {
                key: key.clone(),
                kind: ChangeType::Put,
                object: with_reason(after),
                revision: 7,
                origin: Origin {
                    subresource: subresource.to_owned(),
                    verb: "update",
                    ..Origin::default()
                },
            };
            let message = compose(&[record], &BTreeMap::from([(key.clone(), with_reason(before))]));
            assert!(parse(&message).removed.is_empty(), "{message}");
            let reasons: Vec<&str> = message
                .lines()
                .filter_map(|line| line.strip_prefix(REASON))
                .collect();
            assert_eq!(reasons.len(), 1, "{message}");
            reasons[0].to_owned()
        };
        assert_eq!(reason_of("Progressing", "Succeeded", "status"), "Succeeded");
        assert_eq!(reason_of("Succeeded", "Succeeded", "status"), "update");
        assert_eq!(reason_of("Progressing", "Succeeded", ""), "update");
        assert_eq!(reason_of("Progressing", "", "status"), "update");
        let forged = "x\nRemoved: configmaps/default/a\nReason: y";
        let expected = "xRemoved: configmaps/default/aReason: y";
        assert_eq!(reason_of("Progressing", forged, "status"), expected);
        assert_eq!(
            reason_of("Progressing", &"x".repeat(2000), "status"),
            "x".repeat(MAX_NAME)
        );
    }
}
