//! All cases by subject.

mod apply;
mod builtin;
mod chunks;
mod collections;
mod definitions;
mod deletion;
mod discovery;
mod dry_run;
mod errors;
mod initial_events;
mod lists;
mod managers;
mod metadata;
mod names;
mod objects;
mod patch_types;
mod patches;
mod reviews;
mod roles;
mod scale;
mod selectors;
mod strictness;
mod unknown;
mod validation;
mod watches;

use serde_json::{Value, json};

use crate::case::Case;
use crate::known_differences::KNOWN;

/// The path of widgets in the case's namespace.
const WIDGETS: &str = "/apis/conformance.sluice.dev/v1/namespaces/{ns}/widgets";

/// Returns all cases with their known differences.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = by_subject();
    for known in KNOWN {
        let case = cases.iter_mut().find(|case| case.name == known.case);
        let case = case.unwrap_or_else(|| panic!("there is no case {}", known.case));
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
        apply::cases(),
        managers::cases(),
        errors::cases(),
        validation::cases(),
        metadata::cases(),
        lists::cases(),
        watches::cases(),
        deletion::cases(),
        builtin::cases(),
        roles::cases(),
        reviews::cases(),
        scale::cases(),
        definitions::cases(),
        chunks::cases(),
        selectors::cases(),
        initial_events::cases(),
        dry_run::cases(),
        strictness::cases(),
        patch_types::cases(),
        collections::cases(),
        unknown::cases(),
        names::cases(),
        discovery::aggregated(),
    ]
    .concat()
}

/// Returns a widget with this name and spec.
fn widget(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec,
    })
}

/// Returns the smallest valid widget.
fn red(name: &str) -> Value {
    widget(name, &json!({ "color": "red" }))
}

/// Returns the object with another metadata field.
fn with_metadata(mut object: Value, key: &str, value: Value) -> Value {
    object["metadata"][key] = value;
    object
}

/// Returns the path of a widget or of its subresource.
fn path_of(name: &str) -> String {
    format!("{WIDGETS}/{name}")
}

/// Returns delete options (meta/v1 `DeleteOptions`) with these fields.
fn delete_options(fields: &Value) -> Value {
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    for (key, value) in fields.as_object().into_iter().flatten() {
        options[key] = value.clone();
    }
    options
}
