//! Query parameters of a request. Pure.

use std::num::{IntErrorKind, ParseIntError};

use crate::cause::Cause;
use crate::status_error::StatusError;

/// The handling of unknown and duplicate fields.
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

/// The supported parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// `watch`.
    pub(crate) watch: bool,
    /// `resourceVersion`, empty when absent.
    pub(crate) resource_version: String,
    /// `resourceVersionMatch`, empty when absent.
    pub(crate) resource_version_match: String,
    /// `allowWatchBookmarks`.
    pub(crate) allow_watch_bookmarks: bool,
    /// `sendInitialEvents`.
    pub(crate) send_initial_events: Option<bool>,
    /// `timeoutSeconds`.
    pub(crate) timeout_seconds: Option<i64>,
    /// `limit` of a list; without one, or below 1, the list has one page.
    pub(crate) limit: i64,
    /// `labelSelector`.
    pub(crate) label_selector: String,
    /// `fieldSelector`.
    pub(crate) field_selector: String,
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
    /// `fieldManager` of writes, empty when absent.
    pub(crate) field_manager: String,
    /// `force` of patches.
    pub(crate) force: Option<bool>,
}

impl Query {
    /// Parses a query string. Unknown parameters are ignored, as in kube-apiserver. `options` is the options kind of the request's
    /// verb, for example `CreateOptions`; empty for reads.
    pub(crate) fn parse(text: &str, options: &str) -> Result<Self, StatusError> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            query.set(&decode(key), decode(value), options)?;
        }
        Ok(query)
    }

    /// Whether a watch begins with the existing objects: if it says so, or if it has no version to begin with, as in
    /// apimachinery's `SetListOptionsDefaults`.
    pub(crate) fn begins_with_existing(&self) -> bool {
        let has_version = !matches!(self.resource_version.as_str(), "" | "0");
        self.send_initial_events.unwrap_or(!has_version)
    }

    fn set(&mut self, key: &str, value: String, options: &str) -> Result<(), StatusError> {
        match key {
            "watch" => self.watch = parse_bool(&value),
            "resourceVersion" => self.resource_version = value,
            "resourceVersionMatch" => self.resource_version_match = value,
            "allowWatchBookmarks" => self.allow_watch_bookmarks = parse_bool(&value),
            "sendInitialEvents" => self.send_initial_events = Some(parse_bool(&value)),
            "timeoutSeconds" => self.timeout_seconds = Some(parse_int(&value)?),
            // Of lists and of `deletecollection`.
            "limit" if matches!(options, "" | "DeleteOptions") => self.limit = parse_int(&value)?,
            "labelSelector" => self.label_selector = value,
            "fieldSelector" => self.field_selector = value,
            "includeObject" => self.include_object = value,
            "fieldValidation" if matches!(options, "CreateOptions" | "UpdateOptions" | "PatchOptions") => {
                self.field_validation = field_validation(&value, options)?;
            }
            "propagationPolicy" => self.propagation_policy = value,
            "continue" => self.continue_token = value,
            "fieldManager" if matches!(options, "CreateOptions" | "UpdateOptions" | "PatchOptions") => {
                check_field_manager(&value, options)?;
                self.field_manager = value;
            }
            "force" if options == "PatchOptions" => self.force = Some(parse_bool(&value)),
            "dryRun" if !options.is_empty() => {
                check_dry_run(&value, options)?;
                self.dry_run = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Checks a `dryRun` value. There is only one.
pub(crate) fn check_dry_run(value: &str, options: &str) -> Result<(), StatusError> {
    if value == "All" {
        return Ok(());
    }
    let cause = Cause {
        reason: "FieldValueNotSupported",
        field: "dryRun".into(),
        message: format!("Unsupported value: [{value:?}]: supported values: \"All\""),
    };
    Err(StatusError::invalid_options(options, cause))
}

/// Maximum length of the name of a field manager in bytes.
pub(super) const MAX_FIELD_MANAGER: usize = 128;

fn check_field_manager(value: &str, options: &str) -> Result<(), StatusError> {
    let cause = if value.len() > MAX_FIELD_MANAGER {
        Cause::too_long("fieldManager", MAX_FIELD_MANAGER)
    } else if let Some((at, c)) = value.char_indices().find(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        Cause::invalid("fieldManager", value, &detail)
    } else {
        return Ok(());
    };
    Err(StatusError::invalid_options(options, cause))
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

/// Parses a boolean parameter like apimachinery: true if present, except for `false` and `0`.
fn parse_bool(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

/// Parses an integer parameter, with the errors of Go.
fn parse_int(value: &str) -> Result<i64, StatusError> {
    value.parse().map_err(|error: ParseIntError| {
        let reason = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        StatusError::bad_request(format!("strconv.ParseInt: parsing {value:?}: {reason}"))
    })
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
        assert_eq!(query.label_selector, "a=b,c in (d)");
        assert_eq!(query.timeout_seconds, Some(5));
        assert!(!Query::parse("watch=false", "").unwrap().watch);
        assert!(Query::parse("watch", "").unwrap().watch);
    }

    #[test]
    fn invalid_values_are_rejected() {
        for (text, code) in [
            ("timeoutSeconds=x", 400),
            ("timeoutSeconds=99999999999999999999", 400),
            ("fieldValidation=Maybe", 422),
            ("dryRun=Some", 422),
            ("dryRun=", 422),
            ("fieldManager=a%0Ab", 422),
        ] {
            let error = Query::parse(text, "CreateOptions").unwrap_err();
            assert_eq!(error.code(), code, "{text}");
        }
        assert!(Query::parse("limit=1.5", "").is_err());
        assert_eq!(Query::parse("limit=-1", "").unwrap().limit, -1);
        assert!(
            Query::parse("limit=x", "CreateOptions").is_ok(),
            "only lists have a limit"
        );
        assert!(
            Query::parse("fieldValidation=Maybe", "").is_ok(),
            "reads have no field validation"
        );
    }
}
