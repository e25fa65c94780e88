//! Server-side tables (meta.k8s.io/v1 Table): what `kubectl get` prints.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Call, respond::partial};
use crate::{
    age,
    jsonpath::Path,
    meta,
    resource::{Column, Family, NAME, Source},
};

/// A table of stored objects, with the definitions of its columns or, after the first event of a watch, without.
pub(super) fn of(call: &Call, objects: &[Arc<Value>], version: &Value, headed: bool) -> Value {
    let columns = &call.resource.columns;
    // Events show their name last, and only when asked for everything.
    let named = call.resource.family != Family::Event;
    let definitions: Vec<Value> = if headed {
        named
            .then(name_column)
            .into_iter()
            .chain(columns.iter().map(definition))
            .collect()
    } else {
        Vec::new()
    };
    let now = jiff::Timestamp::now();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let object = &call.versioned(object);
            let cells = columns.iter().map(|column| cell(column, object, now));
            let cells: Vec<Value> = named
                .then(|| meta::name(object).into())
                .into_iter()
                .chain(cells)
                .collect();
            let mut row = json!({ "cells": cells });
            match call.query.include_object.as_str() {
                "None" => row["object"] = Value::Null,
                "Object" => row["object"] = Value::clone(&call.present(object)),
                _ => row["object"] = partial(object),
            }
            row
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn name_column() -> Value {
    json!({
        "name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": NAME,
    })
}

fn definition(column: &Column) -> Value {
    // The printers of built-in kinds call an age text; those of custom resources keep the type.
    let is_text =
        matches!(column.source, Source::Rule(_)) && column.type_ == "date" && column.name != "Created At";
    json!({
        "name": column.name, "type": if is_text { "string" } else { &column.type_ },
        "format": column.format, "description": column.description, "priority": column.priority,
    })
}

fn cell(column: &Column, object: &Value, now: jiff::Timestamp) -> Value {
    let value = match &column.source {
        Source::Rule(rule) => rule(object),
        Source::Path(path) => return path_cell(path, column, object, now),
    };
    match (&value, column.name.as_str()) {
        (_, "Created At") => value,
        (Value::String(time), _) if column.type_ == "date" => age::age(time, now).into(),
        (Value::Null, _) if column.type_ == "date" => "<unknown>".into(),
        _ => value,
    }
}

/// The first value that the path reaches, as the column's type prints it; null when there is none.
fn path_cell(path: &Path, column: &Column, object: &Value, now: jiff::Timestamp) -> Value {
    let found = path.find(object);
    let Some(value) = found.first().copied() else {
        return Value::Null;
    };
    match (column.type_.as_str(), value) {
        (_, Value::Null) => Value::Null,
        ("date", Value::String(time)) => age::age(time, now).into(),
        ("date", _) => "<unknown>".into(),
        ("integer", Value::Number(number)) => number.as_i64().map_or(Value::Null, Value::from),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => {
            value.clone()
        }
        ("string", other) => other.to_string().into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(type_: &str, path: &str) -> Column {
        Column {
            name: "X".into(),
            type_: type_.into(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            source: Source::Path(Path::parse(path).unwrap()),
        }
    }

    #[test]
    fn cells_print_as_their_type() {
        let object = json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"n": 3, "b": true, "s": "x", "m": {"a": 1}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let now = jiff::Timestamp::from_second(90).unwrap();
        for (type_, at, wanted) in [
            ("string", ".spec.s", json!("x")),
            ("string", ".spec.n", json!("3")),
            ("string", ".spec.b", json!("true")),
            ("string", ".spec.m", json!("{\"a\":1}")),
            (
                "string",
                r#".status.conditions[?(@.type=="Ready")].status"#,
                json!("True"),
            ),
            ("string", ".status.none", Value::Null),
            ("integer", ".spec.n", json!(3)),
            ("integer", ".spec.s", Value::Null),
            ("boolean", ".spec.b", json!(true)),
            ("date", ".metadata.creationTimestamp", json!("90s")),
        ] {
            assert_eq!(cell(&path(type_, at), &object, now), wanted, "{type_} {at}");
        }
    }
}
