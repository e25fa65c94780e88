//! The typed values of `readInputsFromSecrets` (pure): a Secret as another stack's `writeOutputsToSecret` writes it, where
//! `<key>__type` tells the type of the JSON under `<key>`. A key without a type is text; bytes that are none get replacement
//! characters.

use super::Pairs;
use serde_json::{Map, Value};

/// Ends the keys that hold types.
const TYPE: &str = "__type";
/// Deepest type that is read.
const DEPTH: usize = 64;

/// Why a Secret holds no inputs. Never with a value in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputsError {
    /// A type is none of Terraform's.
    #[error("the key \"{0}__type\" holds no type of Terraform, such as \"number\" or [\"list\",\"string\"]")]
    NoType(String),
    /// A value is not of its type.
    #[error("the value of key {0:?} is no JSON of the type that \"{0}__type\" tells")]
    Mismatch(String),
}

/// The inputs of one Secret.
///
/// # Errors
/// [`InputsError`], with the key.
pub fn typed(pairs: &Pairs) -> Result<Map<String, Value>, InputsError> {
    let mut inputs = Map::new();
    for (key, bytes) in pairs.iter().filter(|(key, _)| !key.ends_with(TYPE)) {
        let value = match pairs.get(&format!("{key}{TYPE}")) {
            None => Value::String(String::from_utf8_lossy(bytes).into_owned()),
            Some(kind) => {
                let kind = serde_json::from_slice(kind).map_err(|_| InputsError::NoType(key.clone()))?;
                let value = serde_json::from_slice(bytes).map_err(|_| InputsError::Mismatch(key.clone()))?;
                decode(value, &kind, 0).map_err(|wrong| match wrong {
                    Wrong::Type => InputsError::NoType(key.clone()),
                    Wrong::Value => InputsError::Mismatch(key.clone()),
                })?
            }
        };
        inputs.insert(key.clone(), value);
    }
    Ok(inputs)
}

enum Wrong {
    Type,
    Value,
}

/// A value as its type wants it: texts that are numbers become numbers where a number is wanted, and so on.
fn decode(value: Value, kind: &Value, depth: usize) -> Result<Value, Wrong> {
    if depth > DEPTH {
        return Err(Wrong::Type);
    }
    match kind {
        Value::String(name) => simple(value, name, depth),
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(name), of, ..] => nested(value, name, of, depth + 1),
            _ => Err(Wrong::Type),
        },
        _ => Err(Wrong::Type),
    }
}

fn simple(value: Value, name: &str, depth: usize) -> Result<Value, Wrong> {
    match (name, value) {
        ("string" | "number" | "bool" | "dynamic", Value::Null) => Ok(Value::Null),
        ("string", text @ Value::String(_)) => Ok(text),
        ("string", value @ (Value::Number(_) | Value::Bool(_))) => Ok(Value::String(value.to_string())),
        ("number", number @ Value::Number(_)) => Ok(number),
        ("number", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(number @ Value::Number(_)) => Ok(number),
            _ => Err(Wrong::Value),
        },
        ("bool", truth @ Value::Bool(_)) => Ok(truth),
        ("bool", Value::String(text)) => match text.as_str() {
            "true" | "1" => Ok(Value::Bool(true)),
            "false" | "0" => Ok(Value::Bool(false)),
            _ => Err(Wrong::Value),
        },
        ("dynamic", Value::Object(mut both)) => match (both.remove("type"), both.remove("value")) {
            (Some(kind), Some(value)) => decode(value, &kind, depth + 1),
            _ => Err(Wrong::Value),
        },
        ("string" | "number" | "bool" | "dynamic", _) => Err(Wrong::Value),
        _ => Err(Wrong::Type),
    }
}

