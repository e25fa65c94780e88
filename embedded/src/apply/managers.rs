//! The managers of an object's fields: `metadata.managedFields` (apimachinery's `managedfields`). Pure.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::field_set::FieldSet;

/// Maximum number of entries that are read. kube-apiserver has no limit; its objects have few.
const MAX_ENTRIES: usize = 1_000;
/// Maximum number of managers with operation `Update`; older ones are combined.
const MAX_UPDATERS: usize = 10;
/// Name of the combined managers.
const ANCIENT: &str = "ancient-changes";

/// The operation of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

/// What identifies an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// Empty for `Apply`: a manager has one entry, whatever version it applies.
    api_version: String,
    pub(super) subresource: String,
}

impl Identity {
    /// Creates the identity of a manager; without a name it is `unknown`.
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        Self {
            manager: manager.into(),
            operation,
            api_version: api_version.into(),
            subresource: subresource.into(),
        }
    }
}

impl Identity {
    /// The identity of a write while it is compared: no entry has it, because none has an empty version.
    pub(super) const fn current() -> Self {
        Self {
            manager: String::new(),
            operation: Operation::Update,
            api_version: String::new(),
            subresource: String::new(),
        }
    }
}

/// The form in messages about conflicts.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

/// The fields of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) set: FieldSet,
    pub(super) api_version: String,
    /// Time of the last change, RFC 3339.
    pub(super) time: Option<String>,
}

/// All managers of an object.
pub(super) type Managers = BTreeMap<Identity, Owned>;

/// Decodes `managedFields`; `None` if an entry is malformed or there are too many.
pub(super) fn decode(value: &Value) -> Option<Managers> {
    let entries = match value {
        Value::Null => &[][..],
        Value::Array(entries) if entries.len() <= MAX_ENTRIES => entries.as_slice(),
        _ => return None,
    };
    entries.iter().map(decode_entry).collect()
}

fn decode_entry(entry: &Value) -> Option<(Identity, Owned)> {
    let text = |field: &str| match entry.get(field) {
        None | Some(Value::Null) => Some(""),
        Some(value) => value.as_str(),
    };
    let operation = match text("operation")? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let api_version = text("apiVersion").filter(|version| !version.is_empty())?;
    if text("fieldsType")? != "FieldsV1" {
        return None;
    }
    let time = Some(text("time")?).filter(|time| !time.is_empty());
    if time.is_some_and(|time| time.parse::<Timestamp>().is_err()) {
        return None;
    }
    let set = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::default(),
        Some(fields) => FieldSet::from_json(fields)?,
    };
    let identity = Identity {
        manager: text("manager")?.into(),
        operation,
        api_version: match operation {
            Operation::Apply => String::new(),
            Operation::Update => api_version.into(),
        },
        subresource: text("subresource")?.into(),
    };
    let owned = Owned {
        set,
        api_version: api_version.into(),
        time: time.map(str::to_owned),
    };
    Some((identity, owned))
}

/// Encodes `managedFields`; `Null` without managers. Entries have upstream's order: by operation, time, name and version.
pub(super) fn encode(managers: &Managers) -> Value {
    if managers.is_empty() {
        return Value::Null;
    }
    let mut sorted: Vec<(&Identity, &Owned)> = managers.iter().collect();
    sorted.sort_by_cached_key(|(identity, owned)| {
        (
            identity.operation,
            seconds(owned),
            identity.manager.clone(),
            owned.api_version.clone(),
            identity.subresource.clone(),
        )
    });
    sorted
        .into_iter()
        .map(|(identity, owned)| encode_entry(identity, owned))
        .collect()
}

fn encode_entry(identity: &Identity, owned: &Owned) -> Value {
    let operation = match identity.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = Map::new();
    for (field, text) in [
        ("manager", identity.manager.as_str()),
        ("operation", operation),
        ("apiVersion", owned.api_version.as_str()),
        ("time", owned.time.as_deref().unwrap_or("")),
        ("subresource", identity.subresource.as_str()),
    ] {
        if !text.is_empty() {
            entry.insert(field.into(), text.into());
        }
    }
    entry.insert("fieldsType".into(), json!("FieldsV1"));
    entry.insert("fieldsV1".into(), owned.set.to_json());
    Value::Object(entry)
}

fn seconds(owned: &Owned) -> i64 {
    let time = owned
        .time
        .as_deref()
        .and_then(|time| time.parse::<Timestamp>().ok());
    time.map_or(0, Timestamp::as_second)
}

