//! Evaluates the rules of a schema for an object, node by node.

use std::sync::Arc;

use cel::objects::OptionalValue;
use cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;

use super::value::self_value;
use super::{Rule, library};
use crate::schema::correlation::{Correlation, align, old_entry};
use crate::schema::error::{ErrorKind, FieldError};
use crate::schema::node::Node;
use crate::schema::path;

/// Maximum length of a `messageExpression` result, in bytes.
const MAX_MESSAGE: usize = 5120;

/// Ratcheting: errors are ignored if the current part, or else the nearest part above that can be correlated, did not change.
#[derive(Clone, Copy, Default)]
struct Ratchet<'a> {
    current: Option<(Correlation<'a>, &'a Value)>,
    above: Option<(Correlation<'a>, &'a Value)>,
}

impl<'a> Ratchet<'a> {
    fn is_unchanged(self) -> bool {
        self.current
            .or(self.above)
            .is_some_and(|(old, new)| old.is_unchanged(new))
    }

    fn step(self, new: &'a Value, find: impl FnOnce(Correlation<'a>) -> Option<Correlation<'a>>) -> Self {
        match self.current {
            None => self,
            Some((old, _)) => Self {
                current: find(old).map(|old| (old, new)),
                above: self.current,
            },
        }
    }

    fn field(self, name: &str, new: &'a Value) -> Self {
        let is_root = self.current.is_some() && self.above.is_none();
        if is_root && (name == "apiVersion" || name == "kind") {
            return Self::default();
        }
        self.step(new, |old| old.field(name))
    }

    fn entry(self, new: &'a Value) -> Self {
        self.step(new, |old| old.entry(new))
    }
}

/// A visited node: the rules of `rules`, for a value described by `schema`. The two differ inside `allOf`.
#[derive(Clone, Copy)]
struct Visit<'a> {
    rules: &'a Node,
    schema: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    ratchet: Ratchet<'a>,
    is_resource: bool,
}

/// Returns the errors of all rules below `node`.
pub(crate) fn check(node: &Node, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let current = old.map(|old| (Correlation::new(old, node), value));
    let ratchet = Ratchet { current, above: None };
    let mut errors = Vec::new();
    let root = Visit {
        rules: node,
        schema: node,
        value,
        old,
        ratchet,
        is_resource: true,
    };
    visit(root, "", &mut errors);
    errors
}

fn visit(at: Visit<'_>, path: &str, errors: &mut Vec<FieldError>) {
    if at.value.is_null() || !at.rules.has_rules {
        return;
    }
    if !at.rules.rules.is_empty() {
        run_rules(&at, path, errors);
    }
    for part in &at.rules.all_of {
        let (current, above) = (None, at.ratchet.above);
        let ratchet = Ratchet { current, above };
        let rules = part;
        visit(Visit { rules, ratchet, ..at }, path, errors);
    }
    match at.value {
        Value::Array(entries) => {
            let (Some(rules), Some(schema)) = (&at.rules.items, &at.schema.items) else {
                return;
            };
            for (i, entry) in entries.iter().enumerate() {
                let old = at.old.and_then(|old| old_entry(at.schema, old, entry));
                let child = Visit {
                    rules,
                    schema,
                    value: entry,
                    old,
                    ratchet: at.ratchet.entry(entry),
                    is_resource: schema.extensions.embedded_resource,
                };
                visit(child, &path::index(path, i), errors);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                visit_field(&at, name, field, path, errors);
            }
        }
        _ => {}
    }
}

fn visit_field<'a>(at: &Visit<'a>, name: &str, field: &'a Value, path: &str, errors: &mut Vec<FieldError>) {
    let old = at
        .old
        .filter(|_| at.schema.extensions.is_correlatable_map)
        .and_then(|old| old.get(name));
    let mut visit_child = |rules: &'a Node, schema: &'a Node, path: &str| {
        let ratchet = at.ratchet.field(name, field);
        let is_resource = schema.extensions.embedded_resource;
        let child = Visit {
            rules,
            schema,
            value: field,
            old,
            ratchet,
            is_resource,
        };
        visit(child, path, errors);
    };
    if let (Some(rules), Some(schema)) = (at.rules.additional_schema(), at.schema.additional_schema()) {
        visit_child(rules, schema, &path::key(path, name));
    }
    if let (Some(rules), Some(schema)) = (at.rules.properties.get(name), at.schema.properties.get(name)) {
        visit_child(rules, schema, &path::child(path, name));
    }
}

/// The values of `self` and `oldSelf` at one node.
struct SelfValues {
    new: Cel,
    old: Option<Cel>,
}

