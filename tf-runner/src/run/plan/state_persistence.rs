//! Whether a state outlives its run. One that the CLI keeps in a file below the working directory does not: each run empties
//! that directory. It is right for modules without resources, and has to be said before anybody approves such a plan.

use std::path::Path;

use serde_json::Value;

use crate::run::workdir;

/// Where the CLI notes the backend that `init` configured.
const NOTE: &str = ".terraform/terraform.tfstate";
/// Largest note that is read.
const LIMIT: u64 = 16 * 1024 * 1024;
/// What the reader of such a plan has to know.
pub(crate) const CAUTION: &str = "Note: the state of this stack lies in its working directory and is lost with it. Give the module \
    a backend, or the stack a backendConfig.";

/// Whether the state of this module, once initialized, lasts.
pub(crate) fn lasts(module: &Path, workspace: &str) -> bool {
    let note = workdir::read_limited(&module.join(NOTE), LIMIT).unwrap_or_default();
    let note: Value = serde_json::from_slice(&note).unwrap_or_default();
    let backend = &note["backend"];
    match backend["type"].as_str() {
        None => false, // none was configured
        Some("local") => {
            let member = if workspace == "default" {
                "path"
            } else {
                "workspace_dir"
            };
            let place = backend["config"][member].as_str().unwrap_or_default();
            Path::new(place).is_absolute()
        }
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_below_the_working_directory_does_not_last() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!lasts(dir.path(), "default"), "no backend");
        std::fs::create_dir(dir.path().join(".terraform")).unwrap();
        let says = |kind: &str, config: Value, workspace: &str| {
            let note = json!({ "version": 3, "backend": { "type": kind, "config": config } });
            std::fs::write(dir.path().join(NOTE), note.to_string()).unwrap();
            lasts(dir.path(), workspace)
        };
        let absolute = json!({ "path": "/states/a", "workspace_dir": null });
        assert!(says("local", absolute.clone(), "default") && !says("local", absolute, "blue"));
        assert!(says("local", json!({ "workspace_dir": "/states" }), "blue"));
        assert!(!says("local", json!({ "path": "a.tfstate" }), "default"));
        assert!(says("kubernetes", json!({}), "default") && says("cloud", json!({}), "default"));
        std::fs::write(dir.path().join(NOTE), "no json").unwrap();
        assert!(!lasts(dir.path(), "default"));
    }
}
