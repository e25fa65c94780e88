//! The schema module against kube-apiserver's own packages: `vectors/expected.json` holds what those answer to
//! `vectors/cases.json`. To make it anew after adding a case: `cd vectors && go run . cases.json > expected.json`.

use serde_json::Value;
use sluice_embedded::schema::{Schema, text};

fn read(text: &str) -> serde_json::Result<Vec<Value>> {
    serde_json::from_str(text)
}

/// An object as it is stored: pruned and defaulted.
fn admit(schema: &Schema, object: &Value) -> (Value, Vec<String>) {
    let mut object = object.clone();
    let dropped = schema.prune(&mut object);
    schema.apply_defaults(&mut object);
    (object, dropped)
}

/// What differs from the expected answer, as a text.
fn difference(case: &Value, expected: &Value) -> Option<String> {
    let schema = match Schema::compile(&case["schema"]) {
        Ok(schema) => schema,
        Err(error) => return Some(format!("does not compile: {error}")),
    };
    let (object, dropped) = admit(&schema, &case["object"]);
    let old = case.get("old").map(|old| admit(&schema, old).0);
    let mut errors: Vec<String> = schema
        .validate(&object, old.as_ref())
        .iter()
        .map(ToString::to_string)
        .collect();
    errors.sort();
    let answer =
        serde_json::json!({"name": case["name"], "dropped": dropped, "object": object, "errors": errors});
    // Numbers by value, as both sides print them.
    (text::json(&answer) != text::json(expected))
        .then(|| format!("{}\n  ours:     {answer}\n  expected: {expected}", case["name"]))
}

#[test]
fn answers_are_those_of_the_api_server() {
    let cases = read(include_str!("vectors/cases.json")).unwrap();
    let expected = read(include_str!("vectors/expected.json")).unwrap();
    assert_eq!(cases.len(), expected.len());
    assert!(cases.len() >= 160, "cases went missing");
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
