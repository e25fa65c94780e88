//! Widens the closure to the whole artifact where configuration from outside the artifact may read any file of it. Pure.

use sha2::{Digest, Sha256};
use sluice_api::terraform::{FileLocation, TerraformSpec};
use sluice_tf_core::artifact_path::normalize;
use sluice_tf_core::bundle::{Bundle, Location};

use super::closure::{Closure, may_contain_parent};

/// Widens the closure if a path is computed from variables and a value of them may contain `..`.
pub(crate) fn widen_by_values(closure: &mut Closure, bundle: &Bundle) {
    let files = bundle.run_environment.files.iter();
    let mut mapped = files.filter(|file| {
        file.location == Location::Workspace && has_ending(&file.path, &[".tfvars", ".tfvars.json"])
    });
    let values = [bundle.variables.as_bytes(), bundle.workspace.as_bytes()];
    if closure.from_variables
        && (values.into_iter().any(may_contain_parent)
            || mapped.any(|file| may_contain_parent(&file.content.0)))
    {
        widen_to_all(
            closure,
            &bundle.artifact.digest,
            "a path contains variables, and a value may lead to a parent directory",
        );
    }
}

/// Widens the closure if the spec contains configuration that is not scanned: a mapped file, or a backend with expressions, which
/// OpenTofu evaluates.
pub(crate) fn widen(closure: &mut Closure, spec: &TerraformSpec, artifact: &str) {
    let Some(why) = reason(spec) else {
        return;
    };
    widen_to_all(closure, artifact, why);
}

fn widen_to_all(closure: &mut Closure, artifact: &str, why: &str) {
    let mut hash = Sha256::new();
    hash.update(closure.digest);
    hash.update(artifact.as_bytes());
    closure.digest = hash.finalize().into();
    closure.wide.get_or_insert_with(|| why.to_owned());
}

fn reason(spec: &TerraformSpec) -> Option<&'static str> {
    let mapped = spec.file_mappings.iter().any(|mapping| {
        let endings = [".tf", ".tofu", ".tf.json", ".tofu.json", "main.tf.tpl"];
        let is_configuration = has_ending(&mapping.path, &endings);
        mapping.location == FileLocation::Workspace && is_configuration
    });
    if mapped {
        return Some("a mapped file is configuration");
    }
    let backend = spec.backend_config.as_ref();
    let computed = backend.is_some_and(|config| config.custom_configuration.contains(['(', '$']));
    computed.then_some("backendConfig.customConfiguration contains an expression")
}

/// Returns whether the file name of a mapped path has one of these endings.
fn has_ending(path: &str, endings: &[&str]) -> bool {
    let file = normalize(path);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    endings.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_widened(more: Value) -> bool {
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
            from_variables: false,
        };
        widen(&mut closure, &serde_json::from_value(spec).unwrap(), "sha256:1");
        assert_eq!(closure.digest != [7; 32], closure.wide.is_some());
        closure.wide.is_some()
    }

    #[test]
    fn external_configuration_widens_to_the_whole_artifact() {
        let file = |location: &str, path: &str| json!({ "fileMappings": [{ "location": location, "path": path, "secretRef": { "name": "f" } }] });
        assert!(is_widened(file("workspace", "a.tf")) && is_widened(file("workspace", "x/b.tofu.json")));
        assert!(is_widened(file("workspace", "a.tf/.")) && is_widened(file("workspace", "../a.tf/x/..")));
        assert!(!is_widened(file("workspace", "key.pem")) && !is_widened(file("home", "a.tf")));
        let custom = |text: &str| json!({ "backendConfig": { "customConfiguration": text } });
        assert!(is_widened(custom("backend \"local\" { path = file(\"../x\") }")));
        assert!(is_widened(custom(
            "backend \"local\" { path = \"${path.root}/x\" }"
        )));
        assert!(!is_widened(custom("backend \"local\" { path = \"/x\" }")));
        assert!(!is_widened(json!({})));
    }

    #[test]
    fn a_value_that_leads_up_widens_computed_paths_to_the_whole_artifact() {
        let is_widened = |from_variables: bool, more: Value| {
            let mut bundle = json!({ "version": 1, "stack": { "namespace": "team", "name": "net", "uid": "u" },
                "artifact": { "url": "http://x", "digest": "sha256:1", "revision": "main@sha1:1" }, "path": "infra",
                "workspace": "default", "variables": "{}", "options": { "planLock": true, "upgradeOnInit": true },
                "inputsDigest": "x", "key": "ab".repeat(32) });
            bundle
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let bundle = Bundle::decode(bundle.to_string().as_bytes()).unwrap();
            let mut closure = Closure {
                digest: [7; 32],
                files: 1,
                wide: None,
                reads: Vec::new(),
                from_variables,
            };
            widen_by_values(&mut closure, &bundle);
            assert_eq!(closure.digest != [7; 32], closure.wide.is_some());
            closure.wide.is_some()
        };
        let file = |location: &str, path: &str, text: &str| {
            let content = String::from(sluice_tf_core::bundle::Content(text.into()));
            json!({ "surroundings": { "files": [{ "location": location, "path": path, "content": content }] } })
        };
        let up = json!({ "variables": "{ \"x\": \"../y\" }" });
        assert!(is_widened(true, up.clone()) && !is_widened(false, up));
        assert!(is_widened(true, json!({ "workspace": ".." })) && !is_widened(true, json!({})));
        assert!(is_widened(true, file("workspace", "a.auto.tfvars", "x = \"..\"")));
        assert!(!is_widened(true, file("workspace", "a.auto.tfvars", "x = \"y\"")));
        assert!(!is_widened(true, file("home", "a.auto.tfvars", "..")));
        assert!(!is_widened(true, file("workspace", "key.pem", "..")));
    }
}