/// Whether two objects are equal except for the times of their managers: kube-apiserver does not store such a change.
pub(crate) fn differ_only_in_times(one: &Value, other: &Value) -> bool {
    fields_without(one, "metadata").eq(fields_without(other, "metadata"))
        && fields_without(&one["metadata"], "managedFields")
            .eq(fields_without(&other["metadata"], "managedFields"))
        && entries_without_times(one) == entries_without_times(other)
}

/// Returns the fields of an object, sorted, without one of them.
fn fields_without<'a>(object: &'a Value, left_out: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(move |(name, _)| name.as_str() != left_out)
}

fn entries_without_times(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let mut texts: Vec<String> = entries
        .into_iter()
        .flatten()
        .map(|entry| {
            let fields = fields_without(entry, "time").map(|(name, value)| (name.clone(), value.clone()));
            Value::Object(fields.collect()).to_string()
        })
        .collect();
    texts.sort();
    texts
}

/// Combines the oldest `Update` managers of each version until few enough remain.
pub(super) fn cap(managers: &mut Managers) {
    let mut updaters: Vec<(i64, Identity)> = managers
        .iter()
        .filter(|(identity, _)| identity.operation == Operation::Update)
        .map(|(identity, owned)| (seconds(owned), identity.clone()))
        .collect();
    updaters.sort();
    let mut count = updaters.len();
    let mut first_by_version: BTreeMap<String, Identity> = BTreeMap::new();
    for (_, identity) in updaters {
        if count <= MAX_UPDATERS {
            return;
        }
        let version = identity.api_version.clone();
        let Some(first) = first_by_version.get(&version) else {
            first_by_version.insert(version, identity);
            continue;
        };
        let bucket = Identity::new(ANCIENT, Operation::Update, &version, "");
        if !managers.contains_key(&bucket)
            && let Some(owned) = managers.remove(first)
        {
            managers.insert(bucket.clone(), owned);
        }
        if identity != bucket
            && let Some(merged) = managers.remove(&identity)
        {
            if let Some(owned) = managers.get_mut(&bucket) {
                owned.set = owned.set.union(&merged.set);
                owned.time = merged.time;
            }
            count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, second: usize) -> Value {
        let mut fields = json!({});
        fields[format!("f:{manager}")] = json!({});
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
            "time": format!("2026-01-01T00:00:{second:02}Z"),
        })
    }

    #[test]
    fn entries_are_decoded_and_written_back() {
        let apply = json!({
            "manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "subresource": "status",
            "fieldsV1": {"f:status": {"f:phase": {}}},
        });
        let entries = json!([apply, entry("c", 1), entry("b", 2)]);
        assert_eq!(encode(&decode(&entries).unwrap()), entries);
        assert_eq!(
            encode(&decode(&json!([entry("b", 2), apply, entry("c", 1)])).unwrap()),
            entries
        );
        assert_eq!(encode(&Managers::new()), Value::Null);
    }

    #[test]
    fn malformed_entries_are_rejected() {
        for (field, value) in [
            ("operation", json!("Create")),
            ("apiVersion", json!("")),
            ("fieldsType", json!("FieldsV2")),
            ("time", json!("yesterday")),
            ("manager", json!(1)),
            ("fieldsV1", json!({"x:a": {}})),
            ("fieldsV1", json!([])),
        ] {
            let mut malformed = entry("a", 1);
            malformed[field] = value;
            assert_eq!(decode(&json!([malformed])), None, "{field}");
        }
        assert_eq!(decode(&json!({})), None);
        let many: Vec<Value> = (0..=MAX_ENTRIES).map(|_| entry("a", 1)).collect();
        assert_eq!(decode(&Value::Array(many)), None);
    }

    #[test]
    fn times_of_managers_alone_do_not_count_as_a_change() {
        let object = |second: usize, size: i64| json!({"metadata": {"managedFields": [entry("a", second)]}, "size": size});
        assert!(differ_only_in_times(&object(1, 1), &object(2, 1)));
        assert!(!differ_only_in_times(&object(1, 1), &object(1, 2)));
        let other = json!({"metadata": {"managedFields": [entry("b", 1)]}, "size": 1});
        assert!(!differ_only_in_times(&object(1, 1), &other));
    }

    #[test]
    fn old_updaters_are_combined() {
        let entries: Value = (0..MAX_UPDATERS + 3)
            .map(|i| entry(&format!("m{i:02}"), i))
            .collect();
        let mut managers = decode(&entries).unwrap();
        cap(&mut managers);
        assert_eq!(managers.len(), MAX_UPDATERS);
        let bucket = Identity::new(ANCIENT, Operation::Update, "v1", "");
        assert_eq!(managers[&bucket].set.paths().len(), 4);
        assert_eq!(managers[&bucket].time.as_deref(), Some("2026-01-01T00:00:03Z"));
    }
}
