//! The built-in kinds that controllers and the CLI's kubernetes backend need, with kubectl's columns.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{CREATION, Column, Family, NAME, Resource, Source};
use crate::{admit::ObjectSchema, builtin, meta};

/// All of them.
pub(super) fn all() -> Vec<Resource> {
    let mut kinds = of_core();
    kinds.extend(of_groups());
    kinds
}

/// Kinds of the core group.
fn of_core() -> Vec<Resource> {
    vec![
        core(
            "ConfigMap",
            "configmaps",
            "cm",
            Family::ConfigMap,
            vec![text("Data", entries).of("core.v1.ConfigMap", "data"), age()],
        ),
        core("Event", "events", "ev", Family::Event, event_columns()),
        Resource {
            namespaced: false,
            status: true,
            ..core(
                "Namespace",
                "namespaces",
                "ns",
                Family::Namespace,
                vec![
                    Column {
                        description: "The status of the namespace".into(),
                        ..text("Status", phase)
                    },
                    age(),
                ],
            )
        },
        core(
            "Secret",
            "secrets",
            "",
            Family::Secret,
            vec![
                text("Type", secret_type).of("core.v1.Secret", "type"),
                text("Data", entries).of("core.v1.Secret", "data"),
                age(),
            ],
        ),
        core(
            "ServiceAccount",
            "serviceaccounts",
            "sa",
            Family::ServiceAccount,
            vec![
                text("Secrets", secrets).of("core.v1.ServiceAccount", "secrets"),
                age(),
            ],
        ),
    ]
}

/// Kinds of other groups.
fn of_groups() -> Vec<Resource> {
    vec![
        Resource {
            group: "events.k8s.io".into(),
            ..core("Event", "events", "ev", Family::Event, event_columns())
        },
        review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews"),
        review(
            "authorization.k8s.io",
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
        ),
        review(
            "authorization.k8s.io",
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
        ),
        Resource {
            group: "coordination.k8s.io".into(),
            ..core(
                "Lease",
                "leases",
                "",
                Family::Lease,
                vec![
                    text("Holder", holder).of("coordination.v1.LeaseSpec", "holderIdentity"),
                    age(),
                ],
            )
        },
        Resource {
            group: "apiextensions.k8s.io".into(),
            namespaced: false,
            categories: vec!["api-extensions".into()],
            ..core(
                "CustomResourceDefinition",
                "customresourcedefinitions",
                "crd",
                Family::Definition,
                vec![Column {
                    description: CREATION.into(),
                    ..column("Created At", "date", created)
                }],
            )
        },
    ]
}

fn review(group: &str, kind: &str, plural: &str) -> Resource {
    Resource {
        group: group.into(),
        namespaced: false,
        ..core(kind, plural, "", Family::Review, Vec::new())
    }
}

fn core(kind: &str, plural: &str, short: &str, family: Family, columns: Vec<Column>) -> Resource {
    let short_names = match (family, short) {
        (Family::Definition, _) => vec!["crd".into(), "crds".into()],
        (_, "") => Vec::new(),
        (_, short) => vec![short.into()],
    };
    Resource {
        group: String::new(),
        version: "v1".into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        list_kind: format!("{kind}List"),
        short_names,
        categories: Vec::new(),
        namespaced: true,
        status: false,
        family,
        columns,
        selectable: Vec::new(),
        deprecation: None,
        storage_version: "v1".into(),
        schema: ObjectSchema::builtin(kind),
    }
}

/// The column of ages that every kind has unless it says otherwise.
pub(super) fn age() -> Column {
    Column {
        description: CREATION.into(),
        ..column("Age", "date", created)
    }
}

/// Definitions of the built-in kinds, for what their fields are described with.
static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(builtin::definitions);

impl Column {
    /// The same, described like a field of a built-in definition.
    fn of(self, definition: &str, field: &str) -> Self {
        let definition = DEFINITIONS.get(&format!("io.k8s.api.{definition}"));
        let text = definition.and_then(|d| d["properties"][field]["description"].as_str());
        Self {
            description: text.unwrap_or("").into(),
            ..self
        }
    }

    /// The same, shown only with `-o wide`.
    fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}

fn text(name: &str, rule: fn(&Value) -> Value) -> Column {
    column(name, "string", rule)
}

fn column(name: &str, type_: &str, rule: fn(&Value) -> Value) -> Column {
    Column {
        name: name.into(),
        type_: type_.into(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        source: Source::Rule(rule),
    }
}

fn event_columns() -> Vec<Column> {
    const EVENT: &str = "core.v1.Event";
    vec![
        column("Last Seen", "date", last_seen).of(EVENT, "lastTimestamp"),
        text("Type", |event| event["type"].clone()).of(EVENT, "type"),
        text("Reason", |event| event["reason"].clone()).of(EVENT, "reason"),
        text("Object", involved).of(EVENT, "involvedObject"),
        text("Subobject", |event| {
            event["involvedObject"]["fieldPath"].as_str().unwrap_or("").into()
        })
        .of("core.v1.ObjectReference", "fieldPath")
        .wide(),
        text("Source", source).of(EVENT, "source").wide(),
        text("Message", |event| {
            event["message"].as_str().unwrap_or("").trim().into()
        })
        .of(EVENT, "message"),
        column("First Seen", "date", first_seen)
            .of(EVENT, "firstTimestamp")
            .wide(),
        text("Count", |event| event["count"].as_i64().unwrap_or(1).into())
            .of(EVENT, "count")
            .wide(),
        Column {
            format: "name".into(),
            description: NAME.into(),
            ..text("Name", |event| meta::name(event).into()).wide()
        },
    ]
}

fn created(object: &Value) -> Value {
    object["metadata"]["creationTimestamp"].clone()
}

fn entries(object: &Value) -> Value {
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

fn first_of(event: &Value, fields: &[&str]) -> Value {
    fields
        .iter()
        .map(|field| &event[*field])
        .find(|time| time.is_string())
        .cloned()
        .unwrap_or_default()
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

fn involved(event: &Value) -> Value {
    let object = &event["involvedObject"];
    let kind = object["kind"].as_str().unwrap_or("").to_lowercase();
    format!("{kind}/{}", object["name"].as_str().unwrap_or("")).into()
}

fn source(event: &Value) -> Value {
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
