//! Structural schemas of Kubernetes: pruning, defaulting, validation and CEL rules. Pure.
//!
//! The steps for the object of a request, in the order of kube-apiserver:
//! 1. [`Schema::prune`] removes unknown fields, reported by `fieldValidation`, and forbidden nulls;
//! 2. [`Schema::apply_defaults`];
//! 3. [`Schema::validate`], or [`Schema::validate_status`] for the status subresource, with the old object on an update.

mod correlation;
mod default;
mod duration;
mod embedded;
mod error;
mod format;
pub(crate) mod go_format;
mod list_type;
mod node;
pub(crate) mod openapi;
pub(crate) mod openapi_v2;
pub(crate) mod path;
mod pattern;
#[cfg(test)]
mod project_tests;
#[cfg(test)]
mod property_tests;
mod prune;
mod rule;
mod structure;
#[cfg(test)]
mod vector_tests;

use correlation::Correlation;
pub(crate) use error::{CompileError, FieldError};
use node::{MAX_DEPTH, Node};
use serde_json::Value;

/// A compiled `openAPIV3Schema`.
#[derive(Debug)]
pub(crate) struct Schema {
    root: Node,
}

impl Schema {
    /// Compiles the schema of one version of a custom resource.
    ///
    /// # Errors
    /// If a keyword, pattern or rule is invalid.
    pub(crate) fn compile(schema: &Value) -> Result<Self, CompileError> {
        if is_too_deep(schema) {
            return Err(CompileError::TooDeep { limit: MAX_DEPTH });
        }
        Ok(Self {
            root: Node::compile(schema, "", MAX_DEPTH)?,
        })
    }

    /// Removes fields that the schema does not declare and returns their paths, sorted. The type and metadata of the object and
    /// of embedded resources remain. Forbidden nulls without a default are removed silently, as in kube-apiserver.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        if is_too_deep(object) {
            return Vec::new();
        }
        let mut dropped = Vec::new();
        prune::prune(object, Some(&self.root), true, "", &mut dropped);
        default::drop_nulls(object, Some(&self.root));
        dropped.sort();
        dropped
    }

    /// Applies defaults, also to forbidden nulls.
    pub(crate) fn apply_defaults(&self, object: &mut Value) {
        if !is_too_deep(object) {
            default::apply(object, &self.root);
        }
    }

    /// Validates an object; `old` is the stored one on an update. Errors in unchanged parts are ignored (ratcheting). Rules run
    /// only if types, required fields and sizes are valid, and unless `skip_rules` says that the object has other errors.
    pub(crate) fn validate(&self, new: &Value, old: Option<&Value>, skip_rules: bool) -> Vec<FieldError> {
        if let Some(error) = depth_error(new, old) {
            return vec![error];
        }
        let correlation = old.map(|old| Correlation::new(old, &self.root));
        let mut errors = structure::validate(new, &self.root, "", correlation).into_errors("");
        embedded::validate(new, &self.root, "", &mut errors);
        self.validate_rest(errors, skip_rules, new, old)
    }

    /// Validates a write to the status subresource: the structure of `status` alone, lists and rules of the whole object.
    pub(crate) fn validate_status(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        if let Some(error) = depth_error(new, Some(old)) {
            return vec![error];
        }
        let mut errors = Vec::new();
        if let (Some(status), Some(node)) = (new.get("status"), self.root.properties.get("status")) {
            let correlation = old.get("status").map(|old| Correlation::new(old, node));
            errors = structure::validate(status, node, "", correlation).into_errors("status");
        }
        self.validate_rest(errors, false, new, Some(old))
    }

    fn validate_rest(
        &self,
        mut errors: Vec<FieldError>,
        skip_rules: bool,
        new: &Value,
        old: Option<&Value>,
    ) -> Vec<FieldError> {
        let mut old_duplicates = Vec::new();
        if let Some(old) = old {
            list_type::validate(old, &self.root, "", &mut old_duplicates);
        }
        if old_duplicates.is_empty() {
            list_type::validate(new, &self.root, "", &mut errors);
        }
        if !self.root.declares_rules {
            return errors;
        }
        if skip_rules || errors.iter().any(|error| error.kind.blocks_rules()) {
            errors.push(FieldError::invalid("", Value::Null, RULES_SKIPPED));
            return errors;
        }
        errors.extend(rule::evaluate::check(&self.root, new, old));
        errors
    }
}

/// kube-apiserver's message for rules that did not run.
const RULES_SKIPPED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

fn depth_error(new: &Value, old: Option<&Value>) -> Option<FieldError> {
    let too_deep = is_too_deep(new) || old.is_some_and(is_too_deep);
    too_deep.then(|| FieldError::invalid("", "object", format!("nested deeper than {MAX_DEPTH} levels")))
}

/// Whether a value is nested deeper than [`MAX_DEPTH`]. Does not recurse.
fn is_too_deep(value: &Value) -> bool {
    let mut pending = vec![(value, 0_usize)];
    while let Some((value, depth)) = pending.pop() {
        if depth > MAX_DEPTH {
            return true;
        }
        match value {
            Value::Array(entries) => pending.extend(entries.iter().map(|entry| (entry, depth + 1))),
            Value::Object(fields) => pending.extend(fields.values().map(|field| (field, depth + 1))),
            _ => {}
        }
    }
    false
}
