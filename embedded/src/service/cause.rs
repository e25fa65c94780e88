//! What is wrong with one field, worded as kube-apiserver words it.

use serde_json::{Value, json};

use crate::schema::FieldError;

/// One wrong field of an object: what `field.Error` is to kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Machine-readable kind of fault, for example `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// Path of the field.
    pub(crate) field: String,
    /// The text after the path.
    pub(crate) message: String,
}

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Self {
        Self {
            reason: error.kind.reason(),
            message: error.body(),
            field: error.path,
        }
    }
}

impl Cause {
    /// As `status.details.causes` has it.
    pub(super) fn to_value(&self) -> Value {
        let mut value = json!({"reason": self.reason, "message": self.message});
        if !self.field.is_empty() {
            value["field"] = self.field.clone().into();
        }
        value
    }

    /// Whether rules (CEL) are not run beside this fault.
    pub(crate) fn blocks_rules(&self) -> bool {
        matches!(
            self.reason,
            "FieldValueRequired"
                | "FieldValueNotSupported"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
    }

    /// `field: Invalid value: "value": detail`.
    pub(crate) fn invalid(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value:?}: {detail}"),
        }
    }

    /// `field: Unsupported value: "value": supported values: ...`.
    pub(crate) fn not_supported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!(
                "Unsupported value: {value:?}: supported values: {}",
                supported.join(", ")
            ),
        }
    }

    /// `field: Required value: detail`.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueRequired",
            field: field.into(),
            message: format!("Required value: {detail}"),
        }
    }

    /// `field: Forbidden: detail`.
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {detail}"),
        }
    }
}
