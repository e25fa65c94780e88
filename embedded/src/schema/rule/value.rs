//! JSON values as rules see them: typed by the schema, with field names escaped where CEL could not write them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cel::objects::Key;
use cel::{Context, Env, Program, Value as Cel};
use serde_json::{Map, Value};

use crate::schema::node::Node;

/// What a rule sees of a value; a text says why it cannot be shown.
pub(super) fn to_cel(value: &Value, node: Option<&Node>, is_resource: bool) -> Result<Cel, String> {
    match value {
        Value::Null => Ok(Cel::Null),
        Value::Bool(flag) => Ok(Cel::Bool(*flag)),
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or_default();
            if node.is_some_and(|node| node.type_name == "number") {
                return Ok(Cel::Float(float));
            }
            let is_whole = node.is_some_and(|node| node.allows("integer")) && float.fract() == 0.0;
            Ok(number
                .as_i64()
                .or_else(|| is_whole.then(|| truncate(float)))
                .map_or(Cel::Float(float), Cel::Int))
        }
        Value::String(text) => to_text(text, node),
        Value::Array(entries) => {
            let below = node.and_then(|node| node.items.as_deref());
            let is_resource = below.is_some_and(|below| below.extensions.embedded_resource);
            let entries: Result<Vec<Cel>, String> = entries
                .iter()
                .map(|entry| to_cel(entry, below, is_resource))
                .collect();
            Ok(Cel::List(entries?.into()))
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

fn to_map(fields: &Map<String, Value>, node: Option<&Node>, is_resource: bool) -> Result<Cel, String> {
    let mut shown = HashMap::with_capacity(fields.len());
    let declared = node.filter(|node| !node.properties.is_empty() || is_resource);
    for (name, field) in fields {
        let entry = match declared {
            Some(_) if is_resource && name == "metadata" => Some((name.clone(), metadata(field))),
            Some(_) if is_resource && (name == "apiVersion" || name == "kind") => {
                Some((name.clone(), to_cel(field, None, false)?))
            }
            // Fields that the schema does not declare are no part of what a rule sees.
            Some(node) => node
                .properties
                .get(name)
                .map(|below| below_field(name, field, below))
                .transpose()?,
            None => {
                let below = node.and_then(Node::additional_schema);
                let is_resource = below.is_some_and(|below| below.extensions.embedded_resource);
                Some((name.clone(), to_cel(field, below, is_resource)?))
            }
        };
        if let Some((name, field)) = entry {
            shown.insert(Key::String(Arc::new(name)), field);
        }
    }
    Ok(Cel::Map(shown.into()))
}

fn below_field(name: &str, field: &Value, below: &Node) -> Result<(String, Cel), String> {
    Ok((
        escape(name),
        to_cel(field, Some(below), below.extensions.embedded_resource)?,
    ))
}

/// Of a resource's metadata, rules see the name.
fn metadata(metadata: &Value) -> Cel {
    let named = ["name", "generateName"].into_iter().filter_map(|key| {
        let text = metadata.get(key)?.as_str()?;
        Some((Key::String(Arc::new(key.to_owned())), Cel::from(text)))
    });
    Cel::Map(named.collect::<HashMap<_, _>>().into())
}

/// Words that CEL keeps for itself.
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

/// A field name as rules write it: `foo-bar` is `foo__dash__bar`, `namespace` is `__namespace__`.
fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

/// Strings whose format CEL has a type for become that type.
fn to_text(text: &str, node: Option<&Node>) -> Result<Cel, String> {
    let format = node
        .filter(|node| node.type_name == "string")
        .and_then(|node| node.format.as_ref());
    let format = format.map(|format| format.name.replace('-', ""));
    match format.as_deref() {
        Some("byte") => BASE64_STANDARD
            .decode(text)
            .map(Cel::from)
            .map_err(|error| format!("invalid byte string: {error}")),
        Some("datetime") => convert(&TIMESTAMP, text.into()),
        Some("date") => convert(&TIMESTAMP, format!("{text}T00:00:00Z").into()),
        Some("duration") => convert(&DURATION, text.into()),
        _ => Ok(text.into()),
    }
}

/// CEL's own conversion of a string, so that its types need not be named here.
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

fn convert(conversion: &Conversion, text: Cel) -> Result<Cel, String> {
    let Some(program) = &conversion.program else {
        return Err("conversion not available".to_owned());
    };
    let mut context = Context::with_env(Arc::clone(&conversion.env));
    context.add_variable_from_value("text", text);
    program.execute(&context).map_err(|error| error.to_string())
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
