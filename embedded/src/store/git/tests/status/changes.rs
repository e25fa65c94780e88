//! Status files of objects that move or are withdrawn, of definitions, and of a content that other processes would not read.

use super::super::definitions::{DEFINITION, TOOL, TOOLS, definition, tools};
use super::*;
use crate::store::backend::Origin;

#[test]
fn an_object_in_a_file_that_does_not_parse_keeps_its_status() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    let before = widget(&store);
    let broken = Some("kind: [\n");
    environment.commit([("mine.yaml", None), ("moved.yaml", broken)]);
    store.poll();
    assert_eq!(widget(&store), before);
    assert_same_in_a_new_process(&environment, &store);
    let known = heads(&environment);
    let error = set(&store, "status", &json!({"phase": "Failed"})).unwrap_err();
    assert!(
        error.message().contains("was in mine.yaml"),
        "{}",
        error.message()
    );
    assert_eq!(heads(&environment), known);
    environment.commit([("moved.yaml", Some(WIDGET))]);
    store.poll();
    assert_eq!(widget(&store), before);
    environment.commit([("moved.yaml", broken)]);
    store.poll();
    assert_eq!(widget(&store), before);
    let error = set(&store, "status", &json!({"phase": "Failed"})).unwrap_err();
    assert!(
        error.message().contains("moved.yaml does not parse"),
        "{}",
        error.message()
    );
    environment.commit([("moved.yaml", Some(WIDGET))]);
    store.poll();
    status(&store, "Failed");
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn a_status_of_an_object_in_a_full_file_is_written() {
    let environment = Environment::new();
    // A write of the file would end its last line, and so make it too large.
    let text = format!("{WIDGET}# {}", "x".repeat((16 << 20) - WIDGET.len() - 2));
    environment.commit([("mine.yaml", Some(text.as_str()))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    assert_eq!(widget(&store).unwrap()["status"]["phase"], "Ready");
    assert_eq!(environment.read("mine.yaml"), Some(text));
}

#[test]
fn a_status_that_others_would_not_read_is_not_written() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    let known = heads(&environment);
    let deep = (0..200).fold(json!(1), |inner, _| json!({ "a": inner }));
    let error = set(&store, "status", &deep).unwrap_err();
    assert!(
        error
            .message()
            .contains("widgets.example.dev/default/a cannot be written"),
        "{}",
        error.message()
    );
    assert_eq!(heads(&environment), known);
    status(&store, "Failed");
    assert_same_in_a_new_process(&environment, &store);
}

#[test]
fn statuses_that_others_would_not_read_are_refused_together() {
    let environment = Environment::new();
    let other = WIDGET.replace("name: a", "name: c");
    environment.commit([("mine.yaml", Some(WIDGET)), ("other.yaml", Some(other.as_str()))]);
    let (mut git, state) = Git::open(environment.options("a"), &[widgets()]).unwrap();
    let keys = ["a", "c"].map(|name| Key::new(WIDGETS, "default", name));
    let first = git.first_revision(state.revision(), &keys[0]);
    let deep = (0..200).fold(json!(1), |inner, _| json!({ "a": inner }));
    let records = keys.iter().zip(first..).map(|(key, revision)| {
        let mut object = Value::clone(&git.history.objects[key]);
        object["status"] = deep.clone();
        Record {
            key: key.clone(),
            kind: ChangeType::Put,
            object: Arc::new(object),
            revision,
            origin: Origin::default(),
        }
    });
    let mut records: Vec<Record> = records.collect();
    let Err(CommitError::Refused(refused)) = git.commit(&mut records) else {
        panic!("no process would read them")
    };
    assert!(refused.iter().map(|(key, _)| key).eq(&keys), "in one attempt");
}

#[test]
fn the_status_of_a_definition_is_in_the_journal() {
    let environment = Environment::new();
    let store = environment.store("a");
    let key = Key::new(DEFINITIONS, "", TOOLS);
    let object = yaml::parse(DEFINITION).unwrap();
    store.write_now(&key, |_| Ok(Write::Put(object.clone()))).unwrap();
    let known = heads(&environment);
    let conditions = json!([{"type": "Established", "status": "True"}]);
    let stored = store.write_now(&key, |view| {
        let mut object = view.get(&key).map(|object| Value::clone(object)).unwrap();
        object["status"]["conditions"] = conditions.clone();
        Ok(Write::Put(object))
    });
    let stored = stored.unwrap();
    assert_eq!(stored["status"]["conditions"], conditions);
    assert_eq!(definition(&store), Some(Value::clone(&stored)));
    let path = "apiextensions.k8s.io/v1/customresourcedefinitions/_cluster/tools.tools.dev.yaml";
    assert!(!environment.read(path).unwrap().contains("status:"));
    let moved = heads(&environment);
    assert_eq!(moved.branch, known.branch);
    assert_ne!(moved.journal, known.journal);
    assert_eq!(definition(&environment.store("b")), definition(&store));
}

#[test]
fn an_object_whose_file_was_removed_without_its_definition_has_no_status_later() {
    let environment = Environment::new();
    let crd = DEFINITION
        .replace("    schema:\n", "    subresources: {status: {}}\n    schema:\n")
        .replace(
            "properties: {spec:",
            "properties: {status: {type: object, x-kubernetes-preserve-unknown-fields: true}, spec:",
        );
    let crd = Some(crd.as_str());
    environment.commit([("crd.yaml", crd), ("a.yaml", Some(TOOL))]);
    let store = environment.store("a");
    let key = Key::new(TOOLS, "default", "a");
    let stored = store.write_now(&key, |view| {
        let mut object = view.get(&key).map(|object| Value::clone(object)).unwrap();
        object["status"] = json!({"phase": "Ready"});
        Ok(Write::Put(object))
    });
    stored.unwrap();
    environment.commit([("crd.yaml", None)]);
    environment.commit([("crd.yaml", crd)]);
    store.poll();
    assert_eq!(tools(&store)[0]["status"]["phase"], "Ready", "it comes back");
    environment.commit([("crd.yaml", None)]);
    environment.commit([("a.yaml", None)]);
    environment.commit([("crd.yaml", crd)]);
    environment.commit([("a.yaml", Some(TOOL))]);
    store.poll();
    assert_eq!(tools(&store)[0]["status"], Value::Null);
    assert_eq!(tools(&environment.store("b")), tools(&store));
}

/// Returns the definition of widgets with another schema of `spec`, by which [`WIDGET`] is not valid.
fn stricter_widgets() -> CustomResourceDefinition {
    let mut crd = serde_json::to_value(widgets()).unwrap();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = json!({"type": "object", "required": ["color"], "properties": {"color": {"type": "string"}},
        "x-kubernetes-preserve-unknown-fields": true});
    serde_json::from_value(crd).unwrap()
}

#[test]
fn a_write_keeps_the_status_of_an_object_that_the_process_does_not_serve() {
    for crds in [vec![], vec![stricter_widgets()]] {
        let environment = Environment::new();
        environment.commit([("mine.yaml", Some(WIDGET))]);
        let store = open(&environment, "a");
        let other = Store::git(environment.options("b"), &crds).unwrap();
        status(&store, "Ready");
        other.poll();
        assert_eq!(widget(&other), None);
        put(&other, "b", "one", "1").unwrap();
        put(&other, "b", "one", "2").unwrap();
        assert!(read_status(&environment).is_some(), "{} definitions", crds.len());
        store.poll();
        assert_eq!(widget(&store).unwrap()["status"]["phase"], "Ready");
        assert_same_in_a_new_process(&environment, &store);
    }
}

#[test]
fn an_object_that_was_never_valid_leaves_no_status() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    let other = Store::git(environment.options("b"), &[stricter_widgets()]).unwrap();
    status(&store, "Ready");
    drop(store);
    other.poll();
    environment.commit([("mine.yaml", None)]);
    other.poll();
    put(&other, "b", "one", "1").unwrap();
    assert_eq!(read_status(&environment), None);
}
