//! Fields with an unsupported value. They stall the object; none is ignored.

use sluice_api::terraform::TerraformSpec;
use sluice_tf_core::cli::installed::VersionConstraint;

use crate::decide::UnsupportedField;

/// The default of `serviceAccountName` in the definition.
const DEFAULT_ACCOUNT: &str = "tf-runner";

/// Returns the first field with an unsupported value. The definition rejects such values; an older definition does not.
pub(crate) fn unsupported_field(spec: &TerraformSpec) -> Option<UnsupportedField> {
    let tool = spec.tool.as_ref()?;
    let error = tool.version.parse::<VersionConstraint>().err()?;
    Some(UnsupportedField {
        reason: "InvalidToolVersion",
        text: format!("spec.tool.version: {error}"),
    })
}

/// Returns an error for a ServiceAccount other than the default. It would limit the rights of the runs, but they are processes with
/// the rights of the controller.
pub(crate) fn unsupported_account(spec: &TerraformSpec) -> Option<UnsupportedField> {
    let account = spec.service_account_name.as_str();
    (!account.is_empty() && account != DEFAULT_ACCOUNT).then(|| UnsupportedField {
        reason: "ServiceAccountNotUsed",
        text: format!(
            "spec.serviceAccountName: {account:?} is not used: with --executor=process, runs are processes with the rights of \
             tf-controller's own ServiceAccount. Remove the field, or start tf-controller with --executor=job, or with \
             --ignore-service-account-name to accept these rights"
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(fields: &Value) -> TerraformSpec {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
        let fields = fields.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn an_invalid_version_is_named() {
        let of = |tool: &Value| unsupported_field(&spec(&json!({ "tool": tool })));
        assert_eq!(of(&Value::Null), None);
        assert_eq!(of(&json!({ "name": "tofu" })), None);
        assert_eq!(of(&json!({ "name": "terraform", "version": "~> 1.8" })), None);
        let text = of(&json!({ "name": "tofu", "version": "../../bin" }))
            .unwrap()
            .text;
        assert!(
            text.starts_with("spec.tool.version: \"../../bin\" is not a version"),
            "{text}"
        );
    }

    #[test]
    fn only_an_explicitly_set_service_account_is_unsupported() {
        assert_eq!(unsupported_account(&spec(&json!({}))), None);
        for default in ["tf-runner", ""] {
            assert_eq!(
                unsupported_account(&spec(&json!({ "serviceAccountName": default }))),
                None
            );
        }
        let unsupported = unsupported_account(&spec(&json!({ "serviceAccountName": "deployer" }))).unwrap();
        assert!(
            unsupported
                .text
                .starts_with("spec.serviceAccountName: \"deployer\" is not used: with --executor=process")
        );
    }
}
