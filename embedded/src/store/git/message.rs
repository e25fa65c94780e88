//! Messages of commits, with the trailers from which other processes read the versions of objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::backend::Record;
use crate::store::state::Key;
use crate::store::watch_cache::ChangeType;

/// Trailer with the version and the key of a changed object.
const VERSION: &str = "Resource-Version: ";
/// Trailer with the key of a removed object, which may have had no file.
const REMOVED: &str = "Removed: ";

/// Returns the message of a commit with these changes.
pub(super) fn compose(records: &[Record]) -> String {
    let verb = |record: &Record| match record.kind {
        ChangeType::Put => "write",
        ChangeType::Remove => "remove",
    };
    let mut lines = match records {
        [record] => vec![format!("{} {}", verb(record), record.key)],
        _ => vec![format!("write {} objects", records.len())],
    };
    lines.push(String::new());
    for record in records {
        lines.push(format!("{VERSION}{} {}", record.revision, record.key));
        if record.kind == ChangeType::Remove {
            lines.push(format!("{REMOVED}{}", record.key));
        }
    }
    lines.join("\n") + "\n"
}

/// The trailers of a message; empty for commits of people.
#[derive(Debug, Default)]
pub(super) struct Trailers {
    /// Versions of changed objects.
    pub(super) versions: BTreeMap<Key, u64>,
    /// Removed objects.
    pub(super) removed: BTreeSet<Key>,
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
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_message_says_what_other_processes_need() {
        let key = Key::new("configmaps", "default", "a");
        let namespace = Key::new("namespaces", "", "b");
        let record = |key: &Key, kind, revision| Record {
            key: key.clone(),
            kind,
            object: Arc::default(),
            revision,
        };
        let message = compose(&[
            record(&key, ChangeType::Put, 7),
            record(&namespace, ChangeType::Remove, 8),
        ]);
        assert!(message.starts_with("write 2 objects\n\n"), "{message}");
        let trailers = parse(&message);
        let versions = BTreeMap::from([(key, 7), (namespace.clone(), 8)]);
        assert_eq!(trailers.versions, versions);
        assert_eq!(trailers.removed, BTreeSet::from([namespace]));
        assert!(parse("Resource-Version: x configmaps/a\n").versions.is_empty());
    }
}
