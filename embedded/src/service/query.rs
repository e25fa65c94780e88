//! Query parameters of a request, typed. Pure.

use super::StatusError;

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
    pub(crate) fn parse(text: &str) -> Result<Self, StatusError> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            query.set(&decode(key), decode(value))?;
        }
        Ok(query)
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), StatusError> {
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
            "fieldValidation" => self.field_validation = field_validation(&value)?,
            "propagationPolicy" => self.propagation_policy = value,
            "continue" => self.continue_token = value,
            "dryRun" => self.dry_run = dry_run(&value)?,
            _ => {}
        }
        Ok(())
    }
}

/// Whether a `dryRun` value asks for one.
pub(crate) fn dry_run(value: &str) -> Result<bool, StatusError> {
    match value {
        "" => Ok(false),
        "All" => Ok(true),
        other => Err(StatusError::bad_request(format!(
            "dryRun: Unsupported value: {other:?}: supported values: \"All\""
        ))),
    }
}

fn field_validation(value: &str) -> Result<FieldValidation, StatusError> {
    match value {
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Strict" => Ok(FieldValidation::Strict),
        "Ignore" => Ok(FieldValidation::Ignore),
        other => Err(StatusError::bad_request(format!(
            "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
        ))),
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
        let query =
            Query::parse("watch=1&labelSelector=a%3Db%2Cc+in+%28d%29&timeoutSeconds=5&unknown=x").unwrap();
        assert!(query.watch);
        assert_eq!(query.labels, "a=b,c in (d)");
        assert_eq!(query.timeout_seconds, Some(5));
        assert!(!Query::parse("watch=false").unwrap().watch);
        assert!(Query::parse("watch").unwrap().watch);
    }

    #[test]
    fn values_that_are_none_are_refused() {
        for text in ["timeoutSeconds=x", "fieldValidation=Maybe", "dryRun=Some"] {
            assert_eq!(Query::parse(text).unwrap_err().code(), 400, "{text}");
        }
    }
}
