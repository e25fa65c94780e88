//! Runs the rules of a schema over an object, node by node.

use std::sync::Arc;

use cel::objects::OptionalValue;
use cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;

use super::align::align;
use super::value::self_value;
use super::{Rule, library};
use crate::schema::correlate::{Correlation, old_entry};
use crate::schema::error::{ErrorKind, FieldError};
use crate::schema::node::Node;
use crate::schema::path;

/// The longest text that a `messageExpression` may give.
const MAX_MESSAGE: usize = 5120;

/// Whether an error may be let pass because the part it concerns, or the nearest part above that can be compared, did
/// not change.
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

/// One node being checked: the rules of `rules`, on values that `spine` describes. The two differ inside `allOf`.
#[derive(Clone, Copy)]
struct Visit<'a> {
    rules: &'a Node,
    spine: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    ratchet: Ratchet<'a>,
    is_resource: bool,
}

/// The errors of all rules below `node`.
pub(crate) fn check(node: &Node, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let current = old.map(|old| (Correlation::new(old, node), value));
    let ratchet = Ratchet { current, above: None };
    let mut errors = Vec::new();
    visit(
        Visit {
            rules: node,
            spine: node,
            value,
            old,
            ratchet,
            is_resource: true,
        },
        "",
        &mut errors,
    );
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
        let ratchet = Ratchet {
            current: None,
            above: at.ratchet.above,
        };
        visit(
            Visit {
                rules: part,
                ratchet,
                ..at
            },
            path,
            errors,
        );
    }
    match at.value {
        Value::Array(entries) => {
            let (Some(rules), Some(spine)) = (&at.rules.items, &at.spine.items) else {
                return;
            };
            for (i, entry) in entries.iter().enumerate() {
                let old = at.old.and_then(|old| old_entry(at.spine, old, entry));
                let below = Visit {
                    rules,
                    spine,
                    value: entry,
                    old,
                    ratchet: at.ratchet.entry(entry),
                    is_resource: spine.extensions.embedded_resource,
                };
                visit(below, &path::index(path, i), errors);
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
        .filter(|_| at.spine.extensions.correlatable_map)
        .and_then(|old| old.get(name));
    let mut below = |rules: &'a Node, spine: &'a Node, path: &str| {
        let ratchet = at.ratchet.field(name, field);
        let is_resource = spine.extensions.embedded_resource;
        visit(
            Visit {
                rules,
                spine,
                value: field,
                old,
                ratchet,
                is_resource,
            },
            path,
            errors,
        );
    };
    if let (Some(rules), Some(spine)) = (at.rules.additional_schema(), at.spine.additional_schema()) {
        below(rules, spine, &path::key(path, name));
    }
    if let (Some(rules), Some(spine)) = (at.rules.properties.get(name), at.spine.properties.get(name)) {
        below(rules, spine, &path::child(path, name));
    }
}

/// The values of `self` and `oldSelf` at one node.
struct Selves {
    new: Cel,
    old: Option<Cel>,
}

fn run_rules(at: &Visit<'_>, path: &str, errors: &mut Vec<FieldError>) {
    let shown_type = at.spine.type_name.as_str();
    let see = |value: &Value| self_value(value, at.spine, at.is_resource);
    let uses_old = at.rules.rules.iter().any(|rule| rule.uses_old_self);
    let selves = see(at.value).and_then(|new| {
        let old = at.old.filter(|old| uses_old && !old.is_null());
        let old = old.map(|old| see(&align(old, at.value, at.spine))).transpose()?;
        Ok(Selves { new, old })
    });
    let selves = match selves {
        Ok(selves) => selves,
        Err(reason) => {
            errors.extend(at.rules.rules.iter().map(|rule| {
                let detail = format!("{reason} evaluating rule: {}", rule.name());
                FieldError::invalid(path, shown_type, detail)
            }));
            return;
        }
    };
    for rule in &at.rules.rules {
        // Without a former self, a transition rule has nothing to say.
        if rule.uses_old_self && selves.old.is_none() && !rule.optional_old_self {
            continue;
        }
        if let Some(error) = run(rule, &selves, path, shown_type) {
            let passed_over = error.is_verdict && !rule.uses_old_self && at.ratchet.is_unchanged();
            if !passed_over {
                errors.push(error.error);
            }
        }
    }
}

/// An error, and whether it is the rule's verdict or says that there is none.
struct Refusal {
    error: FieldError,
    is_verdict: bool,
}

fn run(rule: &Rule, selves: &Selves, at: &str, shown_type: &str) -> Option<Refusal> {
    let unevaluated = |detail: String| {
        Some(Refusal {
            error: FieldError::invalid(at, shown_type, detail),
            is_verdict: false,
        })
    };
    let mut context = match library::environment() {
        Ok(env) => Context::with_env(Arc::clone(env)),
        Err(error) => return unevaluated(format!("rule compiler initialization error: {error}")),
    };
    context.add_variable_from_value("self", selves.new.clone());
    if rule.optional_old_self {
        let old = selves
            .old
            .clone()
            .map_or_else(OptionalValue::none, OptionalValue::of);
        context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
    } else if let Some(old) = &selves.old {
        context.add_variable_from_value("oldSelf", old.clone());
    }
    match rule.program.execute(&context) {
        Ok(Cel::Bool(true)) => None,
        Ok(Cel::Bool(false)) => {
            let place = if rule.field_path.is_empty() {
                at.to_owned()
            } else {
                path::child(at, &rule.field_path)
            };
            let error = FieldError::new(
                place,
                rule.kind,
                verdict_value(rule.kind, shown_type),
                message(rule, &context),
            );
            Some(Refusal {
                error,
                is_verdict: true,
            })
        }
        Ok(other) => unevaluated(format!(
            "rule gave {other:?} instead of a boolean: {}",
            rule.name()
        )),
        Err(error) => unevaluated(failure(&error, rule)),
    }
}

fn verdict_value(kind: ErrorKind, shown_type: &str) -> Value {
    match kind {
        ErrorKind::Invalid | ErrorKind::Duplicate => Value::from(shown_type),
        _ => Value::from(""),
    }
}

/// What `messageExpression` says, if it says a usable line; otherwise `message`.
fn message(rule: &Rule, context: &Context<'_, '_>) -> String {
    let said = rule
        .message_program
        .as_ref()
        .and_then(|program| program.execute(context).ok());
    let line = match said {
        Some(Cel::String(text)) => text.trim().to_owned(),
        _ => String::new(),
    };
    if line.is_empty() || line.len() > MAX_MESSAGE || line.contains('\n') {
        return rule.message_or_default();
    }
    line
}

/// Why a rule gave no verdict, in the words of the API server where it has some.
fn failure(error: &ExecutionError, rule: &Rule) -> String {
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
