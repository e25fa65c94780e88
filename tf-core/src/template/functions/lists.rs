//! Lists.

use std::sync::Arc;

use gotmpl::Value;

use super::args::TextBuilder;
use super::data::strings;
use super::{Args, Fault, Table};
use crate::template::value::{display, string};

/// Functions by name.
pub(super) const TABLE: Table = &[
    ("list", |args| Ok(tuple(args))),
    ("tuple", |args| Ok(tuple(args))),
    ("append", push),
    ("push", push),
    ("mustAppend", push),
    ("mustPush", push),
    ("prepend", prepend),
    ("mustPrepend", prepend),
    ("first", |args| end(args, <[Value]>::first)),
    ("mustFirst", |args| end(args, <[Value]>::first)),
    ("last", |args| end(args, <[Value]>::last)),
    ("mustLast", |args| end(args, <[Value]>::last)),
    ("rest", |args| {
        part(args, |items| items.split_first().map(|(_, rest)| rest))
    }),
    ("mustRest", |args| {
        part(args, |items| items.split_first().map(|(_, rest)| rest))
    }),
    ("initial", |args| {
        part(args, |items| items.split_last().map(|(_, rest)| rest))
    }),
    ("mustInitial", |args| {
        part(args, |items| items.split_last().map(|(_, rest)| rest))
    }),
    ("reverse", reverse),
    ("mustReverse", reverse),
    ("uniq", uniq),
    ("mustUniq", uniq),
    ("without", without),
    ("mustWithout", without),
    ("has", has),
    ("mustHas", has),
    ("compact", compact),
    ("mustCompact", compact),
    ("slice", slice),
    ("mustSlice", slice),
    ("concat", concat),
    ("chunk", chunk),
    ("mustChunk", chunk),
    ("join", |args| {
        args.exactly(2)?;
        let mut out = TextBuilder::default();
        for (index, item) in strings(args.value(1)?).iter().enumerate() {
            out.push(if index > 0 { args.text(0)? } else { "" })?;
            out.push(item)?;
        }
        Ok(out.finish())
    }),
    ("sortAlpha", |args| {
        args.exactly(1)?;
        let mut items = match args.value(0)? {
            Value::Nil => vec![display(&Value::Nil)],
            other => strings(other),
        };
        items.sort();
        Ok(texts(items))
    }),
    ("toStrings", |args| {
        args.exactly(1)?;
        Ok(texts(strings(args.value(0)?)))
    }),
];

/// Returns a list of texts.
pub(super) fn texts(items: impl IntoIterator<Item = impl AsRef<str>>) -> Value {
    Value::List(items.into_iter().map(string).collect())
}

fn list_value(items: Vec<Value>) -> Value {
    Value::List(items.into())
}

fn tuple(args: &Args<'_>) -> Value {
    list_value(args.all().to_vec())
}

fn push(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(2)?;
    let mut items = args.list(0)?.to_vec();
    items.push(args.value(1)?.clone());
    Ok(list_value(items))
}

fn prepend(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(2)?;
    let mut items = vec![args.value(1)?.clone()];
    items.extend_from_slice(args.list(0)?);
    Ok(list_value(items))
}

fn end(args: &Args<'_>, of: fn(&[Value]) -> Option<&Value>) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(of(args.list(0)?).cloned().unwrap_or(Value::Nil))
}

fn part(args: &Args<'_>, of: fn(&[Value]) -> Option<&[Value]>) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(list_value(of(args.list(0)?).unwrap_or_default().to_vec()))
}

fn reverse(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(list_value(args.list(0)?.iter().rev().cloned().collect()))
}

/// Compares all pairs, so the number of pairs is limited.
fn uniq(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    let items = args.list(0)?;
    check_pairs(items.len(), items.len())?;
    let mut unique: Vec<Value> = Vec::new();
    for item in items {
        if !unique.contains(item) {
            unique.push(item.clone());
        }
    }
    Ok(list_value(unique))
}

fn without(args: &Args<'_>) -> Result<Value, Fault> {
    args.at_least(1)?;
    let (items, omitted) = (args.list(0)?, args.all().get(1..).unwrap_or_default());
    check_pairs(items.len(), omitted.len())?;
    Ok(list_value(
        items
            .iter()
            .filter(|item| !omitted.contains(item))
            .cloned()
            .collect(),
    ))
}

fn check_pairs(one: usize, other: usize) -> Result<(), Fault> {
    if one.saturating_mul(other) > 25_000_000 {
        return Err(Fault::new("the list is too long"));
    }
    Ok(())
}

fn has(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(2)?;
    Ok(Value::Bool(match args.value(1)? {
        Value::Nil => false,
        _ => args.list(1)?.contains(args.value(0)?),
    }))
}

fn compact(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(list_value(
        args.list(0)?
            .iter()
            .filter(|item| item.is_truthy())
            .cloned()
            .collect(),
    ))
}

fn slice(args: &Args<'_>) -> Result<Value, Fault> {
    args.at_least(1)?;
    let items = args.list(0)?;
    if items.is_empty() {
        return Ok(Value::Nil);
    }
    let bound = |index: usize, otherwise: usize| match args.all().get(index) {
        None => Ok(otherwise),
        Some(value) => {
            usize::try_from(super::math::to_int(value)).map_err(|_| Fault::new("a negative bound"))
        }
    };
    let range = bound(1, 0)?..bound(2, items.len())?;
    let part = items
        .get(range)
        .ok_or_else(|| Fault::new("the bounds are outside of the list"))?;
    Ok(list_value(part.to_vec()))
}

fn concat(args: &Args<'_>) -> Result<Value, Fault> {
    let mut items = Vec::new();
    for index in 0..args.all().len() {
        items.extend_from_slice(args.list(index)?);
    }
    Ok(list_value(items))
}

fn chunk(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(2)?;
    let size = usize::try_from(args.int(0)?).ok().filter(|size| *size > 0);
    let size = size.ok_or_else(|| Fault::new("the size of a chunk is not above zero"))?;
    Ok(list_value(
        args.list(1)?
            .chunks(size)
            .map(|part| Value::List(Arc::from(part)))
            .collect(),
    ))
}
