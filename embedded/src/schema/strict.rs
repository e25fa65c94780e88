//! `fieldValidation`: what a request wants to hear about fields that the server does not know.

/// The query parameter `fieldValidation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown fields are dropped silently.
    Ignore,
    /// Unknown fields are dropped, each with a `Warning` header. The default.
    #[default]
    Warn,
    /// Unknown fields are refused with 400.
    Strict,
}

/// A `fieldValidation` that is none of `Ignore`, `Warn`, `Strict`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fieldValidation: Unsupported value: {given:?}: supported values: \"Ignore\", \"Strict\", \"Warn\"")]
pub struct UnknownFieldValidation {
    /// What the request said.
    pub given: String,
}

impl FieldValidation {
    /// Reads the query parameter; absent and empty mean [`FieldValidation::Warn`].
    ///
    /// # Errors
    /// The value is none of the three.
    pub fn parse(given: Option<&str>) -> Result<Self, UnknownFieldValidation> {
        match given {
            None | Some("" | "Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(UnknownFieldValidation {
                given: other.to_owned(),
            }),
        }
    }
}

fn unknown(path: &str) -> String {
    format!("unknown field \"{path}\"")
}

/// Texts of the `Warning` headers (code 299) for dropped fields.
#[must_use]
pub fn warnings(dropped: &[String]) -> Vec<String> {
    dropped.iter().map(|path| unknown(path)).collect()
}

/// The reason for which a strict request is refused, `None` if nothing was dropped. The 400 answer's message is
/// [`bad_request_message`] of it.
#[must_use]
pub fn strict_error(dropped: &[String]) -> Option<String> {
    let texts = warnings(dropped);
    (!texts.is_empty()).then(|| format!("strict decoding error: {}", texts.join(", ")))
}

/// The message of the 400 answer, as kube-apiserver words what it could not decode.
#[must_use]
pub fn bad_request_message(kind: &str, version: &str, reason: &str) -> String {
    format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_fields_are_named() {
        let dropped = vec!["spec.foo".to_owned(), "spec.vars[0].x".to_owned()];
        assert_eq!(warnings(&dropped)[0], r#"unknown field "spec.foo""#);
        let error = strict_error(&dropped).unwrap();
        assert_eq!(
            error,
            r#"strict decoding error: unknown field "spec.foo", unknown field "spec.vars[0].x""#
        );
        assert_eq!(
            bad_request_message("Terraform", "v1alpha2", &error),
            r#"Terraform in version "v1alpha2" cannot be handled as a Terraform: strict decoding error: unknown field "spec.foo", unknown field "spec.vars[0].x""#
        );
        assert_eq!(strict_error(&[]), None);
        assert!(FieldValidation::parse(Some("strict")).is_err());
    }
}
