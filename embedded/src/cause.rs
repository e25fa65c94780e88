//! Causes of an invalid object, with kube-apiserver's messages.

use std::fmt::Display;

use serde_json::{Value, json};

use crate::schema::FieldError;

/// An invalid field of an object: a meta/v1 `StatusCause`, from apimachinery's `field.Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Machine-readable reason, for example `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// Path of the field.
    pub(crate) field: String,
    /// Message without the path.
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
    /// Returns the entry of `status.details.causes`.
    pub(crate) fn to_value(&self) -> Value {
        let mut value = json!({"reason": self.reason, "message": self.message});
        if !self.field.is_empty() {
            value["field"] = self.field.clone().into();
        }
        value
    }

    /// Whether this error prevents the evaluation of CEL rules.
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

    /// Creates `field: Invalid value: "value": detail`.
    pub(crate) fn invalid(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self::invalid_json(field, format_args!("{value:?}"), detail)
    }

    /// Creates `field: Invalid value: value: detail`, with a value that is not a string.
    pub(crate) fn invalid_json(field: impl Into<String>, value: impl Display, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value}: {detail}"),
        }
    }

    /// Creates `field: Too long: may not be more than ... bytes`.
    pub(crate) fn too_long(field: &str, limit: usize) -> Self {
        Self {
            reason: "FieldValueTooLong",
            field: field.into(),
            message: format!("Too long: may not be more than {limit} bytes"),
        }
    }

    /// Creates `field: Unsupported value: "value": supported values: ...`.
    pub(crate) fn not_supported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let list = quoted.join(", ");
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!("Unsupported value: {value:?}: supported values: {list}"),
        }
    }

    /// Creates `field: Required value: detail`.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueRequired",
            field: field.into(),
            message: if detail.is_empty() {
                "Required value".to_owned()
            } else {
                format!("Required value: {detail}")
            },
        }
    }

    /// Creates `field: Forbidden: detail`.
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {detail}"),
        }
    }
}
