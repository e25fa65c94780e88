//! CEL values of JSON: typed by the schema, with field names escaped that are not CEL identifiers.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cel::objects::Key;
use cel::{Context, Env, Program, Value as Cel};
use serde_json::{Map, Value};

use crate::schema::node::Node;

/// Returns the value of `self`, or why there is none.
pub(super) fn self_value(value: &Value, node: &Node, is_resource: bool) -> Result<Cel, String> {
    match type_mismatch(value, node) {
        Some(reason) => Err(format!("invalid data, {reason}")),
        None => Ok(to_cel(value, Some(node), is_resource)),
    }
}

/// Returns why a value does not have the type of its schema. Possible only where ratcheting ignores an old error.
fn type_mismatch(value: &Value, node: &Node) -> Option<String> {
    if value.is_null() {
        return None;
    }
    if node.extensions.int_or_string {
        let fits = value.is_string() || value.is_number();
        return (!fits).then(|| "expected XIntOrString value to be either a string or integer".to_owned());
    }
    let actual = match value {
        Value::Null | Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let (fits, expected) = match node.type_name.as_str() {
        "object" => (
            value.is_object(),
            "a map for the provided schema with type=object".to_owned(),
        ),
        "array" => (
            value.is_array(),
            "an array for the provided schema with type=array".to_owned(),
        ),
        "string" => (value.is_string(), format!("string, got {actual}")),
        "number" => (value.is_number(), format!("float, got {actual}")),
        "integer" => (value.is_number(), format!("int, got {actual}")),
        "boolean" => (value.is_boolean(), format!("bool, got {actual}")),
        _ => return None,
    };
    (!fits).then(|| format!("expected {expected}"))
}

/// Converts a value, typed by the schema where it fits.
fn to_cel(value: &Value, node: Option<&Node>, is_resource: bool) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or_default();
            if node.is_some_and(|node| node.type_name == "number") {
                return Cel::Float(float);
            }
            let is_whole = node.is_some_and(|node| node.allows_type("integer")) && float.fract() == 0.0;
            let integer = number.as_i64().or_else(|| is_whole.then(|| truncate(float)));
            integer.map_or(Cel::Float(float), Cel::Int)
        }
        Value::String(text) => to_cel_string(text, node),
        Value::Array(entries) => {
            let child = node.and_then(|node| node.items.as_deref());
            let is_resource = child.is_some_and(|child| child.extensions.embedded_resource);
            let entries: Vec<Cel> = entries
                .iter()
                .map(|entry| to_cel(entry, child, is_resource))
                .collect();
            Cel::List(entries.into())
        }
        Value::Object(fields) => to_map(fields, node, is_resource),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "only whole numbers come here; beyond i64 it saturates"
)]
fn truncate(value: f64) -> i64 {
    value as i64
}

fn to_map(fields: &Map<String, Value>, node: Option<&Node>, is_resource: bool) -> Cel {
    let mut entries = HashMap::with_capacity(fields.len());
    let declared = node.filter(|node| !node.properties.is_empty() || is_resource);
    for (name, field) in fields {
        let entry = match declared {
            Some(_) if is_resource && name == "metadata" => Some((name.clone(), visible_metadata(field))),
            Some(_) if is_resource && (name == "apiVersion" || name == "kind") => {
                Some((name.clone(), to_cel(field, None, false)))
            }
            // Rules see only declared fields.
            Some(node) => {
                let child = node.properties.get(name);
                child.map(|child| {
                    (
                        escape(name),
                        to_cel(field, Some(child), child.extensions.embedded_resource),
                    )
                })
            }
            None => {
                let child = node.and_then(Node::additional_schema);
                let is_resource = child.is_some_and(|child| child.extensions.embedded_resource);
                Some((name.clone(), to_cel(field, child, is_resource)))
            }
        };
        if let Some((name, field)) = entry {
            entries.insert(Key::String(Arc::new(name)), field);
        }
    }
    Cel::Map(entries.into())
}

/// Returns the metadata that rules see of a resource: its names.
fn visible_metadata(metadata: &Value) -> Cel {
    let named = ["name", "generateName"].into_iter().filter_map(|key| {
        let text = metadata.get(key)?.as_str()?;
        Some((Key::String(Arc::new(key.to_owned())), Cel::from(text)))
    });
    Cel::Map(named.collect::<HashMap<_, _>>().into())
}

/// Reserved words of CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Escapes a field name for rules: `foo-bar` is `foo__dash__bar`, `namespace` is `__namespace__`.
fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

/// Converts a string; if its format has a CEL type and it is well-formed, to that type.
fn to_cel_string(text: &str, node: Option<&Node>) -> Cel {
    let format = node
        .filter(|node| node.type_name == "string")
        .and_then(|node| node.format.as_ref());
    let format = format.map(|format| format.name.replace('-', ""));
    let typed = match format.as_deref() {
        Some("byte") => BASE64_STANDARD.decode(text).ok().map(Cel::from),
        Some("datetime") => convert(&TIMESTAMP, text.into()),
        Some("date") => convert(&TIMESTAMP, format!("{text}T00:00:00Z").into()),
        Some("duration") => convert(&DURATION, text.into()),
        _ => None,
    };
    typed.unwrap_or_else(|| text.into())
}

/// CEL's own conversion of a string to a type, which avoids naming the type here.
struct Conversion {
    env: Arc<Env>,
    program: Option<Program>,
}

impl Conversion {
    fn new(source: &str) -> Self {
        let env = Arc::new(Env::stdlib());
        Self {
            program: env.compile(source).ok(),
            env,
        }
    }
}

static TIMESTAMP: LazyLock<Conversion> = LazyLock::new(|| Conversion::new("timestamp(text)"));
static DURATION: LazyLock<Conversion> = LazyLock::new(|| Conversion::new("duration(text)"));

fn convert(conversion: &Conversion, text: Cel) -> Option<Cel> {
    let mut context = Context::with_env(Arc::clone(&conversion.env));
    context.add_variable_from_value("text", text);
    conversion.program.as_ref()?.execute(&context).ok()
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped_for_rules() {
        let table = [
            ("interval", "interval"),
            ("namespace", "__namespace__"),
            ("a-b", "a__dash__b"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
        ];
        for (name, escaped) in table {
            assert_eq!(escape(name), escaped);
        }
    }
}
