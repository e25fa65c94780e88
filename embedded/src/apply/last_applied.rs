//! The annotation of `kubectl apply`: migration to server-side apply. Pure.

use serde_json::Value;

use super::compare::Comparison;
use super::field_set::FieldSet;
use super::fields_of::field_set;
use super::shape::Shape;

/// The annotation with the last configuration that `kubectl apply` sent.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The limit for all annotations of an object, keys and values, in bytes.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Returns the fields of the last configuration that the object still has with the same values; `None` without a usable annotation.
pub(super) fn fields(shape: &Shape, api_version: &str, live: &Value) -> Option<FieldSet> {
    let text = live["metadata"]["annotations"].get(ANNOTATION)?.as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last["apiVersion"] != api_version {
        return None;
    }
    let changes = Comparison::of(shape, &last, live).ok()?;
    let fields = field_set(shape, &last);
    Some(
        fields
            .difference(&changes.modified)
            .difference(&changes.added)
            .difference(&changes.removed),
    )
}

/// Writes the configuration into the annotation, if the object has it, so that `kubectl apply` can be used again.
pub(super) fn update(object: &mut Value, config: &Value) {
    let Some(annotations) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    if annotations
        .get(ANNOTATION)
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        return;
    }
    let mut config = config.clone();
    let given = config
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut);
    if let Some(given) = given {
        given.remove(ANNOTATION);
    }
    let text = format!("{config}\n");
    let others = annotations.iter().filter(|(name, _)| *name != ANNOTATION);
    let size: usize = others
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size + ANNOTATION.len() + text.len() > MAX_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    } else {
        annotations.insert(ANNOTATION.into(), text.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_annotation_gets_the_configuration() {
        let config = json!({"kind": "A", "metadata": {"name": "a"}});
        let mut object = json!({"metadata": {"annotations": {ANNOTATION: "{}", "other": "x"}}});
        update(&mut object, &config);
        assert_eq!(
            object["metadata"]["annotations"][ANNOTATION],
            "{\"kind\":\"A\",\"metadata\":{\"name\":\"a\"}}\n"
        );
        let mut without = json!({"metadata": {"annotations": {"other": "x"}}});
        update(&mut without, &config);
        assert_eq!(without["metadata"]["annotations"], json!({"other": "x"}));
    }
}
