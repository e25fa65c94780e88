//! What is wrong with one field, in the words in which kube-apiserver says it in a 422 answer.

use std::fmt;

use serde_json::Value;

use super::text;

/// The path that kube-apiserver prints where an error concerns the whole object.
pub const WHOLE_OBJECT: &str = "<nil>";

/// Why a field was refused. The API server's error types, one to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The value refers to something that does not exist.
    NotFound,
    /// The field is missing.
    Required,
    /// The value must be unique and is not.
    Duplicate,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value has another JSON type than the schema says.
    TypeInvalid,
    /// The value is none of an enumeration.
    NotSupported,
    /// The value is well-formed and not allowed here.
    Forbidden,
    /// The string is too long; the value is left out of the text.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
    /// The server could not check the field.
    Internal,
}

impl ErrorKind {
    /// The word that opens the error's text.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }

    /// The machine-readable reason in `status.details.causes[].reason`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::Internal
        )
    }

    /// Whether rules (CEL) are skipped once an error of this kind was found: they could not be evaluated safely.
    #[must_use]
    pub fn blocks_rules(self) -> bool {
        matches!(
            self,
            Self::NotSupported | Self::Required | Self::TooLong | Self::TooMany | Self::TypeInvalid
        )
    }
}

/// One refused field. `Display` prints `path: text`, as the API server does.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Where, e.g. `spec.vars[0].name`; [`WHOLE_OBJECT`] for the object itself.
    pub path: String,
    /// Why.
    pub kind: ErrorKind,
    /// The refused value, shown by the kinds that show one.
    pub bad_value: Value,
    /// What is expected; may be empty.
    pub detail: String,
}

impl FieldError {
    /// An error of any kind.
    pub fn new(
        path: impl Into<String>,
        kind: ErrorKind,
        bad_value: Value,
        detail: impl Into<String>,
    ) -> Self {
        let path = path.into();
        let path = if path.is_empty() {
            WHOLE_OBJECT.to_owned()
        } else {
            path
        };
        Self {
            path,
            kind,
            bad_value,
            detail: detail.into(),
        }
    }

    /// A malformed value.
    pub fn invalid(path: impl Into<String>, bad_value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Invalid, bad_value.into(), detail)
    }

    /// A missing value.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Required, Value::from(""), detail)
    }

    /// A value that may not be set or changed.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Forbidden, Value::from(""), detail)
    }

    /// A second appearance of a value that must be unique.
    pub fn duplicate(path: impl Into<String>, bad_value: Value) -> Self {
        Self::new(path, ErrorKind::Duplicate, bad_value, "")
    }

    /// A value outside an enumeration.
    pub fn not_supported(path: impl Into<String>, bad_value: Value, supported: &[String]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| text::quote(value)).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(path, ErrorKind::NotSupported, bad_value, detail)
    }

    /// A string longer than `limit`. The API server says bytes even where it counts characters.
    pub fn too_long(path: impl Into<String>, limit: i64) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        Self::new(
            path,
            ErrorKind::TooLong,
            Value::Null,
            format!("may not be more than {limit} {unit}"),
        )
    }

    /// A list or map with more than `limit` entries.
    pub fn too_many(path: impl Into<String>, actual: usize, limit: i64) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        Self::new(
            path,
            ErrorKind::TooMany,
            Value::from(actual),
            format!("must have at most {limit} {unit}"),
        )
    }

    /// The text without the path: what stands in `status.details.causes[].message`.
    #[must_use]
    pub fn body(&self) -> String {
        let title = self.kind.title();
        let mut body = if self.kind.shows_value() {
            format!("{title}: {}", shown(&self.bad_value))
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

fn shown(value: &Value) -> String {
    match value {
        Value::String(string) => text::quote(string),
        Value::Number(number) => text::number(number),
        other => text::json(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_those_of_the_api_server() {
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
                FieldError::invalid("", Value::Null, "why"),
                "<nil>: Invalid value: null: why",
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
            (
                FieldError::forbidden("data", "field is immutable when `immutable` is set"),
                "data: Forbidden: field is immutable when `immutable` is set",
            ),
        ];
        for (error, expected) in table {
            assert_eq!(error.to_string(), expected);
        }
    }
}
