//! Object metadata (meta/v1 ObjectMeta): generated names and validation.

mod types;

use std::collections::BTreeSet;

use rand::seq::IndexedRandom;
use serde_json::Value;

pub(super) use self::types::normalize;
use super::role_kinds;
use crate::cause::Cause;
use crate::resource::{Resource, Strategy};
use crate::{meta, names};

/// The limit for all annotations of an object, keys and values, in bytes.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;
/// Finalizers without a domain that Kubernetes defines.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
/// Path of the owner references.
const OWNERS: &str = "metadata.ownerReferences";

/// Letters without vowels and digits without 0, 1 and 3, so that suffixes form no words: the alphabet of apimachinery's `rand.String`.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Generates a name: the first 58 characters of `generateName` and five random ones.
pub(crate) fn generate_name(base: &str) -> String {
    let mut random = rand::rng();
    let suffix = (0..5).filter_map(|_| SUFFIX_ALPHABET.choose(&mut random).copied().map(char::from));
    base.chars().take(58).chain(suffix).collect()
}

/// Validates the name of an object.
pub(super) fn validate_name(resource: &Resource, object: &Value) -> Vec<Cause> {
    let name = meta::name(object);
    if name.is_empty() {
        return vec![Cause::required(
            "metadata.name",
            "name or generateName is required",
        )];
    }
    if matches!(resource.strategy, Strategy::Role | Strategy::RoleBinding) {
        return role_kinds::validate_name(name);
    }
    let mut causes = Vec::new();
    let (limit, well_formed, text) = match resource.strategy {
        Strategy::Namespace => (63, names::is_label(name), names::LABEL),
        _ => (253, names::is_subdomain(name), names::SUBDOMAIN),
    };
    if name.len() > limit {
        let detail = format!("must be no more than {limit} characters");
        causes.push(Cause::invalid("metadata.name", name, &detail));
    }
    if !well_formed {
        let dotted = resource.strategy == Strategy::Namespace && names::is_subdomain(name);
        let text = if dotted { "must not contain dots" } else { text };
        causes.push(Cause::invalid("metadata.name", name, text));
    }
    causes
}

/// Validates the metadata of an object, except its name.
pub(super) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = validate_labels(object);
    causes.extend(validate_annotations(object));
    causes.extend(validate_owner_references(object));
    for finalizer in meta::finalizers(object) {
        causes.extend(validate_qualified_name("metadata.finalizers", finalizer));
    }
    causes
}

/// Whether a finalizer has neither a domain with a path nor a meaning for Kubernetes.
fn lacks_domain(finalizer: &str) -> bool {
    !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer)
}

/// Rejects finalizers of built-in kinds without a domain, as `validateKubeFinalizerName` of kube-apiserver.
pub(super) fn validate_finalizer_domains(object: &Value) -> Vec<Cause> {
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    let finalizers = meta::finalizers(object).into_iter().enumerate();
    finalizers
        .filter(|(_, name)| lacks_domain(name))
        .map(|(at, name)| Cause::invalid(format!("metadata.finalizers[{at}]"), name, detail))
        .collect()
}

/// Returns a warning for each finalizer without a domain that a write adds to a custom resource, as `generateWarningsFromObj` of
/// apiextensions-apiserver.
pub(crate) fn finalizer_warnings(old: Option<&Value>, new: &Value) -> Vec<String> {
    let existing = old.map(meta::finalizers).unwrap_or_default();
    let added: BTreeSet<&str> = meta::finalizers(new)
        .into_iter()
        .filter(|name| lacks_domain(name) && !existing.contains(name))
        .collect();
    let warning = |name: &str| {
        let path = if name.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        format!(
            "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        )
    };
    added.into_iter().map(warning).collect()
}

/// Validates a metadata update.
pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    if !meta::is_deleting(old) {
        return Vec::new();
    }
    let existing = meta::finalizers(old);
    let added: Vec<&str> = meta::finalizers(new)
        .into_iter()
        .filter(|name| !existing.contains(name))
        .collect();
    if added.is_empty() {
        return Vec::new();
    }
    let quoted: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        quoted.join(", ")
    );
    vec![Cause::forbidden("metadata.finalizers", &detail)]
}

fn validate_labels(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (name, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        causes.extend(validate_qualified_name("metadata.labels", name));
        let value = value.as_str().unwrap_or("");
        let errors = names::label_value_errors(value).into_iter();
        causes.extend(errors.map(|detail| Cause::invalid("metadata.labels", value, &detail)));
    }
    causes
}