fn nested(value: Value, name: &str, of: &Value, depth: usize) -> Result<Value, Wrong> {
    match (name, value) {
        ("list" | "set" | "map" | "tuple" | "object", Value::Null) => Ok(Value::Null),
        ("list", Value::Array(items)) => each(items, of, depth).map(Value::Array),
        ("set", Value::Array(items)) => {
            let mut kept: Vec<Value> = Vec::new();
            for item in each(items, of, depth)? {
                if !kept.contains(&item) {
                    kept.push(item);
                }
            }
            Ok(Value::Array(kept))
        }
        ("map", Value::Object(members)) => {
            let decoded = members
                .into_iter()
                .map(|(key, value)| Ok((key, decode(value, of, depth)?)));
            decoded.collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        ("tuple", Value::Array(items)) => {
            let kinds = of.as_array().ok_or(Wrong::Type)?;
            if kinds.len() != items.len() {
                return Err(Wrong::Value);
            }
            let decoded = items.into_iter().zip(kinds);
            let decoded = decoded.map(|(value, kind)| decode(value, kind, depth));
            decoded.collect::<Result<_, _>>().map(Value::Array)
        }
        ("object", Value::Object(mut members)) => {
            let kinds = of.as_object().ok_or(Wrong::Type)?;
            let decoded: Map<String, Value> = kinds
                .iter()
                .map(|(key, kind)| {
                    let value = members.remove(key).unwrap_or(Value::Null);
                    Ok((key.clone(), decode(value, kind, depth)?))
                })
                .collect::<Result<_, _>>()?;
            if members.is_empty() {
                Ok(Value::Object(decoded))
            } else {
                Err(Wrong::Value)
            }
        }
        ("list" | "set" | "map" | "tuple" | "object", _) => Err(Wrong::Value),
        _ => Err(Wrong::Type),
    }
}

fn each(items: Vec<Value>, of: &Value, depth: usize) -> Result<Vec<Value>, Wrong> {
    items.into_iter().map(|item| decode(item, of, depth)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn pairs(all: &[(&str, &str)]) -> Pairs {
        let own = |text: &&str| text.as_bytes().to_vec();
        all.iter()
            .map(|(key, value)| ((*key).to_owned(), own(value)))
            .collect()
    }

    #[test]
    fn each_type_of_terraform_is_decoded() {
        let secret = pairs(&[
            ("a", "plain"),
            ("b", "true"),
            ("b__type", r#""bool""#),
            ("c", "1.5"),
            ("c__type", r#""number""#),
            ("d", r#""text""#),
            ("d__type", r#""string""#),
            ("e", "null"),
            ("e__type", r#""string""#),
            ("f", r#"["x","y","x"]"#),
            ("f__type", r#"["list","string"]"#),
            ("g", r#"["x","y","x"]"#),
            ("g__type", r#"["set","string"]"#),
            ("h", r#"{"k":1}"#),
            ("h__type", r#"["map","number"]"#),
            ("i", r#"{"n":"1","s":2,"o":{"t":[true,"x"]}}"#),
            (
                "i__type",
                r#"["object",{"n":"number","s":"string","o":["object",{"t":["tuple",["bool","string"]],"u":"string"}]}]"#,
            ),
            ("j", r#"[1,"x"]"#),
            ("j__type", r#"["tuple",["number","string"]]"#),
            ("k", r#"{"type":["list","bool"],"value":[true]}"#),
            ("k__type", r#""dynamic""#),
        ]);
        assert_eq!(
            Value::Object(typed(&secret).unwrap()),
            json!({ "a": "plain", "b": true, "c": 1.5, "d": "text", "e": null, "f": ["x", "y", "x"], "g": ["x", "y"],
                "h": { "k": 1 }, "i": { "n": 1, "s": "2", "o": { "t": [true, "x"], "u": null } }, "j": [1, "x"], "k": [true] })
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key_and_not_shown() {
        for (value, kind, wanted) in [
            ("hunter2", r#""number""#, InputsError::Mismatch("k".into())),
            (r#""hunter2""#, r#""bool""#, InputsError::Mismatch("k".into())),
            (
                r#"["hunter2"]"#,
                r#"["tuple",[]]"#,
                InputsError::Mismatch("k".into()),
            ),
            (
                r#"{"hunter2":1}"#,
                r#"["object",{}]"#,
                InputsError::Mismatch("k".into()),
            ),
            ("1", "hunter2", InputsError::NoType("k".into())),
            ("1", r#""integer""#, InputsError::NoType("k".into())),
            ("[1]", r#"["bag","number"]"#, InputsError::NoType("k".into())),
        ] {
            let error = typed(&pairs(&[("k", value), ("k__type", kind)])).unwrap_err();
            assert_eq!(error, wanted, "{value} as {kind}");
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }

    proptest! {
        #[test]
        fn no_secret_breaks_it(value in any::<Vec<u8>>(), kind in "[\\[\\]{}\",:a-z0-9]{0,40}") {
            let secret: Pairs = [("k".to_owned(), value), ("k__type".to_owned(), kind.into_bytes())].into();
            let _ = typed(&secret);
        }
    }
}
