//! Configuration that does not come from the artifact may read any file of it (pure).

use super::closure::Closure;
use sha2::{Digest, Sha256};
use sluice_api::terraform::{FileLocation, TerraformSpec};

/// Makes the whole artifact count where the spec itself brings configuration whose expressions nobody reads: a mapped
/// file, or a backend with expressions, which OpenTofu evaluates.
pub fn widen(closure: &mut Closure, spec: &TerraformSpec, artifact: &str) {
    let Some(why) = reason(spec) else {
        return;
    };
    let mut hash = Sha256::new();
    hash.update(closure.digest);
    hash.update(artifact.as_bytes());
    closure.digest = hash.finalize().into();
    closure.wide.get_or_insert_with(|| why.to_owned());
}

fn reason(spec: &TerraformSpec) -> Option<&'static str> {
    let mapped = spec.file_mappings.iter().any(|mapping| {
        let is_configuration = [".tf", ".tofu", ".tf.json", ".tofu.json", "main.tf.tpl"]
            .iter()
            .any(|ending| mapping.path.ends_with(ending));
        mapping.location == FileLocation::Workspace && is_configuration
    });
    if mapped {
        return Some("a mapped file is configuration");
    }
    let backend = spec.backend_config.as_ref();
    let computed = backend.is_some_and(|config| config.custom_configuration.contains(['(', '$']));
    computed.then_some("backendConfig.customConfiguration holds an expression")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn widened(more: Value) -> bool {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
        let Value::Object(more) = more else {
            panic!("an object")
        };
        spec.as_object_mut().unwrap().extend(more);
        let mut closure = Closure {
            digest: [7; 32],
            files: 1,
            wide: None,
            reads: Vec::new(),
        };
        widen(&mut closure, &serde_json::from_value(spec).unwrap(), "sha256:1");
        assert_eq!(closure.digest != [7; 32], closure.wide.is_some());
        closure.wide.is_some()
    }

    #[test]
    fn configuration_from_outside_makes_the_whole_artifact_count() {
        let file = |location: &str, path: &str| json!({ "fileMappings": [{ "location": location, "path": path, "secretRef": { "name": "f" } }] });
        assert!(widened(file("workspace", "a.tf")) && widened(file("workspace", "x/b.tofu.json")));
        assert!(!widened(file("workspace", "key.pem")) && !widened(file("home", "a.tf")));
        let custom = |text: &str| json!({ "backendConfig": { "customConfiguration": text } });
        assert!(widened(custom("backend \"local\" { path = file(\"../x\") }")));
        assert!(widened(custom("backend \"local\" { path = \"${path.root}/x\" }")));
        assert!(!widened(custom("backend \"local\" { path = \"/x\" }")));
        assert!(!widened(json!({})));
    }
}
