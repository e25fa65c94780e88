//! The built-in kinds that controllers and the CLI's kubernetes backend need, with kubectl's columns.

use serde_json::{Value, json};

use super::{Column, Family, Resource, Source};
use crate::{admit::ObjectSchema, meta};

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
            vec![counted("Data", "string", entries), age()],
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
                vec![counted("Status", "string", phase), age()],
            )
        },
        core(
            "Secret",
            "secrets",
            "",
            Family::Secret,
            vec![
                counted("Type", "string", secret_type),
                counted("Data", "string", entries),
                age(),
            ],
        ),
        core(
            "ServiceAccount",
            "serviceaccounts",
            "sa",
            Family::ServiceAccount,
            vec![counted("Secrets", "string", secrets), age()],
        ),
    ]
}

/// Kinds of other groups.
fn of_groups() -> Vec<Resource> {
    vec![
        Resource {
            group: "coordination.k8s.io".into(),
            ..core(
                "Lease",
                "leases",
                "",
                Family::Lease,
                vec![counted("Holder", "string", holder), age()],
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
                vec![counted("Created At", "date", created)],
            )
        },
    ]
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
        deprecation: None,
        storage_version: "v1".into(),
        schema: ObjectSchema::builtin(kind),
    }
}

/// The column of ages that every kind has unless it says otherwise.
pub(super) fn age() -> Column {
    counted("Age", "date", created)
}

fn counted(name: &str, type_: &str, rule: fn(&Value) -> Value) -> Column {
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
    let wide = |name, rule| Column {
        priority: 1,
        ..counted(name, "string", rule)
    };
    vec![
        counted("Last Seen", "date", last_seen),
        counted("Type", "string", |event| event["type"].clone()),
        counted("Reason", "string", |event| event["reason"].clone()),
        counted("Object", "string", involved),
        wide("Subobject", |event| event["involvedObject"]["fieldPath"].clone()),
        wide("Source", source),
        counted("Message", "string", |event| {
            event["message"].as_str().unwrap_or("").trim().into()
        }),
        Column {
            type_: "date".into(),
            ..wide("First Seen", first_seen)
        },
        Column {
            type_: "integer".into(),
            ..wide("Count", |event| event["count"].as_i64().unwrap_or(1).into())
        },
        wide("Name", |event| meta::name(event).into()),
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
