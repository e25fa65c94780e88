//! Definitions in the repository, and the objects of their kinds.

mod writes;

use super::foreign::rewrite;
use super::*;

pub(super) use self::writes::TESTS as WRITE_TESTS;

pub(super) const TOOLS: &str = "tools.tools.dev";
pub(super) const DEFINITION: &str = "# Of the tools.
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tools.tools.dev}
spec:
  group: tools.dev
  scope: Namespaced
  names: {plural: tools, kind: Tool}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer, default: 1, maximum: 10}}}}
";
pub(super) const TOOL: &str = "apiVersion: tools.dev/v1\nkind: Tool\nmetadata: {name: a}\nspec: {}\n";

pub(super) fn tools(store: &Store) -> Vec<Value> {
    let objects = store.read().list(TOOLS, "");
    objects.iter().map(|object| Value::clone(object)).collect()
}

pub(super) fn definition(store: &Store) -> Option<Value> {
    let key = Key::new(DEFINITIONS, "", TOOLS);
    store.read().get(&key).map(|object| Value::clone(object))
}

/// Checks that a process that reads the whole history has the same objects.
fn assert_same_after_restart(environment: &Environment, store: &Store) {
    let restarted = environment.store("restarted");
    assert_eq!(tools(&restarted), tools(store));
    assert_eq!(definition(&restarted), definition(store));
}

#[test]
fn a_definition_and_an_object_arrive_in_one_push() {
    let both = format!("{TOOL}---\n{DEFINITION}");
    for files in [
        [("a.yaml", DEFINITION), ("b.yaml", TOOL)],
        [("a.yaml", TOOL), ("b.yaml", DEFINITION)],
        [("a.yaml", both.as_str()), ("b.yaml", "# nothing\n")],
    ] {
        let environment = Environment::new();
        let store = environment.store("a");
        environment.commit(files.map(|(path, text)| (path, Some(text))));
        store.poll();
        let found = tools(&store);
        assert_eq!(found.len(), 1, "{files:?}");
        assert_eq!(
            found[0]["spec"]["size"], 1,
            "the default of the definition is applied"
        );
        assert!(definition(&store).is_some());
        assert_same_after_restart(&environment, &store);
    }
}

