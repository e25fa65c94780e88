//! Fields with a value that cannot be carried out. Such a field is never passed over: it stalls the object by name.

use crate::decide::UnsupportedField;
use sluice_api::terraform::TerraformSpec;
use sluice_tf_core::cli::installed::Wanted;

/// The account that every object names whose author names none: the default of the definition.
const USUAL_ACCOUNT: &str = "tf-runner";

/// The first such field of a spec and why, or nothing. The definition refuses most of them; an older one does not.
#[must_use]
pub fn refused(spec: &TerraformSpec) -> Option<UnsupportedField> {
    let tool = spec.tool.as_ref()?;
    let error = tool.version.parse::<Wanted>().err()?;
    Some(UnsupportedField {
        reason: "InvalidToolVersion",
        text: format!("spec.tool.version: {error}"),
    })
}

/// An account that somebody chose for the runs of a stack, where runs are processes in the controller's pod and have its rights.
/// Whoever chose one chose what the stack may do, so it is not passed over.
#[must_use]
pub fn foreign_account(spec: &TerraformSpec) -> Option<UnsupportedField> {
    let account = spec.service_account_name.as_str();
    (!account.is_empty() && account != USUAL_ACCOUNT).then(|| UnsupportedField {
        reason: "ServiceAccountNotUsed",
        text: format!(
            "spec.serviceAccountName: {account:?} is not used: runs of this version are processes with the rights of \
             tf-controller's own ServiceAccount. Take the field out, or start tf-controller with --ignore-service-account-name, \
             where that is accepted"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(fields: &Value) -> TerraformSpec {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
        let fields = fields.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_version_that_is_none_is_named() {
        let of = |tool: &Value| refused(&spec(&json!({ "tool": tool })));
        assert_eq!(of(&Value::Null), None);
        assert_eq!(of(&json!({ "name": "tofu" })), None);
        assert_eq!(of(&json!({ "name": "terraform", "version": "~> 1.8" })), None);
        let text = of(&json!({ "name": "tofu", "version": "../../bin" }))
            .unwrap()
            .text;
        assert!(
            text.starts_with("spec.tool.version: \"../../bin\" is no version"),
            "{text}"
        );
    }

    #[test]
    fn only_an_account_that_somebody_chose_is_foreign() {
        assert_eq!(foreign_account(&spec(&json!({}))), None);
        for usual in ["tf-runner", ""] {
            assert_eq!(
                foreign_account(&spec(&json!({ "serviceAccountName": usual }))),
                None
            );
        }
        let refused = foreign_account(&spec(&json!({ "serviceAccountName": "deployer" }))).unwrap();
        assert!(
            refused
                .text
                .starts_with("spec.serviceAccountName: \"deployer\" is not used")
        );
    }
}
