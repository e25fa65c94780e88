//! Defaults, JSON and types.

use gotmpl::Value;

use super::{Args, Fault, Table};
use crate::template::value::{Json, display, from_json, string, to_json};

/// Functions by name.
pub(super) const TABLE: Table = &[
    ("default", |args| {
        args.at_least(1)?;
        let own = args.all().get(1).filter(|value| value.is_truthy());
        Ok(own.unwrap_or(args.value(0)?).clone())
    }),
    ("empty", |args| {
        args.exactly(1)?;
        Ok(Value::Bool(!args.value(0)?.is_truthy()))
    }),
    ("coalesce", |args| {
        let first = args.all().iter().find(|value| value.is_truthy());
        Ok(first.cloned().unwrap_or(Value::Nil))
    }),
    ("all", |args| {
        Ok(Value::Bool(args.all().iter().all(Value::is_truthy)))
    }),
    ("any", |args| {
        Ok(Value::Bool(args.all().iter().any(Value::is_truthy)))
    }),
    ("ternary", |args| {
        args.exactly(3)?;
        Ok(args.value(usize::from(!args.bool(2)?))?.clone())
    }),
    ("fromJson", |args| Ok(parse(args)?.unwrap_or(Value::Nil))),
    ("mustFromJson", |args| {
        parse(args)?.ok_or_else(|| Fault::new("the text is not JSON"))
    }),
    ("toJson", |args| write(args, Json::Safe, false)),
    ("toPrettyJson", |args| write(args, Json::Pretty, false)),
    ("toRawJson", |args| write(args, Json::Raw, true)),
    ("mustToJson", |args| write(args, Json::Safe, true)),
    ("mustToPrettyJson", |args| write(args, Json::Pretty, true)),
    ("mustToRawJson", |args| write(args, Json::Raw, true)),
    ("deepCopy", copy),
    ("mustDeepCopy", copy),
    ("typeOf", |args| {
        args.exactly(1)?;
        Ok(string(type_of(args.value(0)?)))
    }),
    ("typeIs", |args| is(args, type_of)),
    ("typeIsLike", |args| is(args, type_of)),
    ("kindOf", |args| {
        args.exactly(1)?;
        Ok(string(kind_of(args.value(0)?)))
    }),
    ("kindIs", |args| is(args, kind_of)),
    ("deepEqual", |args| {
        args.exactly(2)?;
        Ok(Value::Bool(args.value(0)? == args.value(1)?))
    }),
];

fn parse(args: &Args<'_>) -> Result<Option<Value>, Fault> {
    args.exactly(1)?;
    let parsed: Option<serde_json::Value> = serde_json::from_str(args.text(0)?).ok();
    Ok(parsed.as_ref().map(from_json))
}

fn write(args: &Args<'_>, form: Json, must: bool) -> Result<Value, Fault> {
    args.exactly(1)?;
    match to_json(args.value(0)?, form) {
        Some(text) => Ok(string(text)),
        None if must => Err(Fault::new("the value has no JSON form")),
        None => Ok(string("")),
    }
}

fn copy(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(args.value(0)?.clone())
}

fn is(args: &Args<'_>, of: fn(&Value) -> &'static str) -> Result<Value, Fault> {
    args.exactly(2)?;
    let (target, found) = (args.text(0)?, of(args.value(1)?));
    Ok(Value::Bool(target == found))
}

const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Uint(_) => "uint",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "[]interface {}",
        Value::Map(_) => "map[string]interface {}",
        Value::Function(_) => "func",
    }
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "invalid",
        Value::List(_) => "slice",
        Value::Map(_) => "map",
        other => type_of(other),
    }
}

/// Returns the strings of a list, none for nil, and one for other values.
pub(super) fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::Nil => Vec::new(),
        Value::List(items) => items
            .iter()
            .filter(|item| !matches!(item, Value::Nil))
            .map(display)
            .collect(),
        other => vec![display(other)],
    }
}