#[test]
fn files_become_objects_with_the_definition_of_their_kind() {
    let environment = Environment::new();
    environment.commit([("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    assert_eq!(tools(&store), Vec::<Value>::new());
    let before = store.read().revision();
    environment.commit([("crd.yaml", Some(DEFINITION))]);
    store.poll();
    assert_eq!(tools(&store).len(), 1);
    let later = store.read().changes_since(before).unwrap();
    let changed: Vec<&str> = later.iter().map(|change| change.key.resource.as_str()).collect();
    assert_eq!(changed, [DEFINITIONS, TOOLS], "watches see both");
    assert_same_after_restart(&environment, &store);
}

#[test]
fn without_their_definition_objects_are_withdrawn_and_come_back_as_the_same() {
    let environment = Environment::new();
    let tool = TOOL.replace("{name: a}", "{name: a, finalizers: [tools.dev/b]}");
    environment.commit([("crd.yaml", Some(DEFINITION)), ("a.yaml", Some(tool.as_str()))]);
    let store = environment.store("a");
    let first = tools(&store);
    assert_eq!(first.len(), 1);
    environment.commit([("crd.yaml", None)]);
    store.poll();
    assert_eq!(tools(&store), Vec::<Value>::new());
    assert_eq!(definition(&store), None);
    assert_eq!(environment.read("a.yaml"), Some(tool), "the file stays");
    assert_same_after_restart(&environment, &store);
    environment.commit([("crd.yaml", Some(DEFINITION))]);
    store.poll();
    let second = tools(&store);
    assert_eq!(second[0]["metadata"]["uid"], first[0]["metadata"]["uid"]);
    assert!(!meta::is_deleting(&second[0]), "{second:?}");
    assert_same_after_restart(&environment, &store);
    environment.commit([("crd.yaml", None)]);
    environment.commit([("a.yaml", None)]);
    environment.commit([("crd.yaml", Some(DEFINITION))]);
    environment.commit([("a.yaml", Some(TOOL))]);
    store.poll();
    let third = tools(&store);
    assert_ne!(
        third[0]["metadata"]["uid"], first[0]["metadata"]["uid"],
        "its file was removed in between"
    );
}

#[test]
fn an_invalid_definition_keeps_the_last_good_one() {
    let environment = Environment::new();
    environment.commit([("crd.yaml", Some(DEFINITION)), ("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    let good = definition(&store);
    for (number, broken) in [
        "kind: [\n".to_owned(),
        DEFINITION.replace("type: integer", "type: number of parts"),
        DEFINITION.replace("Namespaced", "Galaxy"),
    ]
    .iter()
    .enumerate()
    {
        let name = format!("{{name: b{number}}}");
        let tool = TOOL.replace("{name: a}", &name);
        let path = format!("b{number}.yaml");
        environment.commit([
            ("crd.yaml", Some(broken.as_str())),
            (path.as_str(), Some(tool.as_str())),
        ]);
        store.poll();
        assert_eq!(definition(&store), good, "{broken}");
        assert_eq!(tools(&store).len(), number + 2, "its kind is served: {broken}");
    }
    assert_same_after_restart(&environment, &store);
    let changed = DEFINITION.replace("default: 1", "default: 2");
    environment.commit([("crd.yaml", Some(changed.as_str()))]);
    store.poll();
    assert_eq!(definition(&store).unwrap()["metadata"]["generation"], 2);
    assert_eq!(tools(&store)[0]["spec"]["size"], 2, "its objects are read again");
}

#[test]
fn definitions_of_the_program_are_not_read_from_the_repository() {
    let environment = Environment::new();
    let crd = serde_json::from_value(yaml::parse(DEFINITION).unwrap()).unwrap();
    let other = DEFINITION.replace("default: 1", "default: 2");
    environment.commit([("crd.yaml", Some(other.as_str())), ("a.yaml", Some(TOOL))]);
    let store = Store::git(environment.options("a"), &[crd]).unwrap();
    assert_eq!(definition(&store), None, "the server adds its own");
    assert_eq!(tools(&store)[0]["spec"]["size"], 1);
    environment.commit([("crd.yaml", None)]);
    store.poll();
    assert_eq!(tools(&store).len(), 1);
}

#[test]
fn a_rewritten_history_has_its_own_kinds() {
    let environment = Environment::new();
    environment.commit([("crd.yaml", Some(DEFINITION)), ("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    assert_eq!(tools(&store).len(), 1);
    rewrite(&environment, [("a.yaml", TOOL.to_owned())]);
    store.poll();
    assert_eq!(tools(&store), Vec::<Value>::new());
    environment.commit([("crd.yaml", Some(DEFINITION))]);
    store.poll();
    assert_eq!(tools(&store).len(), 1);
}

#[test]
fn a_withdrawn_object_is_the_same_in_a_rewritten_history() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(BY_HAND))]);
    environment.commit([("crd.yaml", Some(DEFINITION)), ("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    let first = tools(&store);
    environment.commit([("crd.yaml", None)]);
    store.poll();
    assert_eq!(tools(&store), Vec::<Value>::new());
    let files = [("crd.yaml", DEFINITION), ("a.yaml", TOOL)];
    rewrite(&environment, files.map(|(path, text)| (path, text.to_owned())));
    store.poll();
    let uid = &first[0]["metadata"]["uid"];
    assert_eq!(&tools(&store)[0]["metadata"]["uid"], uid);
    drop(store);
    let restarted = environment.store("a");
    assert_eq!(&tools(&restarted)[0]["metadata"]["uid"], uid, "after a restart");
}

#[test]
fn a_file_that_does_not_parse_is_reported_once() {
    let environment = Environment::new();
    environment.commit([("crd.yaml", Some(DEFINITION)), ("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    environment.commit([("a.yaml", Some("kind: [\n"))]);
    store.poll();
    assert_eq!(store.take_invalid_files().len(), 1);
    let changed = DEFINITION.replace("default: 1", "default: 2");
    environment.commit([("crd.yaml", Some(changed.as_str()))]);
    store.poll();
    assert!(store.take_invalid_files().is_empty());
    assert_eq!(tools(&store)[0]["spec"]["size"], 1, "it stays as it was");
    environment.commit([("a.yaml", Some(TOOL))]);
    store.poll();
    assert_eq!(tools(&store)[0]["spec"]["size"], 2);
}

#[test]
fn a_trailer_leaves_the_versions_of_the_next_commit() {
    let environment = Environment::new();
    let branch = environment.branch();
    let last = history::first_revision(2) - 2;
    let message = format!("by hand\n\nResource-Version: {last} {DEFINITIONS}//{TOOLS}\n");
    let edits = [
        ("crd.yaml", DEFINITION.to_owned()),
        ("a.yaml", TOOL.to_owned()),
        ("b.yaml", TOOL.replace("{name: a}", "{name: b}")),
    ]
    .map(|(path, text)| (path.to_owned(), Some(text)));
    let id = branch
        .write(None, &edits.into(), &message, 1_700_000_000)
        .unwrap();
    assert!(branch.advance(None, id).unwrap());
    let found = tools(&environment.store("a"));
    assert_eq!(found.len(), 2);
    for tool in found {
        let version: u64 = meta::resource_version(&tool).parse().unwrap();
        assert_eq!(history::generation(version), 1, "{tool}");
    }
}

#[test]
fn a_status_or_a_time_that_clients_cannot_decode_changes_nothing() {
    let environment = Environment::new();
    let status = "properties: {status: {type: object, properties: {phase: {type: string}}}, spec:";
    let definition = DEFINITION
        .replace("    schema:\n", "    subresources: {status: {}}\n    schema:\n")
        .replace("properties: {spec:", status);
    environment.commit([("crd.yaml", Some(definition.as_str())), ("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    let before = tools(&store);
    assert_eq!(before.len(), 1);
    for invalid in [
        format!("{TOOL}status: {{phase: 1}}\n"),
        format!("{TOOL}status: all\n"),
        TOOL.replace("{name: a}", "{name: a, deletionTimestamp: soon}"),
    ] {
        environment.commit([("a.yaml", Some(invalid.as_str()))]);
        store.poll();
        assert_eq!(tools(&store), before, "{invalid}");
        assert_eq!(store.take_invalid_files().len(), 1, "{invalid}");
    }
    let empty = format!("{TOOL}status:\n");
    environment.commit([("a.yaml", Some(empty.as_str()))]);
    store.poll();
    assert!(store.take_invalid_files().is_empty(), "an empty field is none");
    let metadata = "{name: a, finalizers: [tools.dev/b], deletionTimestamp: '2026-01-02T03:04:05+01:00'}";
    let valid = format!(
        "{}status: {{phase: Ready}}\n",
        TOOL.replace("{name: a}", metadata)
    );
    environment.commit([("a.yaml", Some(valid.as_str()))]);
    store.poll();
    let found = &tools(&store)[0];
    assert_eq!(found["status"]["phase"], "Ready");
    assert_eq!(found["metadata"]["deletionTimestamp"], "2026-01-02T02:04:05Z");
    assert_same_after_restart(&environment, &store);
}

#[test]
fn a_move_to_a_broken_file_keeps_a_definition_and_its_objects() {
    let environment = Environment::new();
    environment.commit([("crd.yaml", Some(DEFINITION)), ("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    let before = (definition(&store), tools(&store));
    let uid = before.1[0]["metadata"]["uid"].clone();
    let broken = Some("kind: [\n");
    environment.commit([("crd.yaml", None), ("moved.yaml", broken)]);
    store.poll();
    assert_eq!((definition(&store), tools(&store)), before);
    assert_same_after_restart(&environment, &store);
    environment.commit([("moved.yaml", Some(DEFINITION))]);
    environment.commit([("a.yaml", None), ("b.yaml", broken)]);
    store.poll();
    assert_eq!(tools(&store), before.1);
    // Without its definition the object is withdrawn, and it comes back with its file.
    environment.commit([("moved.yaml", None)]);
    environment.commit([("moved.yaml", Some(DEFINITION))]);
    environment.commit([("b.yaml", Some(TOOL))]);
    store.poll();
    assert_eq!(tools(&store)[0]["metadata"]["uid"], uid);
    assert_same_after_restart(&environment, &store);
}

/// The tests that hold wherever the status is.
pub(super) const TESTS: &[fn()] = &[
    a_definition_and_an_object_arrive_in_one_push,
    files_become_objects_with_the_definition_of_their_kind,
    without_their_definition_objects_are_withdrawn_and_come_back_as_the_same,
    an_invalid_definition_keeps_the_last_good_one,
    definitions_of_the_program_are_not_read_from_the_repository,
    a_rewritten_history_has_its_own_kinds,
    a_withdrawn_object_is_the_same_in_a_rewritten_history,
    a_file_that_does_not_parse_is_reported_once,
    a_trailer_leaves_the_versions_of_the_next_commit,
    a_status_or_a_time_that_clients_cannot_decode_changes_nothing,
    a_move_to_a_broken_file_keeps_a_definition_and_its_objects,
];
