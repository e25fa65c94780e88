//! Server-side tables (meta.k8s.io/v1 Table), which `kubectl get` prints.

use std::sync::Arc;

use serde_json::{Value, json};

use super::request::ObjectRequest;
use super::response::partial_object_metadata;
use crate::jsonpath::Path;
use crate::resource::{CellSource, Column, NAME_DESCRIPTION, Strategy};
use crate::{age, meta};

/// Returns a table of stored objects. Watches send the column definitions only in their first table.
pub(super) fn render(
    request: &ObjectRequest,
    objects: &[Arc<Value>],
    version: &Value,
    with_columns: bool,
) -> Value {
    let columns = &request.resource.columns;
    // Events have their name in the last column, shown only with `-o wide`.
    let has_name_column = request.resource.strategy != Strategy::Event;
    let name = has_name_column.then(name_column).into_iter();
    let definitions = name.chain(columns.iter().map(column_definition));
    let definitions: Vec<Value> = definitions.filter(|_| with_columns).collect();
    let now = jiff::Timestamp::now();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let object = &request.to_requested_version(object);
            let cells = columns.iter().map(|column| cell(column, object, now));
            let name = has_name_column.then(|| meta::name(object).into());
            let cells: Vec<Value> = name.into_iter().chain(cells).collect();
            let mut row = json!({ "cells": cells });
            match request.query.include_object.as_str() {
                "None" => row["object"] = Value::Null,
                "Object" => row["object"] = Value::clone(&request.to_requested(object)),
                _ => row["object"] = partial_object_metadata(object),
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
        "description": NAME_DESCRIPTION,
    })
}

fn column_definition(column: &Column) -> Value {
    // Columns of built-in kinds declare ages as strings, those of custom resources as dates.
    let is_text =
        matches!(column.source, CellSource::Rule(_)) && column.type_ == "date" && column.name != "Created At";
    json!({
        "name": column.name, "type": if is_text { "string" } else { &column.type_ },
        "format": column.format, "description": column.description, "priority": column.priority,
    })
}

fn cell(column: &Column, object: &Value, now: jiff::Timestamp) -> Value {
    let value = match &column.source {
        CellSource::Rule(rule) => rule(object),
        CellSource::Path(path) => return path_cell(path, column, object, now),
    };
    match (&value, column.name.as_str()) {
        (_, "Created At") => value,
        (Value::String(time), _) if column.type_ == "date" => age::format_age(time, now).into(),
        (Value::Null, _) if column.type_ == "date" => "<unknown>".into(),
        _ => value,
    }
}

/// Returns the first value of the path in the type of the column; null if there is none.
fn path_cell(path: &Path, column: &Column, object: &Value, now: jiff::Timestamp) -> Value {
    let found = path.find(object);
    let Some(value) = found.first().copied() else {
        return Value::Null;
    };
    match (column.type_.as_str(), value) {
        (_, Value::Null) => Value::Null,
        ("date", Value::String(time)) => age::format_age(time, now).into(),
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
            source: CellSource::Path(Path::parse(path).unwrap()),
        }
    }

    #[test]
    fn cells_have_the_type_of_their_column() {
        let object = json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"n": 3, "b": true, "s": "x", "m": {"a": 1}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let now = jiff::Timestamp::from_second(90).unwrap();
        for (type_, at, expected) in [
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
            assert_eq!(cell(&path(type_, at), &object, now), expected, "{type_} {at}");
        }
    }
}
