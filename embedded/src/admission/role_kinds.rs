//! Defaults and validation of roles and bindings: `pkg/apis/rbac/v1/defaults.go` and `pkg/apis/rbac/validation` of Kubernetes.

use serde_json::{Map, Value, json};

use crate::cause::Cause;
use crate::rbac::GROUP;
use crate::resource::{Resource, Strategy};
use crate::{meta, names};

/// Applies the defaults of a role or binding.
pub(super) fn default(strategy: Strategy, fields: &mut Map<String, Value>) {
    if strategy == Strategy::Role {
        // Go's type writes this field also if it is empty.
        fields.entry("rules").or_insert(Value::Null);
        for rule in items_mut(fields.get_mut("rules")) {
            remove_empty(
                rule,
                &["apiGroups", "resources", "resourceNames", "nonResourceURLs"],
            );
        }
        return;
    }
    let role = fields.entry("roleRef").or_insert_with(|| json!({}));
    if let Some(role) = role.as_object_mut()
        && role.get("apiGroup").is_none_or(is_empty)
    {
        role.insert("apiGroup".to_owned(), GROUP.into());
    }
    if fields.get("subjects").is_some_and(is_empty) {
        fields.remove("subjects");
    }
    for subject in items_mut(fields.get_mut("subjects")) {
        remove_empty(subject, &["apiGroup", "namespace"]);
        if matches!(
            subject.get("kind").and_then(Value::as_str),
            Some("User" | "Group")
        ) {
            subject.entry("apiGroup").or_insert_with(|| GROUP.into());
        }
    }
}

/// Returns the objects in a list.
fn items_mut(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let items = list.and_then(Value::as_array_mut).into_iter().flatten();
    items.filter_map(Value::as_object_mut)
}

