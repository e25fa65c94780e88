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
