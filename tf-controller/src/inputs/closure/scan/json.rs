//! The JSON syntax: looked at as text.

use super::{CUTTERS, Findings, READERS};
use serde_json::Value;

/// The JSON syntax is looked at as text: its strings are templates of the same language. Only the modules that it calls are
/// told apart.
pub(super) fn scan(text: &str) -> Findings {
    let Ok(document) = serde_json::from_str::<Value>(text) else {
        return Findings::wide("is no JSON");
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
