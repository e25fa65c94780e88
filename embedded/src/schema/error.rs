//! Errors of single fields, with the messages of kube-apiserver's 422 responses.

use std::fmt;

use serde_json::Value;

use super::go_format;

/// The path that kube-apiserver prints for errors of the whole object.
pub(crate) const WHOLE_OBJECT: &str = "<nil>";

/// The error of a schema that cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    /// A keyword has a value of the wrong type.
    #[error("schema{path}: {keyword} must be {expected}")]
    Keyword {
        /// Path in the schema.
        path: String,
        /// Keyword; empty for the schema itself.
        keyword: String,
        /// Expected value.
        expected: &'static str,
    },
    /// A pattern is not a regular expression.
    #[error("schema{path}: pattern {pattern:?}: {message}")]
    Pattern {
        /// Path in the schema.
        path: String,
        /// Pattern.
        pattern: String,
        /// Error of the compiler.
        message: String,
    },
    /// A rule does not parse or calls an unknown function.
    #[error("schema{path}: rule {rule:?}: {message}")]
    Rule {
        /// Path in the schema.
        path: String,
        /// Rule.
        rule: String,
        /// Error of the compiler.
        message: String,
    },
    /// The schema is nested too deeply.
    #[error("schema is nested deeper than {limit} levels")]
    TooDeep {
        /// Limit.
        limit: usize,
    },
}

/// The type of a field error: apimachinery's `field.ErrorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ErrorKind {
    /// The field is missing.
    Required,
    /// The value must be unique.
    Duplicate,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value does not have the JSON type of the schema.
    TypeInvalid,
    /// The value is not in the enumeration.
    NotSupported,
    /// The value is valid but not allowed here.
    Forbidden,
    /// The string is too long; the message omits the value.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
}

impl ErrorKind {
    /// Returns the beginning of the message.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    /// Returns the machine-readable reason in `status.details.causes[].reason`.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong)
    }

    /// Whether an error of this kind prevents the evaluation of CEL rules.
    pub(crate) fn blocks_rules(self) -> bool {
        matches!(
            self,
            Self::NotSupported | Self::Required | Self::TooLong | Self::TooMany | Self::TypeInvalid
        )
    }
}

/// An invalid field. `Display` prints `path: message`, like kube-apiserver.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// Path, e.g. `spec.vars[0].name`; [`WHOLE_OBJECT`] for the object itself.
    pub(crate) path: String,
    /// Type of the error.
    pub(crate) kind: ErrorKind,
    /// Invalid value; not every kind shows it.
    pub(crate) bad_value: Value,
    /// Expectation; may be empty.
    pub(crate) detail: String,
}

impl FieldError {
    /// Creates an error of any kind.
    pub(crate) fn new(
        path: impl Into<String>,
        kind: ErrorKind,
        bad_value: Value,
        detail: impl Into<String>,
    ) -> Self {
        let mut path = path.into();
        if path.is_empty() {
            WHOLE_OBJECT.clone_into(&mut path);
        }
        Self {
            path,
            kind,
            bad_value,
            detail: detail.into(),
        }
    }

    /// Creates the error of a malformed value.
    pub(crate) fn invalid(
        path: impl Into<String>,
        bad_value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(path, ErrorKind::Invalid, bad_value.into(), detail)
    }

    /// Creates the error of a missing value.
    pub(crate) fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Required, Value::from(""), detail)
    }

    /// Creates the error of a repeated value.
    pub(crate) fn duplicate(path: impl Into<String>, bad_value: Value) -> Self {
        Self::new(path, ErrorKind::Duplicate, bad_value, "")
    }

    /// Creates the error of a value outside an enumeration.
    pub(crate) fn not_supported(path: impl Into<String>, bad_value: Value, supported: &[String]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| go_format::quote(value)).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(path, ErrorKind::NotSupported, bad_value, detail)
    }

    /// Creates the error of a string longer than `limit`. Like kube-apiserver it says bytes, even where characters are counted.
    pub(crate) fn too_long(path: impl Into<String>, limit: i64) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {limit} {unit}");
        Self::new(path, ErrorKind::TooLong, Value::Null, detail)
    }

    /// Creates the error of a list or map with more than `limit` entries.
    pub(crate) fn too_many(path: impl Into<String>, actual: usize, limit: i64) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        let detail = format!("must have at most {limit} {unit}");
        Self::new(path, ErrorKind::TooMany, actual.into(), detail)
    }

    /// Returns the message without the path, as in `status.details.causes[].message`.
    pub(crate) fn body(&self) -> String {
        let title = self.kind.title();
        let mut body = if self.kind.shows_value() {
            format!("{title}: {}", format_value(&self.bad_value))
        } else {
            title.to_owned()
        };
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

fn format_value(value: &Value) -> String {
    match value {
        Value::String(string) => go_format::quote(string),
        Value::Number(number) => go_format::number(number),
        other => go_format::json(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_match_kube_apiserver() {
        let table = [
            (
                FieldError::required("spec.interval", ""),
                "spec.interval: Required value",
            ),
            (
                FieldError::invalid("spec.url", "x", "must be y"),
                r#"spec.url: Invalid value: "x": must be y"#,
            ),
            (
                FieldError::invalid("spec.n", 3, "too big"),
                "spec.n: Invalid value: 3: too big",
            ),
            (
                FieldError::invalid("", Value::Null, "reason"),
                "<nil>: Invalid value: null: reason",
            ),
            (
                FieldError::not_supported("spec.k", json!("z"), &["a".into(), "b".into()]),
                r#"spec.k: Unsupported value: "z": supported values: "a", "b""#,
            ),
            (
                FieldError::too_long("spec.s", 5),
                "spec.s: Too long: may not be more than 5 bytes",
            ),
            (
                FieldError::too_many("spec.l", 3, 1),
                "spec.l: Too many: 3: must have at most 1 item",
            ),
            (
                FieldError::duplicate("spec.l[1]", json!({"b": 1, "a": "<"})),
                r#"spec.l[1]: Duplicate value: {"a":"\u003c","b":1}"#,
            ),
        ];
        for (error, expected) in table {
            assert_eq!(error.to_string(), expected);
        }
    }
}
