//! Cases of structured-merge-diff (`merge/{set,nested,leaf,conflict,multiple_appliers,ignore,default_keys}_test.go`): writes, and the
//! object and ownership after them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::managers::{Identity, Managers, Operation};
use super::shape::Shape;
use super::update::{Rules, UpdateError, conflict_message};

pub(super) static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": text});
    let by_name = |value: &Value| {
        json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": text, "value": value}},
        })
    };
    Shape::from_schema(&json!({"type": "object", "properties": {
        "string": text, "number": {"type": "integer"}, "bool": {"type": "boolean"},
        "list": set, "atomicList": {"type": "array", "items": text},
        "atomicMap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
        "map": texts,
        "listOfLists": by_name(&set), "listOfMaps": by_name(&texts),
        "mapOfLists": {"type": "object", "additionalProperties": set},
        "mapOfMaps": {"type": "object", "additionalProperties": texts},
        "ports": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "properties": {
                "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": text,
            }},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}))
});

/// A write by a manager.
enum Write {
    Apply(&'static str, Value),
    Force(&'static str, Value),
    Update(&'static str, Value),
    /// An apply that conflicts, with the message.
    Conflict(&'static str, Value, &'static str),
}
use Write::{Apply, Conflict, Force, Update};

struct State {
    object: Value,
    managers: Managers,
}

impl State {
    fn write(&mut self, write: Write) {
        let rules = Rules {
            shape: &SHAPE,
            api_version: "v1",
            stores: |field| field != "ignored",
        };
        let (manager, object, operation, force) = match write {
            Apply(manager, object) => (manager, object, Operation::Apply, false),
            Force(manager, object) => (manager, object, Operation::Apply, true),
            Update(manager, object) => (manager, object, Operation::Update, true),
            Conflict(manager, object, text) => {
                let identity = Identity::new(manager, Operation::Apply, "v1", "");
                let mut managers = self.managers.clone();
                let outcome = rules.apply(&self.object, &object, &mut managers, &identity, false);
                match outcome {
                    Err(UpdateError::Conflicts(conflicts)) => assert_eq!(conflict_message(&conflicts), text),
                    other => panic!("no conflict: {other:?}"),
                }
                return;
            }
        };
        let identity = Identity::new(manager, operation, "v1", "");
        if operation == Operation::Update {
            rules
                .update(&self.object, &object, &mut self.managers, &identity)
                .unwrap();
            self.object = object;
        } else {
            self.object = rules
                .apply(&self.object, &object, &mut self.managers, &identity, force)
                .unwrap();
        }
    }
}

/// Checks the object and the `fieldsV1` of each manager after these writes.
fn check(name: &str, writes: impl IntoIterator<Item = Write>, object: &Value, owned: &Value) {
    let mut state = State {
        object: json!({}),
        managers: Managers::new(),
    };
    for write in writes {
        state.write(write);
    }
    assert_eq!(state.object, *object, "{name}");
    let found: BTreeMap<&str, Value> = state
        .managers
        .iter()
        .map(|(identity, owned)| (identity.manager.as_str(), owned.set.to_json()))
        .collect();
    assert_eq!(json!(found), *owned, "{name}");
}

#[test]
fn sets_merge_by_value_and_keep_the_order_of_the_applier() {
    let own = |names: &[&str]| {
        let entries = names.iter().map(|name| (format!("v:\"{name}\""), json!({})));
        json!({"f:list": Value::Object(entries.collect())})
    };
    check(
        "apply twice",
        [
            Apply("a", json!({"list": ["a", "c"]})),
            Apply("a", json!({"list": ["a", "aprime", "c", "cprime"]})),
        ],
        &json!({"list": ["a", "aprime", "c", "cprime"]}),
        &json!({"a": own(&["a", "aprime", "c", "cprime"])}),
    );
    check(
        "apply, update, apply without overlap",
        [
            Apply("a", json!({"list": ["a", "c"]})),
            Update("c", json!({"list": ["a", "b", "c", "d"]})),
            Apply("a", json!({"list": ["a", "aprime", "c", "cprime"]})),
        ],
        &json!({"list": ["a", "b", "aprime", "c", "d", "cprime"]}),
        &json!({"a": own(&["a", "aprime", "c", "cprime"]), "c": own(&["b", "d"])}),
    );
    check(
        "apply, update, apply with overlap",
        [
            Apply("a", json!({"list": ["a", "c"]})),
            Update("c", json!({"list": ["a", "b", "c", "d"]})),
            Apply("a", json!({"list": ["a", "b", "c"]})),
        ],
        &json!({"list": ["a", "b", "c", "d"]}),
        &json!({"a": own(&["a", "b", "c"]), "c": own(&["b", "d"])}),
    );
    check(
        "reordered by another",
        [
            Apply("a", json!({"list": ["a", "b", "c", "d"]})),
            Update("c", json!({"list": ["a", "d", "c", "b"]})),
            Apply("a", json!({"list": ["a", "b", "c", "d"]})),
        ],
        &json!({"list": ["a", "b", "c", "d"]}),
        &json!({"a": own(&["a", "b", "c", "d"])}),
    );
    check(
        "an entry that only this manager applied is removed",
        [
            Apply("a", json!({"list": ["a", "b"]})),
            Apply("b", json!({"list": ["b", "c"]})),
            Apply("a", json!({"list": ["b"]})),
        ],
        &json!({"list": ["b", "c"]}),
        &json!({"a": own(&["b"]), "b": own(&["b", "c"])}),
    );
}

/// Returns the fields of an entry of a list with the key `name`.
fn entry(name: &str, inner: Value) -> Value {
    let mut fields = inner;
    fields["."] = json!({});
    fields["f:name"] = json!({});
    let mut keyed = json!({});
    keyed[format!("k:{{\"name\":\"{name}\"}}")] = fields;
    keyed
}

#[test]
fn nested_lists_and_maps_merge_by_key() {
    check(
        "list of lists: another value",
        [
            Apply("a", json!({"listOfLists": [{"name": "a", "value": ["b", "c"]}]})),
            Apply("a", json!({"listOfLists": [{"name": "a", "value": ["a", "c"]}]})),
        ],
        &json!({"listOfLists": [{"name": "a", "value": ["a", "c"]}]}),
        &json!({"a": {"f:listOfLists": entry("a", json!({"f:value": {"v:\"a\"": {}, "v:\"c\"": {}}}))}}),
    );
    check(
        "list of maps: another key",
        [
            Apply("a", json!({"listOfMaps": [{"name": "a", "value": {"b": "x"}}]})),
            Apply("a", json!({"listOfMaps": [{"name": "b", "value": {"a": "x"}}]})),
        ],
        &json!({"listOfMaps": [{"name": "b", "value": {"a": "x"}}]}),
        &json!({"a": {"f:listOfMaps": entry("b", json!({"f:value": {"f:a": {}}}))}}),
    );
    check(
        "map of lists: another key",
        [
            Apply("a", json!({"mapOfLists": {"a": ["b", "c"]}})),
            Apply("a", json!({"mapOfLists": {"b": ["a", "c"]}})),
        ],
        &json!({"mapOfLists": {"b": ["a", "c"]}}),
        &json!({"a": {"f:mapOfLists": {"f:b": {".": {}, "v:\"a\"": {}, "v:\"c\"": {}}}}}),
    );
    check(
        "map of maps: another value",
        [
            Apply("a", json!({"mapOfMaps": {"a": {"b": "x", "c": "y"}}})),
            Apply("a", json!({"mapOfMaps": {"a": {"a": "x", "c": "z"}}})),
        ],
        &json!({"mapOfMaps": {"a": {"a": "x", "c": "z"}}}),
        &json!({"a": {"f:mapOfMaps": {"f:a": {".": {}, "f:a": {}, "f:c": {}}}}}),
    );
    check(
        "two managers of one entry",
        [
            Apply("a", json!({"listOfMaps": [{"name": "a", "value": {"x": "1"}}]})),
            Apply("b", json!({"listOfMaps": [{"name": "a", "value": {"y": "2"}}]})),
            Apply("a", json!({"listOfMaps": []})),
        ],
        &json!({"listOfMaps": [{"name": "a", "value": {"y": "2"}}]}),
        &json!({"b": {"f:listOfMaps": entry("a", json!({"f:value": {"f:y": {}}}))}}),
    );
}

#[test]
fn fields_of_a_free_form_object_have_their_own_managers() {
    check(
        "a free-form object",
        [
            Apply("a", json!({"free": {"a": {"b": 1, "c": [1]}}})),
            Apply("b", json!({"free": {"a": {"d": 2}}})),
        ],
        &json!({"free": {"a": {"b": 1, "c": [1], "d": 2}}}),
        &json!({
            "a": {"f:free": {"f:a": {".": {}, "f:b": {}, "f:c": {}}}},
            "b": {"f:free": {"f:a": {".": {}, "f:d": {}}}},
        }),
    );
}

#[test]
fn keys_have_defaults() {
    let port = |protocol: &str, fields: Value| {
        let mut fields = fields;
        fields["."] = json!({});
        let mut keyed = json!({});
        keyed[format!("k:{{\"port\":80,\"protocol\":\"{protocol}\"}}")] = fields;
        keyed
    };
    check(
        "an entry without a key has its default",
        [
            Apply("a", json!({"ports": [{"port": 80}]})),
            Apply(
                "b",
                json!({"ports": [{"port": 80, "protocol": "TCP", "name": "x"}]}),
            ),
        ],
        &json!({"ports": [{"port": 80, "protocol": "TCP", "name": "x"}]}),
        &json!({
            "a": {"f:ports": port("TCP", json!({"f:port": {}}))},
            "b": {"f:ports": port("TCP", json!({"f:port": {}, "f:protocol": {}, "f:name": {}}))},
        }),
    );
}

#[test]
fn another_value_of_another_applier_conflicts_and_an_equal_one_is_shared() {
    check(
        "another value of another applier conflicts, and force takes it",
        [
            Apply("a", json!({"number": 1, "string": "x"})),
            Conflict(
                "b",
                json!({"number": 2}),
                "Apply failed with 1 conflict: conflict with \"a\": .number",
            ),
            Conflict(
                "b",
                json!({"number": 2, "string": "y"}),
                "Apply failed with 2 conflicts: conflicts with \"a\":\n- .number\n- .string",
            ),
            Force("b", json!({"number": 2})),
        ],
        &json!({"number": 2, "string": "x"}),
        &json!({"a": {"f:string": {}}, "b": {"f:number": {}}}),
    );
    check(
        "the same value is shared",
        [
            Apply("a", json!({"number": 1})),
            Apply("b", json!({"number": 1})),
            Apply("a", json!({"string": "x"})),
        ],
        &json!({"number": 1, "string": "x"}),
        &json!({"a": {"f:string": {}}, "b": {"f:number": {}}}),
    );
}

#[test]
fn updates_take_and_give_up_fields() {
    check(
        "an update takes without a conflict, and the next apply conflicts",
        [
            Apply("a", json!({"number": 1, "bool": true})),
            Update("c", json!({"number": 2, "bool": true})),
            Conflict(
                "a",
                json!({"number": 1, "bool": true}),
                "Apply failed with 1 conflict: conflict with \"c\" using v1: .number",
            ),
        ],
        &json!({"number": 2, "bool": true}),
        &json!({"a": {"f:bool": {}}, "c": {"f:number": {}}}),
    );
    check(
        "a field of an update stays when the applier gives it up",
        [
            Update("c", json!({"number": 1})),
            Apply("a", json!({"number": 1, "string": "x"})),
            Apply("a", json!({"string": "x"})),
        ],
        &json!({"number": 1, "string": "x"}),
        &json!({"a": {"f:string": {}}, "c": {"f:number": {}}}),
    );
    check(
        "an update removes the ownership of what it removes",
        [
            Apply("a", json!({"number": 1, "string": "x"})),
            Update("c", json!({"string": "x"})),
        ],
        &json!({"string": "x"}),
        &json!({"a": {"f:string": {}}}),
    );
}

#[test]
fn atomic_lists_and_maps_are_owned_as_a_whole() {
    check(
        "an atomic list is replaced by its only manager",
        [
            Apply("a", json!({"atomicList": ["a", "b"]})),
            Apply("a", json!({"atomicList": ["b", "c"]})),
        ],
        &json!({"atomicList": ["b", "c"]}),
        &json!({"a": {"f:atomicList": {}}}),
    );
    check(
        "another atomic list conflicts",
        [
            Apply("a", json!({"atomicList": ["a"]})),
            Conflict(
                "b",
                json!({"atomicList": ["b"]}),
                "Apply failed with 1 conflict: conflict with \"a\": .atomicList",
            ),
        ],
        &json!({"atomicList": ["a"]}),
        &json!({"a": {"f:atomicList": {}}}),
    );
    check(
        "an atomic map is owned as a whole",
        [
            Apply("a", json!({"atomicMap": {"x": "1"}})),
            Force("b", json!({"atomicMap": {"y": "2"}})),
        ],
        &json!({"atomicMap": {"y": "2"}}),
        &json!({"b": {"f:atomicMap": {}}}),
    );
}

#[test]
fn fields_that_an_endpoint_does_not_store_have_no_manager() {
    check(
        "an ignored field",
        [Apply("a", json!({"ignored": {"x": 1}, "number": 1}))],
        &json!({"ignored": {"x": 1}, "number": 1}),
        &json!({"a": {"f:number": {}}}),
    );
}

#[test]
fn a_key_that_no_manager_applies_is_removed() {
    check(
        "a key of a map",
        [
            Apply("a", json!({"map": {"x": "1", "y": "2"}})),
            Apply("a", json!({"map": {"x": "1"}})),
        ],
        &json!({"map": {"x": "1"}}),
        &json!({"a": {"f:map": {"f:x": {}}}}),
    );
    check(
        "a key that another manager applies as well",
        [
            Apply("a", json!({"map": {"x": "1", "y": "2"}})),
            Apply("b", json!({"map": {"y": "2"}})),
            Apply("a", json!({"map": {"x": "1"}})),
        ],
        &json!({"map": {"x": "1", "y": "2"}}),
        &json!({"a": {"f:map": {"f:x": {}}}, "b": {"f:map": {"f:y": {}}}}),
    );
}
