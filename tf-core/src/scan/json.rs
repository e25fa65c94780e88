//! The JSON syntax: looked at as text.

use super::{CUTTERS, Findings, READERS};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use std::fmt;

/// A document in which no object has a member twice: the CLI takes both, and a map keeps one.
struct Document(Value);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Document;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Ok(Document(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        Ok(Document(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
        Ok(Document(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Document, E> {
        Ok(Document(
            Number::from_f64(value).map_or(Value::Null, Value::Number),
        ))
    }

    fn visit_str<E>(self, value: &str) -> Result<Document, E> {
        Ok(Document(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Document, A::Error> {
        let mut all = Vec::new();
        while let Some(Document(element)) = elements.next_element()? {
            all.push(element);
        }
        Ok(Document(all.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Document, A::Error> {
        let mut all = Map::new();
        while let Some((name, Document(member))) = members.next_entry::<String, _>()? {
            if all.insert(name, member).is_some() {
                return Err(A::Error::custom("a member stands twice"));
            }
        }
        Ok(Document(all.into()))
    }
}

/// The JSON syntax is looked at as text: its strings are templates of the same language. Only the modules that it calls are
/// told apart.
pub(super) fn scan(text: &str) -> Findings {
    let document = match serde_json::from_str(text) {
        Ok(Document(document)) => document,
        Err(error) if error.is_data() => {
            return Findings::wide("has an object with a member that stands twice");
        }
        Err(_) => return Findings::wide("is no JSON"),
    };
    // As it is meant, not as it is spelled: without escapes, and without the space that may stand before a bracket.
    let mut said = String::new();
    strings(&document, &mut said);
    said.retain(|c| !c.is_whitespace());
    let calls = |name: &&&str| said.contains(&format!("{name}("));
    if let Some(name) = READERS.iter().chain(&CUTTERS).find(calls) {
        return Findings::wide(format!("calls {name} in JSON syntax"));
    }
    if said.contains("path.") || said.contains("..") {
        return Findings::wide("names paths in JSON syntax");
    }
    let mut findings = Findings::default();
    findings.flow.is_opaque = said.contains("${") || said.contains("%{");
    if let Some(called) = document.get("module") {
        sources(called, &mut findings);
    }
    findings
}

/// All texts of a document, names of members too.
fn strings(value: &Value, all: &mut String) {
    match value {
        Value::String(text) => {
            all.push_str(text);
            all.push('\0');
        }
        Value::Array(elements) => elements.iter().for_each(|element| strings(element, all)),
        Value::Object(members) => {
            for (name, member) in members {
                all.push_str(name);
                all.push('\0');
                strings(member, all);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The sources of the modules that are called, in whichever of its forms the syntax has them.
fn sources(called: &Value, findings: &mut Findings) {
    match called {
        Value::Array(elements) => elements.iter().for_each(|element| sources(element, findings)),
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(source) if name == "source" => {
                        if source.contains("${") || source.contains("%{") {
                            *findings = Findings::wide("a module source is computed");
                        } else {
                            findings.source(source);
                        }
                    }
                    member => sources(member, findings),
                }
            }
        }
        _ => {}
    }
}
