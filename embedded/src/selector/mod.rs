//! Label and field selectors of lists and watches.

mod field;
mod label;

use serde_json::Value;

use crate::meta;
use crate::resource::Resource;
use crate::status_error::StatusError;

/// The selectors of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    namespace: String,
    labels: Vec<label::Requirement>,
    fields: Vec<field::Requirement>,
}

/// Returns the name that a field selector requires; `None` if it requires none. It reads the selector as [`Selector::parse`] does:
/// authorization decides with this name.
pub(crate) fn required_name(fields: &str) -> Option<String> {
    field::required_name(fields)
}

impl Selector {
    /// Parses both selectors of a request for `resource`. An empty namespace means all namespaces.
    pub(crate) fn parse(
        resource: &Resource,
        namespace: &str,
        labels: &str,
        fields: &str,
    ) -> Result<Self, StatusError> {
        let bad_request = |reason: String| StatusError::bad_request(reason);
        Ok(Self {
            namespace: namespace.into(),
            labels: label::parse(labels)
                .map_err(|reason| bad_request(format!("unable to parse requirement: {reason}")))?,
            fields: field::parse(resource, fields).map_err(bad_request)?,
        })
    }

    /// Adds a requirement on the name.
    pub(crate) fn with_name(mut self, name: &str) -> Self {
        self.fields.push(field::Requirement::name(name));
        self
    }

    /// Whether only an object of one name can match.
    pub(crate) fn requires_name(&self) -> bool {
        self.fields.iter().any(field::Requirement::is_name)
    }

    /// Whether an object matches.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || meta::namespace(object) == self.namespace)
            && self.labels.iter().all(|requirement| requirement.matches(object))
            && self.fields.iter().all(|requirement| requirement.matches(object))
    }
}
