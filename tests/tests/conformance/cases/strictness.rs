//! Field validation of each verb and content type.

use serde_json::{Value, json};

use super::{WIDGETS, path_of, red, widget, with_metadata};
use crate::case::{Case, Step, case, json_patch, post, put, raw};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const YAML: &str = "apiVersion: conformance.sluice.dev/v1\nkind: Widget\nmetadata: { name: a }\nspec: { color: red, colour: red }\n";

fn in_mode(path: &str, mode: &str) -> String {
    format!("{path}?fieldValidation={mode}")
}

/// Creates a widget, then runs this step.
fn after(name: &'static str, step: Step) -> Case {
    case(name, [post(WIDGETS, &red("a")), step])
}

/// Creates a ConfigMap, then runs this step.
fn after_map(name: &'static str, step: Step) -> Case {
    let map = json!({ "metadata": { "name": "m" }, "data": { "a": "b" } });
    case(name, [post(MAPS, &map), step])
}

fn strategic(mode: &str, body: &str) -> Step {
    let path = in_mode(&format!("{MAPS}/m"), mode);
    raw("PATCH", &path, "application/strategic-merge-patch+json", body)
}

pub(super) fn cases() -> Vec<Case> {
    [yaml(), updates(), patches(), built_in()].concat()
}

fn yaml() -> Vec<Case> {
    let create = |name, mode: &str| {
        case(
            name,
            [raw("POST", &in_mode(WIDGETS, mode), "application/yaml", YAML)],
        )
    };
    vec![
        create("unknown fields in YAML: refused", "Strict"),
        create("unknown fields in YAML: warned about", "Warn"),
        create("unknown fields in YAML: dropped", "Ignore"),
    ]
}

fn updates() -> Vec<Case> {
    let unknown = with_metadata(
        widget("a", &json!({ "color": "red", "colour": "red" })),
        "resourceVersion",
        json!("{rv:0}"),
    );
    let update = |name, mode: &str| after(name, put(&in_mode(&path_of("a"), mode), &unknown));
    let status: Value = json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget",
        "metadata": { "name": "a", "resourceVersion": "{rv:0}" },
        "spec": { "color": "red" }, "status": { "phrase": "Ready" },
    });
    let update_status = |name, mode: &str| after(name, put(&in_mode(&path_of("a/status"), mode), &status));
    vec![
        update("unknown fields in an update: refused", "Strict"),
        update("unknown fields in an update: warned about", "Warn"),
        update("unknown fields in an update: dropped", "Ignore"),
        update_status("unknown fields in a status: refused", "Strict"),
        update_status("unknown fields in a status: warned about", "Warn"),
    ]
}

fn patches() -> Vec<Case> {
    let noted = json!([{ "op": "add", "path": "/spec/size", "value": 4, "note": "larger" }]);
    let operations = json!([{ "op": "add", "path": "/spec/colour", "value": "red" }]);
    let patch = |name, mode: &str| after(name, json_patch(&in_mode(&path_of("a"), mode), &operations));
    let merge = |name, mode: &str| {
        let target = in_mode(&path_of("a"), mode);
        let body = r#"{"spec":{"colour":"red"}}"#;
        after(name, raw("PATCH", &target, "application/merge-patch+json", body))
    };
    vec![
        patch("unknown fields in a JSON patch: refused", "Strict"),
        patch("unknown fields in a JSON patch: warned about", "Warn"),
        patch("unknown fields in a JSON patch: dropped", "Ignore"),
        after(
            "unknown fields of an operation: warned about",
            json_patch(&path_of("a"), &noted),
        ),
        after(
            "unknown fields of an operation: refused",
            json_patch(&in_mode(&path_of("a"), "Strict"), &noted),
        ),
        merge("unknown fields in a merge patch: warned about", "Warn"),
        merge("unknown fields in a merge patch: dropped", "Ignore"),
        patch("field validation of a patch: unknown mode", "Perhaps"),
        after(
            "field validation of an update: unknown mode",
            put(
                &in_mode(&path_of("a"), "Perhaps"),
                &with_metadata(red("a"), "resourceVersion", json!("{rv:0}")),
            ),
        ),
    ]
}

fn built_in() -> Vec<Case> {
    let unknown = json!({ "metadata": { "name": "m" }, "data": { "a": "b" }, "extra": 1 });
    let create = |name, mode: &str| case(name, [post(&in_mode(MAPS, mode), &unknown)]);
    let in_metadata = |object: Value| with_metadata(object, "label", json!("x"));
    vec![
        case(
            "unknown fields in metadata: warned about",
            [post(WIDGETS, &in_metadata(red("a")))],
        ),
        case(
            "unknown fields in metadata: refused",
            [post(&in_mode(WIDGETS, "Strict"), &in_metadata(red("a")))],
        ),
        case(
            "unknown fields in metadata of a config map: refused",
            [post(
                &in_mode(MAPS, "Strict"),
                &in_metadata(json!({ "metadata": { "name": "m" } })),
            )],
        ),
        create("unknown fields of a config map: warned about", "Warn"),
        create("unknown fields of a config map: dropped", "Ignore"),
        after_map(
            "unknown fields of a config map: refused in an update",
            put(&in_mode(&format!("{MAPS}/m"), "Strict"), &unknown),
        ),
        after_map(
            "unknown fields of a config map: warned about in an update",
            put(&in_mode(&format!("{MAPS}/m"), "Warn"), &unknown),
        ),
        after_map(
            "unknown fields of a config map: warned about in a strategic merge patch",
            strategic("Warn", r#"{"extra":1}"#),
        ),
        after_map(
            "unknown fields of a config map: dropped in a strategic merge patch",
            strategic("Ignore", r#"{"extra":1}"#),
        ),
        after_map(
            "double fields: warned about in a strategic merge patch",
            strategic("Warn", r#"{"data":{"a":"1","a":"2"}}"#),
        ),
    ]
}
