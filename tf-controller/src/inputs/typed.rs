//! Decodes the typed values of `readInputsFromSecrets`: a Secret as `writeOutputsToSecret` of another stack writes it, where
//! `<key>__type` is the type of the JSON in `<key>`. A value without a type is text, with replacement characters if it is not
//! UTF-8. Pure.

use serde_json::{Map, Value};

use super::Pairs;

/// Suffix of the keys of types.
const TYPE_SUFFIX: &str = "__type";
/// Maximum depth of a type.
const MAX_DEPTH: usize = 64;

/// Why a Secret cannot be decoded. Contains no value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InputsError {
    /// Not a type of Terraform.
    #[error(
        "the value of key \"{0}__type\" is not a type of Terraform, such as \"number\" or [\"list\",\"string\"]"
    )]
    InvalidType(String),
    /// A value does not have its type.
    #[error("the value of key {0:?} is not JSON of the type in \"{0}__type\"")]
    TypeMismatch(String),
}

/// Decodes the inputs of one Secret.
pub(crate) fn decode_inputs(pairs: &Pairs) -> Result<Map<String, Value>, InputsError> {
    let mut inputs = Map::new();
    for (key, bytes) in pairs.iter().filter(|(key, _)| !key.ends_with(TYPE_SUFFIX)) {
        let value = match pairs.get(&format!("{key}{TYPE_SUFFIX}")) {
            None => Value::String(String::from_utf8_lossy(bytes).into_owned()),
            Some(kind) => {
                let kind = serde_json::from_slice(kind).map_err(|_| InputsError::InvalidType(key.clone()))?;
                let value =
                    serde_json::from_slice(bytes).map_err(|_| InputsError::TypeMismatch(key.clone()))?;
                decode(value, &kind, 0).map_err(|error| match error {
                    DecodeError::Type => InputsError::InvalidType(key.clone()),
                    DecodeError::Value => InputsError::TypeMismatch(key.clone()),
                })?
            }
        };
        inputs.insert(key.clone(), value);
    }
    Ok(inputs)
}

enum DecodeError {
    Type,
    Value,
}

/// Converts a value to its type: for example a text to a number.
fn decode(value: Value, kind: &Value, depth: usize) -> Result<Value, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::Type);
    }
    match kind {
        Value::String(name) => simple(value, name, depth),
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(name), of, ..] => nested(value, name, of, depth + 1),
            _ => Err(DecodeError::Type),
        },
        _ => Err(DecodeError::Type),
    }
}

fn simple(value: Value, name: &str, depth: usize) -> Result<Value, DecodeError> {
    match (name, value) {
        ("string" | "number" | "bool" | "dynamic", Value::Null) => Ok(Value::Null),
        ("string", text @ Value::String(_)) => Ok(text),
        ("string", value @ (Value::Number(_) | Value::Bool(_))) => Ok(Value::String(value.to_string())),
        ("number", number @ Value::Number(_)) => Ok(number),
        ("number", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(number @ Value::Number(_)) => Ok(number),
            _ => Err(DecodeError::Value),
        },
        ("bool", truth @ Value::Bool(_)) => Ok(truth),
        ("bool", Value::String(text)) => match text.as_str() {
            "true" | "1" => Ok(Value::Bool(true)),
            "false" | "0" => Ok(Value::Bool(false)),
            _ => Err(DecodeError::Value),
        },
        ("dynamic", Value::Object(mut both)) => match (both.remove("type"), both.remove("value")) {
            (Some(kind), Some(value)) => decode(value, &kind, depth + 1),
            _ => Err(DecodeError::Value),
        },
        ("string" | "number" | "bool" | "dynamic", _) => Err(DecodeError::Value),
        _ => Err(DecodeError::Type),
    }
}

fn nested(value: Value, name: &str, of: &Value, depth: usize) -> Result<Value, DecodeError> {
    match (name, value) {
        ("list" | "set" | "map" | "tuple" | "object", Value::Null) => Ok(Value::Null),
        ("list", Value::Array(items)) => decode_each(items, of, depth).map(Value::Array),
        ("set", Value::Array(items)) => {
            let mut unique: Vec<Value> = Vec::new();
            for item in decode_each(items, of, depth)? {
                if !unique.contains(&item) {
                    unique.push(item);
                }
            }
            Ok(Value::Array(unique))
        }
        ("map", Value::Object(members)) => {
            let decoded = members
                .into_iter()
                .map(|(key, value)| Ok((key, decode(value, of, depth)?)));
            decoded.collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        ("tuple", Value::Array(items)) => {
            let kinds = of.as_array().ok_or(DecodeError::Type)?;
            if kinds.len() != items.len() {
                return Err(DecodeError::Value);
            }
            let decoded = items.into_iter().zip(kinds);
            let decoded = decoded.map(|(value, kind)| decode(value, kind, depth));
            decoded.collect::<Result<_, _>>().map(Value::Array)
        }
        ("object", Value::Object(mut members)) => {
            let kinds = of.as_object().ok_or(DecodeError::Type)?;
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
                Err(DecodeError::Value)
            }
        }
        ("list" | "set" | "map" | "tuple" | "object", _) => Err(DecodeError::Value),
        _ => Err(DecodeError::Type),
    }
}

fn decode_each(items: Vec<Value>, of: &Value, depth: usize) -> Result<Vec<Value>, DecodeError> {
    items.into_iter().map(|item| decode(item, of, depth)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

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
            Value::Object(decode_inputs(&secret).unwrap()),
            json!({ "a": "plain", "b": true, "c": 1.5, "d": "text", "e": null, "f": ["x", "y", "x"], "g": ["x", "y"],
                "h": { "k": 1 }, "i": { "n": 1, "s": "2", "o": { "t": [true, "x"], "u": null } }, "j": [1, "x"], "k": [true] })
        );
    }

    #[test]
    fn invalid_values_are_reported_by_key_and_not_quoted() {
        for (value, kind, expected) in [
            ("hunter2", r#""number""#, InputsError::TypeMismatch("k".into())),
            (r#""hunter2""#, r#""bool""#, InputsError::TypeMismatch("k".into())),
            (
                r#"["hunter2"]"#,
                r#"["tuple",[]]"#,
                InputsError::TypeMismatch("k".into()),
            ),
            (
                r#"{"hunter2":1}"#,
                r#"["object",{}]"#,
                InputsError::TypeMismatch("k".into()),
            ),
            ("1", "hunter2", InputsError::InvalidType("k".into())),
            ("1", r#""integer""#, InputsError::InvalidType("k".into())),
            ("[1]", r#"["bag","number"]"#, InputsError::InvalidType("k".into())),
        ] {
            let error = decode_inputs(&pairs(&[("k", value), ("k__type", kind)])).unwrap_err();
            assert_eq!(error, expected, "{value} as {kind}");
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }

    proptest! {
        #[test]
        fn no_secret_breaks_it(value in any::<Vec<u8>>(), kind in "[\\[\\]{}\",:a-z0-9]{0,40}") {
            let secret: Pairs = [("k".to_owned(), value), ("k__type".to_owned(), kind.into_bytes())].into();
            let _ = decode_inputs(&secret);
        }
    }
}
