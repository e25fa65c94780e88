//! Maps. They are immutable: changing functions return a new map, and `set $m ..` assigns it to `$m`.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::Value;

use super::lists::texts;
use super::{Args, Fault, Table};
use crate::template::value::{display, string};

/// A map of a template.
type Map = BTreeMap<Arc<str>, Value>;

/// Functions by name.
pub(super) const TABLE: Table = &[
    ("dict", |args| Ok(dict(args))),
    ("get", |args| {
        args.exactly(2)?;
        let found = read(args, 0)?.get(args.text(1)?);
        Ok(found.cloned().unwrap_or_else(|| string("")))
    }),
    ("set", |args| {
        args.exactly(3)?;
        let mut map = Map::clone(args.map(0)?);
        map.insert(Arc::from(args.text(1)?), args.value(2)?.clone());
        Ok(map_value(map))
    }),
    ("unset", |args| {
        args.exactly(2)?;
        let mut map = read(args, 0)?.clone();
        map.remove(args.text(1)?);
        Ok(map_value(map))
    }),
    ("hasKey", |args| {
        args.exactly(2)?;
        Ok(Value::Bool(read(args, 0)?.contains_key(args.text(1)?)))
    }),
    ("pluck", |args| {
        let key = args.text(0)?;
        let mut found = Vec::new();
        for index in 1..args.all().len() {
            found.extend(read(args, index)?.get(key).cloned());
        }
        Ok(Value::List(found.into()))
    }),
    ("keys", |args| {
        let mut keys = Vec::new();
        for index in 0..args.all().len() {
            keys.extend(read(args, index)?.keys().cloned());
        }
        Ok(texts(keys))
    }),
    ("values", |args| {
        args.exactly(1)?;
        Ok(Value::List(read(args, 0)?.values().cloned().collect()))
    }),
    ("pick", |args| filter(args, true)),
    ("omit", |args| filter(args, false)),
    ("merge", |args| merge(args, false)),
    ("mustMerge", |args| merge(args, false)),
    ("mergeOverwrite", |args| merge(args, true)),
    ("mustMergeOverwrite", |args| merge(args, true)),
    ("dig", dig),
];

/// Returns a map argument; nil is an empty map.
fn read<'a>(args: &Args<'a>, index: usize) -> Result<&'a Map, Fault> {
    static EMPTY: Map = Map::new();
    match args.value(index)? {
        Value::Nil => Ok(&EMPTY),
        _ => args.map(index).map(Arc::as_ref),
    }
}

fn map_value(map: Map) -> Value {
    Value::Map(Arc::new(map))
}

fn dict(args: &Args<'_>) -> Value {
    let pairs = args.all().chunks(2);
    map_value(
        pairs
            .filter_map(|pair| {
                let (key, value) = (pair.first()?, pair.get(1));
                Some((
                    Arc::from(display(key)),
                    value.cloned().unwrap_or_else(|| string("")),
                ))
            })
            .collect(),
    )
}

fn filter(args: &Args<'_>, listed: bool) -> Result<Value, Fault> {
    let map = read(args, 0)?;
    let mut names = std::collections::BTreeSet::new();
    for index in 1..args.all().len() {
        names.insert(args.text(index)?);
    }
    let filtered = map
        .iter()
        .filter(|(key, _)| names.contains(key.as_ref()) == listed);
    Ok(map_value(
        filtered
            .map(|(key, value)| (Arc::clone(key), value.clone()))
            .collect(),
    ))
}

fn merge(args: &Args<'_>, overwrite: bool) -> Result<Value, Fault> {
    let mut target = Map::clone(args.map(0)?);
    for index in 1..args.all().len() {
        merge_into(&mut target, read(args, index)?, overwrite);
    }
    Ok(map_value(target))
}

/// Merges as mergo: maps recursively, and empty values are replaced.
fn merge_into(target: &mut Map, source: &Map, overwrite: bool) {
    for (key, value) in source {
        match (target.get_mut(key), value) {
            (Some(Value::Map(inner)), Value::Map(other)) => {
                merge_into(Arc::make_mut(inner), other, overwrite);
            }
            (Some(current), value) if overwrite || !current.is_truthy() => {
                *current = value.clone();
            }
            (Some(_), _) => {}
            (None, Value::Nil) if !overwrite => {}
            (None, value) => {
                target.insert(Arc::clone(key), value.clone());
            }
        }
    }
}

fn dig(args: &Args<'_>) -> Result<Value, Fault> {
    args.at_least(3)?;
    let count = args.all().len();
    let mut map = args.map(count - 1)?;
    for index in 0..count - 2 {
        let Some(step) = map.get(args.text(index)?) else {
            return Ok(args.value(count - 2)?.clone());
        };
        match step {
            _ if index + 1 == count - 2 => return Ok(step.clone()),
            Value::Map(inner) => map = inner,
            other => {
                return Err(Fault::new(format!(
                    "a step leads to a {}, not a map",
                    other.type_name()
                )));
            }
        }
    }
    Ok(args.value(count - 2)?.clone())
}