fn run_rules(at: &Visit<'_>, path: &str, errors: &mut Vec<FieldError>) {
    let type_name = at.schema.type_name.as_str();
    let convert = |value: &Value| self_value(value, at.schema, at.is_resource);
    let uses_old = at.rules.rules.iter().any(|rule| rule.uses_old_self);
    let values = convert(at.value).and_then(|new| {
        let old = at.old.filter(|old| uses_old && !old.is_null());
        let old = old
            .map(|old| convert(&align(old, at.value, at.schema)))
            .transpose()?;
        Ok(SelfValues { new, old })
    });
    let values = match values {
        Ok(values) => values,
        Err(reason) => {
            errors.extend(at.rules.rules.iter().map(|rule| {
                let detail = format!("{reason} evaluating rule: {}", rule.name());
                FieldError::invalid(path, type_name, detail)
            }));
            return;
        }
    };
    for rule in &at.rules.rules {
        // A transition rule does not apply without an old value.
        if rule.uses_old_self && values.old.is_none() && !rule.optional_old_self {
            continue;
        }
        if let Some(error) = run(rule, &values, path, type_name) {
            let ignored = error.is_violation && !rule.uses_old_self && at.ratchet.is_unchanged();
            if !ignored {
                errors.push(error.error);
            }
        }
    }
}

/// A failed rule: it is violated, or it could not be evaluated.
struct Failure {
    error: FieldError,
    is_violation: bool,
}

fn run(rule: &Rule, values: &SelfValues, at: &str, type_name: &str) -> Option<Failure> {
    let not_evaluated = |detail: String| {
        let (error, is_violation) = (FieldError::invalid(at, type_name, detail), false);
        Some(Failure { error, is_violation })
    };
    let mut context = match library::environment() {
        Ok(env) => Context::with_env(Arc::clone(env)),
        Err(error) => return not_evaluated(format!("rule compiler initialization error: {error}")),
    };
    context.add_variable_from_value("self", values.new.clone());
    if rule.optional_old_self {
        let old = values.old.clone();
        let old = old.map_or_else(OptionalValue::none, OptionalValue::of);
        context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
    } else if let Some(old) = &values.old {
        context.add_variable_from_value("oldSelf", old.clone());
    }
    match rule.program.execute(&context) {
        Ok(Cel::Bool(true)) => None,
        Ok(Cel::Bool(false)) => {
            let error_path = match rule.field_path.as_str() {
                "" => at.to_owned(),
                field_path => path::child(at, field_path),
            };
            let value = bad_value(rule.kind, type_name);
            let error = FieldError::new(error_path, rule.kind, value, message(rule, &context));
            let is_violation = true;
            Some(Failure { error, is_violation })
        }
        Ok(other) => {
            let name = rule.name();
            not_evaluated(format!("rule returned {other:?} instead of a boolean: {name}"))
        }
        Err(error) => not_evaluated(evaluation_error(&error, rule)),
    }
}

fn bad_value(kind: ErrorKind, type_name: &str) -> Value {
    match kind {
        ErrorKind::Invalid | ErrorKind::Duplicate => Value::from(type_name),
        _ => Value::from(""),
    }
}

/// Returns the result of `messageExpression` if it is a usable line, otherwise `message`.
fn message(rule: &Rule, context: &Context<'_, '_>) -> String {
    let result = rule
        .message_program
        .as_ref()
        .map(|program| program.execute(context));
    let line = match result {
        Some(Ok(Cel::String(text))) => text.trim().to_owned(),
        _ => String::new(),
    };
    if line.is_empty() || line.len() > MAX_MESSAGE || line.contains('\n') {
        return rule.message_or_default();
    }
    line
}

/// Returns why a rule could not be evaluated, with kube-apiserver's message where it has one.
fn evaluation_error(error: &ExecutionError, rule: &Rule) -> String {
    let name = rule.name();
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key} evaluating rule: {name}"),
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnexpectedType { .. } => format!(
            "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {name}"
        ),
        ExecutionError::DivisionByZero(_) => format!("division by zero evaluating rule: {name}"),
        ExecutionError::RemainderByZero(_) => format!("modulus by zero evaluating rule: {name}"),
        ExecutionError::Overflow(..) => format!("integer overflow evaluating rule: {name}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => {
            format!("index out of bounds: {index} evaluating rule: {name}")
        }
        ExecutionError::FunctionError { function, .. }
            if function == "duration" || function == "timestamp" =>
        {
            let target = if function == "duration" {
                "Duration"
            } else {
                "Timestamp"
            };
            format!(
                "type conversion error from 'string' to 'google.protobuf.{target}' evaluating rule: {name}"
            )
        }
        other => format!("{other} evaluating rule: {name}"),
    }
}
