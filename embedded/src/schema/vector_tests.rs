//! The schema module against kube-apiserver's own packages: `vectors/expected.json` contains their results for
//! `vectors/cases.json`. To regenerate it after adding a case: `cd vectors && go run . cases.json > expected.json`.

use serde_json::Value;

use super::{Schema, go_format};

fn read(text: &str) -> serde_json::Result<Vec<Value>> {
    serde_json::from_str(text)
}

/// Prunes and defaults an object, as for storage.
fn admit(schema: &Schema, object: &Value) -> (Value, Vec<String>) {
    let mut object = object.clone();
    let dropped = schema.prune(&mut object);
    schema.apply_defaults(&mut object);
    (object, dropped)
}

/// Returns the difference from the expected result.
fn difference(case: &Value, expected: &Value) -> Option<String> {
    let schema = match Schema::compile(&case["schema"]) {
        Ok(schema) => schema,
        Err(error) => return Some(format!("does not compile: {error}")),
    };
    let (object, dropped) = admit(&schema, &case["object"]);
    let old = case.get("old").map(|old| admit(&schema, old).0);
    let mut errors: Vec<String> = schema
        .validate(&object, old.as_ref(), false)
        .iter()
        .map(ToString::to_string)
        .collect();
    errors.sort();
    let result =
        serde_json::json!({"name": case["name"], "dropped": dropped, "object": object, "errors": errors});
    // Numbers by value, as both sides print them.
    (go_format::json(&result) != go_format::json(expected))
        .then(|| format!("{}\n  ours:     {result}\n  expected: {expected}", case["name"]))
}

#[test]
fn results_match_kube_apiserver() {
    let cases = read(include_str!("../../tests/vectors/cases.json")).unwrap();
    let expected = read(include_str!("../../tests/vectors/expected.json")).unwrap();
    assert_eq!(cases.len(), expected.len());
    assert!(cases.len() >= 160, "cases are missing");
    let differences: Vec<String> = cases
        .iter()
        .zip(&expected)
        .filter_map(|(case, expected)| difference(case, expected))
        .collect();
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        cases.len(),
        differences.join("\n")
    );
}
