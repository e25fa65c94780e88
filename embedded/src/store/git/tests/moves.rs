//! Commits that move a file and break it.

use super::*;

/// Commits, and checks that a second process and a process that reads the whole history have the same objects as the first one.
fn commit<const N: usize>(
    environment: &Environment,
    stores: &[Store; 2],
    files: [(&str, Option<&str>); N],
) -> Option<Value> {
    environment.commit(files);
    for store in stores {
        store.poll();
    }
    let [first, second] = stores;
    assert_eq!(objects(second), objects(first));
    assert_eq!(objects(&environment.store("restarted")), objects(first));
    object(first, "a")
}

fn start() -> (Environment, [Store; 2], Option<Value>) {
    let environment = Environment::new();
    environment.commit([("a.yaml", Some(BY_HAND))]);
    let stores = [environment.store("a"), environment.store("b")];
    let before = object(&stores[0], "a");
    assert!(before.is_some());
    (environment, stores, before)
}

#[test]
fn a_move_to_a_file_that_does_not_parse_deletes_nothing() {
    let (environment, stores, before) = start();
    let broken = format!("{BY_HAND}spec: [\n");
    let broken = Some(broken.as_str());
    let after = commit(&environment, &stores, [("a.yaml", None), ("b.yaml", broken)]);
    assert_eq!(after, before);
    let reports = stores[0].take_invalid_files();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(reports[0].path, "a.yaml");
    assert!(reports[0].reason.contains("b.yaml does not parse"), "{reports:?}");
    let error = put(&stores[0], "a", "two", "2").unwrap_err();
    assert!(
        error.message().contains("was in a.yaml") && error.message().contains("b.yaml does not parse"),
        "{}",
        error.message()
    );
    put(&stores[0], "c", "one", "1").unwrap();
    stores[1].poll();
    let after = commit(&environment, &stores, [("b.yaml", None), ("c.yaml", broken)]);
    assert_eq!(after, before, "a further move");
    let repaired = BY_HAND.replace("\"1\"", "\"3\"");
    let after = commit(&environment, &stores, [("c.yaml", Some(repaired.as_str()))]);
    let (before, after) = (before.unwrap(), after.unwrap());
    assert_eq!(after["data"]["one"], "3");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    put(&stores[0], "a", "two", "2").unwrap();
    assert!(environment.read("c.yaml").unwrap().ends_with("  two: '2'\n"));
}

#[test]
fn a_pending_move_ends_without_the_file_that_does_not_parse() {
    for end in [None, Some("# nothing\n")] {
        let (environment, stores, before) = start();
        let broken = Some("kind: [\n");
        let after = commit(&environment, &stores, [("a.yaml", None), ("b.yaml", broken)]);
        assert_eq!(after, before);
        let after = commit(&environment, &stores, [("b.yaml", end)]);
        assert_eq!(after, None, "{end:?}");
        put(&stores[0], "a", "one", "1").unwrap();
    }
}

#[test]
fn a_document_that_leaves_its_file_can_be_in_one_that_does_not_parse() {
    let (environment, stores, before) = start();
    let other = BY_HAND.replace("name: a", "name: b");
    let both = format!("{BY_HAND}---\n{other}");
    commit(&environment, &stores, [("a.yaml", Some(both.as_str()))]);
    let broken = Some("kind: [\n");
    let other = Some(other.as_str());
    let after = commit(&environment, &stores, [("a.yaml", other), ("b.yaml", broken)]);
    assert_eq!(after, before);
    // A file that was broken before says nothing about this commit.
    let after = commit(&environment, &stores, [("a.yaml", None)]);
    assert_eq!(after, before);
    assert_eq!(object(&stores[0], "b"), None);
    let after = commit(&environment, &stores, [("d.yaml", Some(BY_HAND))]);
    assert_eq!(after, before, "it has a file again");
    put(&stores[0], "a", "two", "2").unwrap();
}

/// The tests that hold wherever the status is.
pub(super) const TESTS: &[fn()] = &[
    a_move_to_a_file_that_does_not_parse_deletes_nothing,
    a_pending_move_ends_without_the_file_that_does_not_parse,
    a_document_that_leaves_its_file_can_be_in_one_that_does_not_parse,
];