fn remove_empty(fields: &mut Map<String, Value>, names: &[&str]) {
    for name in names {
        if fields.get(*name).is_some_and(is_empty) {
            fields.remove(*name);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Validates the name of a role or binding: a segment of a path, such as `system:basic-user`.
pub(super) fn validate_name(name: &str) -> Vec<Cause> {
    path_segment_errors(name)
        .into_iter()
        .map(|detail| Cause::invalid("metadata.name", name, &detail))
        .collect()
}

/// From `ValidatePathSegmentName` of apimachinery.
fn path_segment_errors(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let contained = ["/", "%"].into_iter().filter(|illegal| name.contains(illegal));
    contained
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

/// Validates a role.
pub(super) fn validate_role(resource: &Resource, role: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let rules = role["rules"].as_array().into_iter().flatten();
    for (number, rule) in rules.enumerate() {
        causes.extend(validate_rule(resource, rule, &format!("rules[{number}]")));
    }
    let aggregation = &role["aggregationRule"];
    if aggregation.is_object() {
        let at = "aggregationRule.clusterRoleSelectors";
        let selectors = aggregation["clusterRoleSelectors"].as_array();
        if selectors.is_none_or(Vec::is_empty) {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            causes.push(Cause::required(at, detail));
        }
        for (number, selector) in selectors.into_iter().flatten().enumerate() {
            causes.extend(validate_selector(selector, &format!("{at}[{number}]")));
        }
    }
    causes
}

fn validate_rule(resource: &Resource, rule: &Value, at: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let is_missing = |field: &str| meta::strings(&rule[field]).is_empty();
    if is_missing("verbs") {
        let detail = "verbs must contain at least one value";
        causes.push(Cause::required(format!("{at}.verbs"), detail));
    }
    if is_missing("nonResourceURLs") {
        for (field, detail) in [
            ("apiGroups", "resource rules must supply at least one api group"),
            ("resources", "resource rules must supply at least one resource"),
        ] {
            if is_missing(field) {
                causes.push(Cause::required(format!("{at}.{field}"), detail));
            }
        }
        return causes;
    }
    let invalid =
        |detail: &str| Cause::invalid_json(format!("{at}.nonResourceURLs"), &rule["nonResourceURLs"], detail);
    if resource.namespaced {
        causes.push(invalid("namespaced rules cannot apply to non-resource URLs"));
    }
    if ["apiGroups", "resources", "resourceNames"]
        .into_iter()
        .any(|field| !is_missing(field))
    {
        causes.push(invalid(
            "rules cannot apply to both regular resources and non-resource URLs",
        ));
    }
    causes
}

/// Validates the expressions of a meta/v1 `LabelSelector`.
fn validate_selector(selector: &Value, at: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    for (number, expression) in expressions.enumerate() {
        let at = format!("{at}.matchExpressions[{number}]");
        let values = meta::strings(&expression["values"]);
        match expression["operator"].as_str().unwrap_or("") {
            "In" | "NotIn" if values.is_empty() => causes.push(Cause::required(
                format!("{at}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => causes.push(Cause::forbidden(
                format!("{at}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => causes.push(Cause::invalid(
                format!("{at}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
    }
    causes
}

/// Validates a binding. Its role cannot change: its subjects would get another one by an edit.
pub(super) fn validate_binding(resource: &Resource, binding: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = validate_role_ref(resource, &binding["roleRef"]);
    let subjects = binding["subjects"].as_array().into_iter().flatten();
    for (number, subject) in subjects.enumerate() {
        causes.extend(validate_subject(
            resource,
            subject,
            &format!("subjects[{number}]"),
        ));
    }
    if old.is_some_and(|old| old["roleRef"] != binding["roleRef"]) {
        let role = &binding["roleRef"];
        // The Go type has no JSON names.
        let value = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        causes.push(Cause::invalid_json("roleRef", value, "cannot change roleRef"));
    }
    causes
}

fn validate_role_ref(resource: &Resource, role: &Value) -> Vec<Cause> {
    let text = |field: &str| role[field].as_str().unwrap_or("");
    let mut causes = Vec::new();
    if text("apiGroup") != GROUP {
        causes.push(Cause::not_supported(
            "roleRef.apiGroup",
            text("apiGroup"),
            &[GROUP],
        ));
    }
    let kinds: &[&str] = if resource.namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&text("kind")) {
        causes.push(Cause::not_supported("roleRef.kind", text("kind"), kinds));
    }
    let name = text("name");
    if name.is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    let errors = path_segment_errors(name).into_iter();
    causes.extend(errors.map(|detail| Cause::invalid("roleRef.name", name, &detail)));
    causes
}

fn validate_subject(resource: &Resource, subject: &Value, at: &str) -> Vec<Cause> {
    let text = |field: &str| subject[field].as_str().unwrap_or("");
    let mut causes = Vec::new();
    let name = text("name");
    if name.is_empty() {
        causes.push(Cause::required(format!("{at}.name"), ""));
    }
    match text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() && (name.len() > 253 || !names::is_subdomain(name)) {
                causes.push(Cause::invalid(format!("{at}.name"), name, names::SUBDOMAIN));
            }
            if !text("apiGroup").is_empty() {
                causes.push(Cause::not_supported(
                    format!("{at}.apiGroup"),
                    text("apiGroup"),
                    &[""],
                ));
            }
            if !resource.namespaced && text("namespace").is_empty() {
                causes.push(Cause::required(format!("{at}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if text("apiGroup") != GROUP {
                causes.push(Cause::not_supported(
                    format!("{at}.apiGroup"),
                    text("apiGroup"),
                    &[GROUP],
                ));
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            causes.push(Cause::not_supported(format!("{at}.kind"), other, &kinds));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{normalize, prepare_create};
    use crate::resource::Registry;

    /// Returns the object as it is stored, or the message that refuses it.
    fn create(kind: &str, object: &Value) -> Result<Value, String> {
        let registry = Registry::builtin();
        let resource = registry.by_kind(GROUP, kind).unwrap();
        let mut object = object.clone();
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = "system:a".into();
        normalize(resource, &mut object)?;
        prepare_create(resource, object).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn defaults_are_those_of_kube_apiserver() {
        let subjects = json!([
            {"kind": "User", "name": "jane", "apiGroup": "", "namespace": ""},
            {"kind": "ServiceAccount", "name": "a", "namespace": "b", "apiGroup": ""},
        ]);
        let binding = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": subjects});
        let stored = create("RoleBinding", &binding).unwrap();
        assert_eq!(
            stored["roleRef"],
            json!({"apiGroup": GROUP, "kind": "Role", "name": "r"})
        );
        assert_eq!(
            stored["subjects"],
            json!([
                {"kind": "User", "name": "jane", "apiGroup": GROUP},
                {"kind": "ServiceAccount", "name": "a", "namespace": "b"},
            ])
        );
        let role = create("Role", &json!({})).unwrap();
        assert_eq!(role.get("rules"), Some(&Value::Null));
    }

    #[test]
    fn invalid_roles_and_bindings_are_refused() {
        let user = |name: &str| json!([{"kind": "User", "name": name}]);
        let to = |kind: &str| json!({"kind": kind, "name": "r"});
        for (kind, object, expected) in [
            (
                "Role",
                json!({"rules": [{"verbs": ["get"]}]}),
                "rules[0].apiGroups: Required value",
            ),
            (
                "Role",
                json!({"rules": [{"apiGroups": [""], "resources": ["a"], "verbs": []}]}),
                "rules[0].verbs: Required value: verbs must contain at least one value",
            ),
            (
                "Role",
                json!({"rules": [{"nonResourceURLs": ["/a"], "verbs": ["get"]}]}),
                "namespaced rules cannot apply to non-resource URLs",
            ),
            (
                "ClusterRole",
                json!({"rules": [{"nonResourceURLs": ["/a"], "resources": ["b"], "verbs": ["get"]}]}),
                "rules cannot apply to both regular resources and non-resource URLs",
            ),
            (
                "ClusterRole",
                json!({"aggregationRule": {}}),
                "at least one clusterRoleSelector required",
            ),
            (
                "RoleBinding",
                json!({"subjects": user("a")}),
                "roleRef.kind: Unsupported value",
            ),
            (
                "ClusterRoleBinding",
                json!({"roleRef": to("Role")}),
                "roleRef.kind: Unsupported value",
            ),
            (
                "RoleBinding",
                json!({"roleRef": to("Role"), "subjects": user("")}),
                "subjects[0].name: Required value",
            ),
            (
                "RoleBinding",
                json!({"roleRef": to("Role"), "subjects": [{"kind": "Robot", "name": "a"}]}),
                "subjects[0].kind: Unsupported value",
            ),
            (
                "ClusterRoleBinding",
                json!({"roleRef": to("ClusterRole"), "subjects": [{"kind": "ServiceAccount", "name": "a"}]}),
                "subjects[0].namespace: Required value",
            ),
        ] {
            let refusal = create(kind, &object).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
        let cluster = json!({"rules": [{"nonResourceURLs": ["/a"], "verbs": ["get"]}]});
        assert!(create("ClusterRole", &cluster).is_ok());
    }

    #[test]
    fn names_are_segments_of_a_path() {
        assert!(validate_name("system:basic-user").is_empty());
        for name in ["..", "a/b", "a%b"] {
            assert_eq!(validate_name(name).len(), 1, "{name}");
        }
    }
}
