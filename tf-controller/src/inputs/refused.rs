//! Fields with a value that cannot be carried out. Such a field is never passed over: it stalls the object by name.

use sluice_api::terraform::TerraformSpec;
use sluice_tf_runner::cli::installed::Wanted;

/// The first such field of a spec and why, or nothing. The definition refuses most of them; an older one does not.
#[must_use]
pub fn refused(spec: &TerraformSpec) -> Option<String> {
    let tool = spec.tool.as_ref()?;
    let error = tool.version.parse::<Wanted>().err()?;
    Some(format!("spec.tool.version: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(tool: &Value) -> Option<String> {
        let spec =
            json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" }, "tool": tool });
        refused(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_version_that_is_none_is_named() {
        assert_eq!(of(&Value::Null), None);
        assert_eq!(of(&json!({ "name": "tofu" })), None);
        assert_eq!(of(&json!({ "name": "terraform", "version": "~> 1.8" })), None);
        let text = of(&json!({ "name": "tofu", "version": "../../bin" })).unwrap();
        assert!(
            text.starts_with("spec.tool.version: \"../../bin\" is no version"),
            "{text}"
        );
    }
}
