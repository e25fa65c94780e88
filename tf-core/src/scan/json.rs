//! Scan of the JSON syntax. Except for calls of modules, it is treated as text, since its strings are templates.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::{FILE_FUNCTIONS, Findings, SPLITTERS};

/// A document without duplicate members: the CLI accepts both, but a map keeps one.
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
                return Err(A::Error::custom("duplicate member"));
            }
        }
        Ok(Document(all.into()))
    }
}

/// Scans a file.
pub(super) fn scan(text: &str) -> Findings {
    let document = match serde_json::from_str(text) {
        Ok(Document(document)) => document,
        Err(error) if error.is_data() => {
            return Findings::wide("has an object with a duplicate member");
        }
        Err(_) => return Findings::wide("is not JSON"),
    };
    // Without escapes and white space, so that spelling does not matter.
    let mut text = String::new();
    strings(&document, &mut text);
    text.retain(|c| !c.is_whitespace());
    let calls = |name: &&&str| text.contains(&format!("{name}("));
    if let Some(name) = FILE_FUNCTIONS.iter().chain(&SPLITTERS).find(calls) {
        return Findings::wide(format!("calls {name} in JSON syntax"));
    }
    if text.contains("path.") || text.contains("..") {
        return Findings::wide("has paths in JSON syntax");
    }
    let mut findings = Findings::default();
    findings.flow.is_opaque = text.contains("${") || text.contains("%{");
    if let Some(called) = document.get("module") {
        sources(called, &mut findings);
    }
    findings
}

/// Collects all strings of a document, including names of members.
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

/// Adds the sources of the called modules, in any form of the syntax.
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
                            findings.add_source(source);
                        }
                    }
                    member => sources(member, findings),
                }
            }
        }
        _ => {}
    }
}
