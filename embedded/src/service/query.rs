//! Query parameters of a request, typed. Pure.

use super::{Cause, StatusError};

/// What to do with fields that the schema does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and warn.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// The parameters that this server acts on.
#[expect(clippy::struct_excessive_bools, reason = "each is a parameter of the API")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// `watch`.
    pub(crate) watch: bool,
    /// `resourceVersion`, empty when absent.
    pub(crate) resource_version: String,
    /// `resourceVersionMatch`, empty when absent.
    pub(crate) resource_version_match: String,
    /// `allowWatchBookmarks`.
    pub(crate) bookmarks: bool,
    /// `sendInitialEvents`.
    pub(crate) initial_events: bool,
    /// `timeoutSeconds`.
    pub(crate) timeout_seconds: Option<u64>,
    /// `labelSelector`.
    pub(crate) labels: String,
    /// `fieldSelector`.
    pub(crate) fields: String,
    /// `includeObject` of tables, empty when absent.
    pub(crate) include_object: String,
    /// `fieldValidation`.
    pub(crate) field_validation: FieldValidation,
    /// `propagationPolicy` of deletions, empty when absent.
    pub(crate) propagation_policy: String,
    /// `continue` of a list.
    pub(crate) continue_token: String,
    /// `dryRun=All`.
    pub(crate) dry_run: bool,
}

impl Query {
    /// Parses a query string. Unknown parameters are ignored, as kube-apiserver does.
    /// `options` is the kind that the parameters of this request's verb make up, for example `CreateOptions`; empty for
    /// a verb that reads.
    pub(crate) fn parse(text: &str, options: &str) -> Result<Self, StatusError> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            query.set(&decode(key), decode(value), options)?;
        }
        Ok(query)
    }

    fn set(&mut self, key: &str, value: String, options: &str) -> Result<(), StatusError> {
        match key {
            "watch" => self.watch = truth(&value),
            "resourceVersion" => self.resource_version = value,
            "resourceVersionMatch" => self.resource_version_match = value,
            "allowWatchBookmarks" => self.bookmarks = truth(&value),
            "sendInitialEvents" => self.initial_events = truth(&value),
            "timeoutSeconds" => {
                let seconds = value.parse().map_err(|_| {
                    StatusError::bad_request(format!("strconv.ParseInt: parsing {value:?}: invalid syntax"))
                })?;
                self.timeout_seconds = Some(seconds);
            }
            "labelSelector" => self.labels = value,
            "fieldSelector" => self.fields = value,
            "includeObject" => self.include_object = value,
            "fieldValidation" if matches!(options, "CreateOptions" | "UpdateOptions" | "PatchOptions") => {
                self.field_validation = field_validation(&value, options)?;
            }
            "propagationPolicy" => self.propagation_policy = value,
            "continue" => self.continue_token = value,
            "dryRun" if !options.is_empty() => self.dry_run = dry_run(&value, options)?,
            _ => {}
        }
        Ok(())
    }
}

/// Whether a `dryRun` value asks for one.
pub(crate) fn dry_run(value: &str, options: &str) -> Result<bool, StatusError> {
    match value {
        "" => Ok(false),
        "All" => Ok(true),
        other => {
            let cause = Cause {
                reason: "FieldValueNotSupported",
                field: "dryRun".into(),
                message: format!("Unsupported value: [{other:?}]: supported values: \"All\""),
            };
            Err(StatusError::invalid_options(options, cause))
        }
    }
}

fn field_validation(value: &str, options: &str) -> Result<FieldValidation, StatusError> {
    match value {
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Strict" => Ok(FieldValidation::Strict),
        "Ignore" => Ok(FieldValidation::Ignore),
        other => {
            let cause = Cause::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]);
            Err(StatusError::invalid_options(options, cause))
        }
    }
}

/// Go's reading of a boolean parameter: present means true unless it says otherwise.
fn truth(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let text = "watch=1&labelSelector=a%3Db%2Cc+in+%28d%29&timeoutSeconds=5&unknown=x";
        let query = Query::parse(text, "").unwrap();
        assert!(query.watch);
        assert_eq!(query.labels, "a=b,c in (d)");
        assert_eq!(query.timeout_seconds, Some(5));
        assert!(!Query::parse("watch=false", "").unwrap().watch);
        assert!(Query::parse("watch", "").unwrap().watch);
    }

    #[test]
    fn values_that_are_none_are_refused() {
        for (text, code) in [
            ("timeoutSeconds=x", 400),
            ("fieldValidation=Maybe", 422),
            ("dryRun=Some", 422),
        ] {
            let error = Query::parse(text, "CreateOptions").unwrap_err();
            assert_eq!(error.code(), code, "{text}");
        }
        assert!(
            Query::parse("fieldValidation=Maybe", "").is_ok(),
            "a read validates nothing"
        );
    }
}
