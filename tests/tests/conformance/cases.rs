//! Every case, by subject.

mod builtin;
mod deletion;
mod discovery;
mod errors;
mod lists;
mod metadata;
mod objects;
mod patches;
mod validation;
mod watches;

use serde_json::{Value, json};

use crate::case::Case;
use crate::known::KNOWN;

/// Where widgets of the case's namespace are.
const WIDGETS: &str = "/apis/conformance.sluice.dev/v1/namespaces/{ns}/widgets";

/// Every case, those that are known to differ marked as such.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = by_subject();
    for known in KNOWN {
        let case = cases.iter_mut().find(|case| case.name == known.case);
        let case = case.unwrap_or_else(|| panic!("no case is called {}", known.case));
        assert!(
            case.differs.replace(known).is_none(),
            "{} is listed twice",
            known.case
        );
    }
    cases
}

fn by_subject() -> Vec<Case> {
    [
        discovery::cases(),
        objects::cases(),
        patches::cases(),
        errors::cases(),
        validation::cases(),
        metadata::cases(),
        lists::cases(),
        watches::cases(),
        deletion::cases(),
        builtin::cases(),
    ]
    .concat()
}

/// A widget of this name and spec.
fn widget(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec,
    })
}

/// The smallest widget that is valid.
fn red(name: &str) -> Value {
    widget(name, &json!({ "color": "red" }))
}

/// The same object with one more metadata field.
fn with_metadata(mut object: Value, key: &str, value: Value) -> Value {
    object["metadata"][key] = value;
    object
}

/// The path of one widget, or of something below it.
fn at(name: &str) -> String {
    format!("{WIDGETS}/{name}")
}
