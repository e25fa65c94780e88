//! The built-in kinds that controllers and the CLI's kubernetes backend use, with kube-apiserver's printer columns.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::object_schema::ObjectSchema;
use super::{CREATION_DESCRIPTION, CellSource, Column, NAME_DESCRIPTION, Resource, Strategy};
use crate::{builtin, meta, rbac};

/// Returns all built-in kinds.
pub(super) fn all() -> Vec<Resource> {
    let mut kinds = core_kinds();
    kinds.extend(other_kinds());
    kinds.extend(role_kinds());
    kinds
}

/// Returns the kinds of the core group.
fn core_kinds() -> Vec<Resource> {
    let described = |name: &str, cell: fn(&Value) -> Value, kind: &str, field: &str| {
        string_column(name, cell).described_as(&format!("core.v1.{kind}"), field)
    };
    let status = Column {
        description: "The status of the namespace".into(),
        ..string_column("Status", phase)
    };
    let data = described("Data", data_count, "ConfigMap", "data");
    let secret = vec![
        described("Type", secret_type, "Secret", "type"),
        described("Data", data_count, "Secret", "data"),
        age_column(),
    ];
    let secrets = described("Secrets", secrets, "ServiceAccount", "secrets");
    let account = vec![secrets, age_column()];
    vec![
        core_kind("ConfigMap", "cm", Strategy::ConfigMap, vec![data, age_column()]),
        core_kind("Event", "ev", Strategy::Event, event_columns()),
        Resource {
            namespaced: false,
            has_status: true,
            ..core_kind("Namespace", "ns", Strategy::Namespace, vec![status, age_column()])
        },
        core_kind("Secret", "", Strategy::Secret, secret),
        core_kind("ServiceAccount", "sa", Strategy::ServiceAccount, account),
    ]
}

/// Returns the kinds of other groups.
fn other_kinds() -> Vec<Resource> {
    let holder = string_column("Holder", holder).described_as("coordination.v1.LeaseSpec", "holderIdentity");
    let created = Column {
        name: "Created At".into(),
        ..age_column()
    };
    vec![
        Resource {
            group: "events.k8s.io".into(),
            ..core_kind("Event", "ev", Strategy::Event, event_columns())
        },
        review_kind("authentication.k8s.io", "SelfSubjectReview"),
        review_kind("authentication.k8s.io", "TokenReview"),
        Resource {
            namespaced: true,
            ..review_kind("authorization.k8s.io", "LocalSubjectAccessReview")
        },
        review_kind("authorization.k8s.io", "SelfSubjectAccessReview"),
        review_kind("authorization.k8s.io", "SelfSubjectRulesReview"),
        review_kind("authorization.k8s.io", "SubjectAccessReview"),
        Resource {
            group: "coordination.k8s.io".into(),
            ..core_kind("Lease", "", Strategy::Lease, vec![holder, age_column()])
        },
        Resource {
            group: "apiextensions.k8s.io".into(),
            namespaced: false,
            has_status: true,
            categories: vec!["api-extensions".into()],
            short_names: vec!["crd".into(), "crds".into()],
            ..core_kind(
                "CustomResourceDefinition",
                "",
                Strategy::Definition,
                vec![created],
            )
        },
    ]
}

/// Returns the kinds of `rbac.authorization.k8s.io`.
fn role_kinds() -> Vec<Resource> {
    let role = |kind: &str, namespaced: bool| {
        let created = Column {
            name: "Created At".into(),
            ..age_column()
        };
        Resource {
            group: rbac::GROUP.into(),
            namespaced,
            ..core_kind(kind, "", Strategy::Role, vec![created])
        }
    };
    let binding = |kind: &str, namespaced: bool| {
        let role = string_column("Role", role_ref).described_as(&format!("rbac.v1.{kind}"), "roleRef");
        Resource {
            group: rbac::GROUP.into(),
            namespaced,
            ..core_kind(kind, "", Strategy::RoleBinding, vec![role, age_column()])
        }
    };
    vec![
        binding("ClusterRoleBinding", false),
        role("ClusterRole", false),
        binding("RoleBinding", true),
        role("Role", true),
    ]
}

fn review_kind(group: &str, kind: &str) -> Resource {
    Resource {
        group: group.into(),
        namespaced: false,
        ..core_kind(kind, "", Strategy::Review, Vec::new())
    }
}

