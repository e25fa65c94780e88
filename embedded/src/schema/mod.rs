//! Structural schemas as Kubernetes understands them: pruning, defaulting, validation and rules, pure.
//!
//! What a server does with a request's object, in this order (the order of kube-apiserver):
//! 1. [`Schema::prune`]: unknown fields go, and are named for `fieldValidation`; nulls that nobody allows go;
//! 2. [`Schema::apply_defaults`];
//! 3. [`Schema::validate`] (or [`Schema::validate_status`] for the status subresource), with the stored object on an
//!    update.

mod correlate;
mod default;
mod duration;
mod embedded;
pub mod error;
mod format;
#[cfg(test)]
mod hostile;
mod list_type;
mod node;
pub mod openapi;
mod path;
mod pattern;
mod prune;
mod rule;
mod structure;
pub mod swagger;
pub mod text;

use serde_json::Value;

use correlate::Correlation;
pub use error::{ErrorKind, FieldError};
use node::Node;

/// How deep objects and schemas may be nested. A JSON parser stops at the same depth; values made otherwise are refused
/// here, before anything recurses into them.
pub const MAX_DEPTH: usize = 128;

/// Why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A keyword has a value of the wrong kind.
    #[error("schema{path}: {keyword} must be {expected}")]
    Keyword {
        /// Where in the schema.
        path: String,
        /// The keyword; empty for the schema itself.
        keyword: String,
        /// What stands there in a good schema.
        expected: &'static str,
    },
    /// A pattern is no regular expression.
    #[error("schema{path}: pattern {pattern:?}: {message}")]
    Pattern {
        /// Where in the schema.
        path: String,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        message: String,
    },
    /// A rule does not parse, or calls what does not exist.
    #[error("schema{path}: rule {rule:?}: {message}")]
    Rule {
        /// Where in the schema.
        path: String,
        /// The rule.
        rule: String,
        /// What is wrong with it.
        message: String,
    },
    /// The schema is nested too deeply.
    #[error("schema is nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
}

/// A compiled `openAPIV3Schema`.
#[derive(Debug)]
pub struct Schema {
    root: Node,
}

impl Schema {
    /// Compiles the schema of one version of a custom resource.
    ///
    /// # Errors
    /// Names the keyword, pattern or rule that cannot be used.
    pub fn compile(schema: &Value) -> Result<Self, CompileError> {
        if is_too_deep(schema) {
            return Err(CompileError::TooDeep { limit: MAX_DEPTH });
        }
        Ok(Self {
            root: Node::compile(schema, "", MAX_DEPTH)?,
        })
    }

    /// Removes what the schema does not know, and answers the paths of what went, sorted. Type and metadata of the object
    /// and of embedded resources stay. Fields that are null, must not be, and have no default, go silently, as they do in
    /// kube-apiserver.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        if is_too_deep(object) {
            return Vec::new();
        }
        let mut dropped = Vec::new();
        prune::prune(object, Some(&self.root), true, "", &mut dropped);
        default::drop_nulls(object, Some(&self.root));
        dropped.sort();
        dropped
    }

    /// Fills in defaults, also for nulls that are not allowed.
    pub fn apply_defaults(&self, object: &mut Value) {
        if !is_too_deep(object) {
            default::apply(object, &self.root);
        }
    }

    /// Checks a whole object; `old` is the stored one on an update. Errors in parts that an update leaves as they were
    /// are let pass; rules run only if types, required fields and sizes are right.
    #[must_use]
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.validate_after(false, new, old)
    }

    /// The same where `blocked` says that errors were found elsewhere in the object that keep rules from running.
    #[must_use]
    pub fn validate_after(&self, blocked: bool, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        if let Some(error) = depth_error(new, old) {
            return vec![error];
        }
        let correlation = old.map(|old| Correlation::new(old, &self.root));
        let mut errors = structure::validate(new, &self.root, "", correlation).into_errors("");
        embedded::check(new, &self.root, "", &mut errors);
        self.validate_rest(errors, blocked, new, old)
    }

    /// Checks a write to the status subresource: the structure of `status` alone, lists and rules of the whole object.
    #[must_use]
    pub fn validate_status(&self, new: &Value, old: &Value) -> Vec<FieldError> {
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
        blocked: bool,
        new: &Value,
        old: Option<&Value>,
    ) -> Vec<FieldError> {
        let mut old_repetitions = Vec::new();
        if let Some(old) = old {
            list_type::check(old, &self.root, "", &mut old_repetitions);
        }
        if old_repetitions.is_empty() {
            list_type::check(new, &self.root, "", &mut errors);
        }
        if !self.root.declares_rules {
            return errors;
        }
        if blocked || errors.iter().any(|error| error.kind.blocks_rules()) {
            errors.push(FieldError::invalid("", Value::Null, RULES_SKIPPED));
            return errors;
        }
        errors.extend(rule::check(&self.root, new, old));
        errors
    }
}

/// What the API server adds when rules were not run.
const RULES_SKIPPED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

fn depth_error(new: &Value, old: Option<&Value>) -> Option<FieldError> {
    let too_deep = is_too_deep(new) || old.is_some_and(is_too_deep);
    too_deep.then(|| FieldError::invalid("", "object", format!("nested deeper than {MAX_DEPTH} levels")))
}

/// Whether a value is nested deeper than [`MAX_DEPTH`], found without recursion.
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
