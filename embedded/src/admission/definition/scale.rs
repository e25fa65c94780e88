//! Validates the paths of `scale` subresources, as apiextensions-apiserver's `ValidateCustomResourceDefinitionSubresources`.

use serde_json::Value;

use crate::cause::Cause;

/// Validates the versions of a definition.
pub(super) fn validate(versions: &[Value]) -> Vec<Cause> {
    // kube-apiserver reports paths that all versions share at the path that they had in v1beta1.
    let shared = versions
        .first()
        .map(|first| &first["subresources"])
        .filter(|first| versions.iter().all(|version| version["subresources"] == **first));
    if let Some(shared) = shared {
        return validate_scale(&shared["scale"], "spec.subresources.scale");
    }
    let numbered = versions.iter().enumerate();
    numbered
        .flat_map(|(at, version)| {
            let field = format!("spec.versions[{at}].subresources.scale");
            validate_scale(&version["subresources"]["scale"], &field)
        })
        .collect()
}

fn validate_scale(scale: &Value, at: &str) -> Vec<Cause> {
    if !scale.is_object() {
        return Vec::new();
    }
    let text = |field: &str| scale[field].as_str().unwrap_or("");
    let mut causes = Vec::new();
    let rules: [(&str, &[&str], &str); 3] = [
        (
            "specReplicasPath",
            &[".spec."],
            "should be a json path under .spec",
        ),
        (
            "statusReplicasPath",
            &[".status."],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
        ),
    ];
    for (field, parents, detail) in rules {
        let (path, at) = (text(field), format!("{at}.{field}"));
        if path.is_empty() {
            if field != "labelSelectorPath" {
                causes.push(Cause::required(at, ""));
            }
        } else if !path.starts_with('.') {
            causes.push(Cause::invalid(
                at,
                path,
                "must be a simple json path starting with .",
            ));
        } else if !parents.iter().any(|parent| path.starts_with(parent)) {
            causes.push(Cause::invalid(at, path, detail));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_below_spec_and_status() {
        let fields = |versions: Value| -> Vec<String> {
            let causes = validate(versions.as_array().unwrap());
            causes.into_iter().map(|cause| cause.field).collect()
        };
        let version = |scale: Value| json!({"subresources": {"scale": scale}});
        let valid = json!({"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a", "labelSelectorPath": ".spec.s"});
        let none: [&str; 0] = [];
        assert_eq!(fields(json!([version(valid.clone()), {}])), none);
        assert_eq!(fields(json!([{}])), none);
        assert_eq!(
            fields(json!([version(json!({}))])),
            [
                "spec.subresources.scale.specReplicasPath",
                "spec.subresources.scale.statusReplicasPath"
            ]
        );
        for (field, path) in [
            ("specReplicasPath", "spec.a"),
            ("specReplicasPath", ".status.a"),
            ("statusReplicasPath", ".spec.a"),
            ("labelSelectorPath", ".metadata.a"),
        ] {
            let mut scale = valid.clone();
            scale[field] = path.into();
            let versions = json!([version(scale), {}]);
            assert_eq!(
                fields(versions),
                [format!("spec.versions[0].subresources.scale.{field}")]
            );
        }
    }
}
