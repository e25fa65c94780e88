//! CustomResourceDefinitions as objects. Each case has a group of its own.

use serde_json::{Value, json};

use crate::case::{
    Case, Step, apply, case, delete, get, merge, post, put, table, until, wait_for_condition, wait_until_gone,
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The definition of the case.
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tools.{ns}.example.dev";
/// The path of tools in the case's namespace.
const TOOLS: &str = "/apis/{ns}.example.dev/v1/namespaces/{ns}/tools";

/// Returns the versions of a definition whose objects have sizes up to this one.
fn versions(maximum: u32) -> Value {
    json!([{
        "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
        "additionalPrinterColumns": [
            { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
            { "name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "How it is." },
        ],
        "schema": { "openAPIV3Schema": { "type": "object", "properties": {
            "spec": { "type": "object", "properties": {
                "size": { "type": "integer", "maximum": maximum },
                "color": { "type": "string", "default": "red" },
            } },
            "status": { "type": "object", "properties": { "phase": { "type": "string" } } },
        } } },
    }])
}

/// Returns a definition with this plural and kind.
fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{{ns}}.example.dev") },
        "spec": {
            "group": "{ns}.example.dev", "scope": "Namespaced", "names": { "plural": plural, "kind": kind },
            "versions": versions(10),
        },
    })
}

fn tools() -> Value {
    definition("tools", "Tool")
}

/// Returns the definition of tools with another value in one place.
fn tools_with(pointer: &str, value: Value) -> Value {
    let mut changed = tools();
    *changed
        .pointer_mut(pointer)
        .unwrap_or_else(|| panic!("a definition has no {pointer}")) = value;
    changed
}

fn tool(name: &str, size: u32) -> Value {
    json!({
        "apiVersion": "{ns}.example.dev/v1", "kind": "Tool", "metadata": { "name": name }, "spec": { "size": size },
    })
}

/// Creates the definition and waits until tools are served.
fn served(more: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let mut steps = vec![post(DEFINITIONS, &tools()), until(200, get(TOOLS))];
    steps.extend(more);
    steps
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = refused();
    cases.extend(changed());
    cases.extend(deleted());
    cases.extend([
        case("definition: established", served([get(DEFINITION)])),
        case(
            "definition: its kind is used at once",
            served([post(TOOLS, &tool("a", 1)), get(TOOLS), get(&format!("{TOOLS}/a"))]),
        ),
        case(
            "definition: discovery of its group",
            served([
                until(200, get("/apis/{ns}.example.dev")),
                until(200, get("/apis/{ns}.example.dev/v1")),
            ]),
        ),
        case(
            "definition: printer columns",
            served([post(TOOLS, &tool("a", 1)), table(TOOLS)]),
        ),
        case(
            "definition: status subresource",
            served([
                post(TOOLS, &tool("a", 1)),
                merge(&format!("{TOOLS}/a"), &json!({ "status": { "phase": "lost" } })),
                merge(
                    &format!("{TOOLS}/a/status"),
                    &json!({ "status": { "phase": "ready" } }),
                ),
                get(&format!("{TOOLS}/a")),
            ]),
        ),
        case(
            "definition: schema of its objects",
            served([post(TOOLS, &tool("a", 11))]),
        ),
        case(
            "definition: dry run",
            [
                post(&format!("{DEFINITIONS}?dryRun=All"), &tools()),
                get(DEFINITION),
            ],
        ),
        case("definition: missing", [get(DEFINITION), get(TOOLS)]),
    ]);
    cases
}

/// Definitions that are not valid.
fn refused() -> Vec<Case> {
    let schema = "/spec/versions/0/schema";
    let refused = |name, definition: Value| case(name, [post(DEFINITIONS, &definition), get(DEFINITION)]);
    vec![
        refused(
            "definition: another name",
            tools_with("/metadata/name", json!("others.{ns}.example.dev")),
        ),
        refused("definition: no schema", tools_with(schema, json!({}))),
        refused(
            "definition: schema without type",
            tools_with(
                schema,
                json!({ "openAPIV3Schema": { "type": "object", "properties": { "spec": {} } } }),
            ),
        ),
        refused(
            "definition: unknown scope",
            tools_with("/spec/scope", json!("Galaxy")),
        ),
        refused(
            "definition: kind of a list",
            tools_with(
                "/spec/names",
                json!({ "plural": "tools", "kind": "Tool", "listKind": "Tool" }),
            ),
        ),
        case(
            "definition: unknown field",
            [
                post(
                    &format!("{DEFINITIONS}?fieldValidation=Strict"),
                    &tools_with(
                        "/spec/names",
                        json!({ "plural": "tools", "kind": "Tool", "nope": 1 }),
                    ),
                ),
                get(DEFINITION),
            ],
        ),
    ]
}

/// Definitions that change.
fn changed() -> Vec<Case> {
    vec![
        case("definition: created twice", served([post(DEFINITIONS, &tools())])),
        case(
            "definition: applied again",
            [
                apply(DEFINITION, "one", &tools()),
                until(200, get(TOOLS)),
                apply(DEFINITION, "one", &tools()),
                get(DEFINITION),
            ],
        ),
        case(
            "definition: scope is immutable",
            served([merge(DEFINITION, &json!({ "spec": { "scope": "Cluster" } }))]),
        ),
        case(
            "definition: update without a version",
            served([put(DEFINITION, &tools())]),
        ),
        case(
            "definition: another schema",
            served([
                post(TOOLS, &tool("a", 9)),
                merge(DEFINITION, &json!({ "spec": { "versions": versions(5) } })),
                until(422, post(&format!("{TOOLS}?dryRun=All"), &tool("b", 9))),
                post(TOOLS, &tool("b", 4)),
                get(&format!("{TOOLS}/a")),
            ]),
        ),
        case(
            "definition: a kind that another has",
            served([
                post(DEFINITIONS, &definition("hammers", "Tool")),
                wait_for_condition(
                    &format!("{DEFINITIONS}/hammers.{{ns}}.example.dev"),
                    "NamesAccepted",
                ),
                get("/apis/{ns}.example.dev/v1/namespaces/{ns}/hammers"),
            ]),
        ),
    ]
}

/// Definitions that are deleted.
fn deleted() -> Vec<Case> {
    let mut held = tool("held", 1);
    held["metadata"]["finalizers"] = json!(["sluice.dev/held"]);
    vec![
        case(
            "definition: deleted with its objects",
            served([
                post(TOOLS, &tool("a", 1)),
                delete(DEFINITION),
                wait_until_gone(DEFINITION),
                until(404, get(TOOLS)),
            ]),
        ),
        case(
            "definition: deleted, with an object that is held",
            served([
                post(TOOLS, &held),
                delete(DEFINITION),
                until(403, post(TOOLS, &tool("late", 1))),
                // The real server refuses new objects before it deletes those that exist.
                delete(&format!("{TOOLS}/held")),
                merge(
                    &format!("{TOOLS}/held"),
                    &json!({ "metadata": { "finalizers": null } }),
                ),
                wait_until_gone(DEFINITION),
            ]),
        ),
    ]
}
