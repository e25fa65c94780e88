//! Elements of a field path: the keys of `fieldsV1` and the paths of conflicts, as in structured-merge-diff. Pure.

use std::fmt;

use serde_json::{Map, Value};

/// A scalar within a path element, with an order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scalar {
    /// An integer.
    Integer(i64),
    /// Any other number, in its JSON form.
    Number(String),
    /// A string.
    Text(String),
    /// A boolean.
    Bool(bool),
    /// `null`.
    Null,
}

impl Scalar {
    /// Returns the scalar of a JSON value; `None` for a list or an object.
    pub(super) fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(Self::Null),
            Value::Bool(flag) => Some(Self::Bool(*flag)),
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Number(number) => Some(
                number
                    .as_i64()
                    .map_or_else(|| Self::Number(number.to_string()), Self::Integer),
            ),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(*flag),
            Self::Text(text) => Value::String(text.clone()),
            Self::Integer(number) => Value::from(*number),
            Self::Number(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_value())
    }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    /// `f:name`: a field of an object.
    Field(String),
    /// `k:{"name":"x"}`: the entry of a list of type map with these keys, sorted by name.
    Key(Vec<(String, Scalar)>),
    /// `v:"x"`: the entry of a set.
    Value(Scalar),
    /// `i:0`: the entry of a list by its index.
    Index(i64),
}

impl Element {
    /// Creates the element of a field.
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// Parses a key of `fieldsV1`; `None` if it is malformed, or holds a list or an object.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, content) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(content.to_owned())),
            "v" => {
                let value: Value = serde_json::from_str(content).ok()?;
                Scalar::from_value(&value).map(Self::Value)
            }
            "i" => content.parse().ok().map(Self::Index),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(content).ok()?;
                let keys = keys
                    .iter()
                    .map(|(name, value)| Some((name.clone(), Scalar::from_value(value)?)));
                let mut keys: Vec<(String, Scalar)> = keys.collect::<Option<_>>()?;
                keys.sort();
                Some(Self::Key(keys))
            }
            _ => None,
        }
    }

    /// Returns the key of `fieldsV1`.
    pub(super) fn to_key(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
            Self::Key(keys) => {
                let keys = keys.iter().map(|(name, value)| (name.clone(), value.to_value()));
                format!("k:{}", Value::Object(keys.collect()))
            }
        }
    }
}

/// The form in messages: `.name`, `[name="x"]`, `[="x"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                write!(f, "[{}]", keys.join(","))
            }
        }
    }
}

/// Returns a path in the form of messages.
pub(super) fn display(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_fields_v1_are_parsed_and_written_back() {
        for (key, shown) in [
            ("f:spec", ".spec"),
            ("f:a:b/c", ".a:b/c"),
            (r#"v:"x""#, r#"[="x"]"#),
            ("v:1.5", "[=1.5]"),
            ("v:true", "[=true]"),
            ("i:3", "[3]"),
            (r#"k:{"name":"x","port":80}"#, r#"[name="x",port=80]"#),
        ] {
            let element = Element::parse(key).unwrap_or_else(|| panic!("{key}"));
            assert_eq!(element.to_key(), key);
            assert_eq!(element.to_string(), shown);
        }
        for malformed in ["", "f", "x:1", "v:", "v:{}", "k:[]", r#"k:{"a":[1]}"#, "i:a"] {
            assert_eq!(Element::parse(malformed), None, "{malformed}");
        }
    }
}
