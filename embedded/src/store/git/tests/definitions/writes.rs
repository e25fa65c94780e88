//! Definitions that a server writes, and writes of objects after a change of their definition.

use super::*;

#[test]
fn a_written_definition_makes_files_objects_at_once() {
    let environment = Environment::new();
    environment.commit([("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    let key = Key::new(DEFINITIONS, "", TOOLS);
    let before = store.read().revision();
    let object = yaml::parse(DEFINITION).unwrap();
    store.write_now(&key, |_| Ok(Write::Put(object.clone()))).unwrap();
    assert_eq!(tools(&store).len(), 1, "without another write or poll");
    let changes = store.read().changes_since(before).unwrap();
    let revisions: Vec<u64> = changes.iter().map(|change| change.revision).collect();
    assert_eq!(changes.len(), 2);
    assert!(revisions.is_sorted(), "{revisions:?}");
    let path = "apiextensions.k8s.io/v1/customresourcedefinitions/_cluster/tools.tools.dev.yaml";
    assert!(environment.read(path).is_some());
    assert_eq!(tools(&environment.store("b")), tools(&store), "the same versions");
}

/// Writes a tool as a server does that has validated it with [`DEFINITION`].
fn put_tool(store: &Store, spec: &Value) -> Result<Arc<Value>, StatusError> {
    let tool = json!({
        "apiVersion": "tools.dev/v1", "kind": "Tool",
        "metadata": {"name": "a", "namespace": "default"}, "spec": spec,
    });
    store.write_now(&Key::new(TOOLS, "default", "a"), |_| Ok(Write::Put(tool.clone())))
}

#[test]
fn a_write_is_decided_again_with_the_definition_of_another_process() {
    let environment = Environment::new();
    environment.commit([("crd.yaml", Some(DEFINITION))]);
    let store = environment.store("a");
    let strict = DEFINITION.replace("maximum: 10}", "maximum: 5}, color: {type: string, default: red}");
    environment.commit([("crd.yaml", Some(strict.as_str()))]);
    let error = put_tool(&store, &json!({"size": 7})).unwrap_err();
    assert_eq!(error.code(), 409, "{}", error.message());
    assert!(
        error.message().contains("the definition of the kind has changed")
            && error.message().contains("spec.size"),
        "{}",
        error.message()
    );
    assert_eq!(tools(&store), Vec::<Value>::new());
    assert_eq!(environment.commits(), 2, "nothing is committed");
    let stored = put_tool(&store, &json!({"size": 3})).unwrap();
    assert_eq!(stored["spec"], json!({"size": 3, "color": "red"}));
    assert_eq!(tools(&store), [Value::clone(&stored)]);
    assert_same_after_restart(&environment, &store);
    let error = put_tool(&store, &json!({"size": 7, "color": "red"})).unwrap_err();
    assert_eq!(error.code(), 409, "an update, too: {}", error.message());
    assert_same_after_restart(&environment, &store);
}

#[test]
fn a_server_serves_what_the_history_says_of_its_own_commit() {
    let environment = Environment::new();
    let store = environment.store("a");
    let key = Key::new(DEFINITIONS, "", TOOLS);
    let write = |text: &str| {
        let object = yaml::parse(text).unwrap();
        store.write_now(&key, |_| Ok(Write::Put(object.clone())))
    };
    // No admission has added the defaults.
    let stored = write(DEFINITION).unwrap();
    assert_eq!(stored["spec"]["names"]["listKind"], "ToolList");
    assert_eq!(definition(&store), Some(Value::clone(&stored)));
    assert_same_after_restart(&environment, &store);
    let error = write(&DEFINITION.replace("Namespaced", "Galaxy")).unwrap_err();
    assert!(
        error.message().contains("the object stays as it was"),
        "{}",
        error.message()
    );
    assert_eq!(definition(&store), Some(Value::clone(&stored)));
    assert_same_after_restart(&environment, &store);
}

#[test]
fn a_creation_over_the_invalid_file_of_a_withdrawn_object_is_another_object() {
    let environment = Environment::new();
    environment.commit([("crd.yaml", Some(DEFINITION)), ("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    let first = tools(&store);
    environment.commit([("crd.yaml", None)]);
    let strict = DEFINITION.replace(
        "{type: object, properties: {size: {type: integer, default: 1, maximum: 10}}}",
        "{type: object, required: [size], properties: {size: {type: integer}}}",
    );
    environment.commit([("crd.yaml", Some(strict.as_str()))]);
    store.poll();
    assert_eq!(tools(&store), Vec::<Value>::new(), "its file has no size");
    let tool = json!({
        "apiVersion": "tools.dev/v1", "kind": "Tool",
        "metadata": {"name": "a", "namespace": "default", "generation": 1}, "spec": {"size": 2},
    });
    let key = Key::new(TOOLS, "default", "a");
    store.write_now(&key, |_| Ok(Write::Put(tool.clone()))).unwrap();
    let second = tools(&store);
    assert_eq!(second[0]["spec"]["size"], 2);
    assert_ne!(second[0]["metadata"]["uid"], first[0]["metadata"]["uid"]);
    assert_same_after_restart(&environment, &store);
}

/// The tests that hold wherever the status is.
pub(in super::super) const TESTS: &[fn()] = &[
    a_written_definition_makes_files_objects_at_once,
    a_write_is_decided_again_with_the_definition_of_another_process,
    a_server_serves_what_the_history_says_of_its_own_commit,
    a_creation_over_the_invalid_file_of_a_withdrawn_object_is_another_object,
];