fn validate_annotations(object: &Value) -> Vec<Cause> {
    let (mut causes, mut bytes) = (Vec::new(), 0);
    let annotations = object["metadata"]["annotations"].as_object();
    for (name, value) in annotations.into_iter().flatten() {
        let lower = name.to_lowercase();
        causes.extend(validate_qualified_name("metadata.annotations", &lower));
        bytes += name.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MAX_ANNOTATION_BYTES {
        causes.push(Cause::too_long("metadata.annotations", MAX_ANNOTATION_BYTES));
    }
    causes
}

fn validate_owner_references(object: &Value) -> Vec<Cause> {
    let (mut causes, mut controller) = (Vec::new(), None);
    for owner in meta::owners(object) {
        let text = |field: &str| owner[field].as_str().unwrap_or("");
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(field).is_empty() {
                let subject = if field == "apiVersion" { "version " } else { "" };
                let reason = &format!("{subject}must not be empty");
                causes.push(Cause::invalid(format!("{OWNERS}.{field}"), "", reason));
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            let reason = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid_json(OWNERS, owner, reason));
        }
        if owner["controller"] == true
            && let Some(first) = controller.replace(text("name"))
        {
            let reason = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {}",
                text("name")
            );
            causes.push(Cause::invalid_json(
                OWNERS,
                Value::from(meta::owners(object)),
                &reason,
            ));
        }
    }
    causes
}

fn validate_qualified_name<'a>(field: &'a str, name: &'a str) -> impl Iterator<Item = Cause> + use<'a> {
    let errors = names::qualified_name_errors(name).into_iter();
    errors.map(move |detail| Cause::invalid(field, name, &detail))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_fields_are_named() {
        let wrong = |metadata: Value| -> Vec<String> {
            validate(&json!({ "metadata": metadata }))
                .into_iter()
                .map(|cause| cause.field)
                .collect()
        };
        assert!(wrong(json!({"labels": {"a.b/c": "d", "e": ""}, "finalizers": ["a.b/c"]})).is_empty());
        assert_eq!(wrong(json!({"labels": {"a": "-"}})), ["metadata.labels"]);
        assert_eq!(wrong(json!({"labels": {"/a": ""}})), ["metadata.labels"]);
        assert_eq!(
            wrong(json!({"annotations": {"a": "x".repeat(MAX_ANNOTATION_BYTES)}})),
            ["metadata.annotations"]
        );
        assert_eq!(wrong(json!({"finalizers": ["a b"]})), ["metadata.finalizers"]);
        assert_eq!(
            wrong(json!({"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "b"}]})),
            ["metadata.ownerReferences.uid"]
        );
    }

    #[test]
    fn a_terminating_object_gets_no_new_finalizer() {
        let old = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
        let with = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        assert!(validate_update(&with(json!([])), &old).is_empty());
        let causes = validate_update(&with(json!(["a/b", "c/d"])), &old);
        assert!(
            causes[0]
                .message
                .ends_with("found new finalizers []string{\"c/d\"}"),
            "{causes:?}"
        );
    }

    #[test]
    fn a_finalizer_has_a_domain() {
        let with = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        let standard = with(json!([
            "kubernetes",
            "orphan",
            "foregroundDeletion",
            "example.dev/a"
        ]));
        assert!(validate_finalizer_domains(&standard).is_empty());
        assert!(finalizer_warnings(None, &standard).is_empty());
        let (old, new) = (with(json!(["a"])), with(json!(["a", "c.dev", "b", "b"])));
        let causes = validate_finalizer_domains(&old);
        assert_eq!(causes[0].field, "metadata.finalizers[0]");
        let end = "to avoid accidental conflicts with other finalizer writers";
        let added = finalizer_warnings(Some(&old), &new);
        let expected = [
            format!("metadata.finalizers: \"b\": prefer a domain-qualified finalizer name {end}"),
            format!(
                "metadata.finalizers: \"c.dev\": prefer a domain-qualified finalizer name including a path (/) {end}"
            ),
        ];
        assert_eq!(added, expected);
    }

    #[test]
    fn a_generated_name_keeps_its_base() {
        let name = generate_name("run-");
        assert!(name.starts_with("run-") && name.len() == 9, "{name}");
        assert_eq!(generate_name(&"x".repeat(100)).len(), 63);
        assert_ne!(generate_name("a"), generate_name("a"));
    }
}