/// Creates a kind of the core group, whose plural is regular.
fn core_kind(kind: &str, short: &str, strategy: Strategy, columns: Vec<Column>) -> Resource {
    let singular = kind.to_lowercase();
    let short_names = Some(short.to_owned()).filter(|short| !short.is_empty());
    Resource {
        group: String::new(),
        version: "v1".into(),
        kind: kind.into(),
        plural: format!("{singular}s"),
        singular,
        list_kind: format!("{kind}List"),
        short_names: short_names.into_iter().collect(),
        categories: Vec::new(),
        namespaced: true,
        has_status: false,
        scale: None,
        strategy,
        columns,
        selectable_fields: Vec::new(),
        deprecation_warning: None,
        storage_version: "v1".into(),
        schema: ObjectSchema::builtin(kind),
    }
}

/// Returns the `Age` column.
pub(super) fn age_column() -> Column {
    Column {
        description: CREATION_DESCRIPTION.into(),
        ..column("Age", "date", creation_timestamp)
    }
}

/// Definitions of the built-in kinds, for the descriptions of columns.
static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(builtin::definitions);

impl Column {
    /// Describes the column like a field of a built-in definition.
    fn described_as(self, definition: &str, field: &str) -> Self {
        let definition = DEFINITIONS.get(&format!("io.k8s.api.{definition}"));
        let text = definition.and_then(|d| d["properties"][field]["description"].as_str());
        Self {
            description: text.unwrap_or("").into(),
            ..self
        }
    }

    /// Shows the column only with `-o wide`.
    fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}

fn string_column(name: &str, rule: fn(&Value) -> Value) -> Column {
    column(name, "string", rule)
}

fn column(name: &str, type_: &str, rule: fn(&Value) -> Value) -> Column {
    Column {
        name: name.into(),
        type_: type_.into(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        source: CellSource::Rule(rule),
    }
}

fn event_columns() -> Vec<Column> {
    const EVENT: &str = "core.v1.Event";
    vec![
        column("Last Seen", "date", last_seen).described_as(EVENT, "lastTimestamp"),
        string_column("Type", |event| event["type"].clone()).described_as(EVENT, "type"),
        string_column("Reason", |event| event["reason"].clone()).described_as(EVENT, "reason"),
        string_column("Object", involved_object).described_as(EVENT, "involvedObject"),
        string_column("Subobject", |event| {
            event["involvedObject"]["fieldPath"].as_str().unwrap_or("").into()
        })
        .described_as("core.v1.ObjectReference", "fieldPath")
        .wide(),
        string_column("Source", event_source)
            .described_as(EVENT, "source")
            .wide(),
        string_column("Message", |event| {
            event["message"].as_str().unwrap_or("").trim().into()
        })
        .described_as(EVENT, "message"),
        column("First Seen", "date", first_seen)
            .described_as(EVENT, "firstTimestamp")
            .wide(),
        string_column("Count", |event| event["count"].as_i64().unwrap_or(1).into())
            .described_as(EVENT, "count")
            .wide(),
        Column {
            format: "name".into(),
            description: NAME_DESCRIPTION.into(),
            ..string_column("Name", |event| meta::name(event).into()).wide()
        },
    ]
}

fn creation_timestamp(object: &Value) -> Value {
    object["metadata"]["creationTimestamp"].clone()
}

fn data_count(object: &Value) -> Value {
    let count = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    json!(count("data") + count("binaryData"))
}

fn phase(namespace: &Value) -> Value {
    namespace["status"]["phase"].clone()
}

fn secret_type(secret: &Value) -> Value {
    secret["type"].clone()
}

fn secrets(account: &Value) -> Value {
    json!(account["secrets"].as_array().map_or(0, Vec::len))
}

fn holder(lease: &Value) -> Value {
    lease["spec"]["holderIdentity"].as_str().unwrap_or("").into()
}

fn role_ref(binding: &Value) -> Value {
    let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or("");
    format!("{}/{}", text("kind"), text("name")).into()
}

fn first_of(event: &Value, fields: &[&str]) -> Value {
    let mut times = fields.iter().map(|field| &event[*field]);
    times.find(|time| time.is_string()).cloned().unwrap_or_default()
}

fn last_seen(event: &Value) -> Value {
    match &event["series"]["lastObservedTime"] {
        Value::Null => first_of(event, &["lastTimestamp", "eventTime", "firstTimestamp"]),
        time => time.clone(),
    }
}

fn first_seen(event: &Value) -> Value {
    first_of(event, &["firstTimestamp", "eventTime"])
}

fn involved_object(event: &Value) -> Value {
    let object = &event["involvedObject"];
    let kind = object["kind"].as_str().unwrap_or("").to_lowercase();
    format!("{kind}/{}", object["name"].as_str().unwrap_or("")).into()
}

fn event_source(event: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let component = match text(&event["source"]["component"]) {
        none if none.is_empty() => text(&event["reportingComponent"]),
        some => some,
    };
    let host = text(&event["source"]["host"]);
    if host.is_empty() {
        component.into()
    } else {
        format!("{component}, {host}").into()
    }
}
