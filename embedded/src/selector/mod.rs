//! Which objects a list or watch is about: label and field selectors.

mod field;
mod label;

use serde_json::Value;

use crate::{meta, resource::Resource, service::StatusError};

/// The filter of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    namespace: String,
    labels: Vec<label::Requirement>,
    fields: Vec<field::Requirement>,
}

impl Selector {
    /// Parses both selectors of a request on `resource`. An empty namespace means all of them.
    pub(crate) fn parse(
        resource: &Resource,
        namespace: &str,
        labels: &str,
        fields: &str,
    ) -> Result<Self, StatusError> {
        let refuse = |why: String| StatusError::bad_request(why);
        Ok(Self {
            namespace: namespace.into(),
            labels: label::parse(labels)
                .map_err(|why| refuse(format!("unable to parse requirement: {why}")))?,
            fields: field::parse(resource, fields).map_err(refuse)?,
        })
    }

    /// The same with one object's name.
    pub(crate) fn and_name(mut self, name: &str) -> Self {
        self.fields.push(field::Requirement::name(name));
        self
    }

    /// Whether an object passes.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || meta::namespace(object) == self.namespace)
            && self.labels.iter().all(|requirement| requirement.holds(object))
            && self.fields.iter().all(|requirement| requirement.holds(object))
    }
}
