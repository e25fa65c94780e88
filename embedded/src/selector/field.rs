//! Field selectors: `path=value`, `path!=value`, joined by commas, on the few fields that a kind supports.

use serde_json::Value;

use crate::resource::{Resource, Strategy};

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    path: String,
    equal: bool,
    value: String,
}

impl Requirement {
    /// `metadata.name=name`.
    pub(super) fn name(name: &str) -> Self {
        Self {
            path: "metadata.name".into(),
            equal: true,
            value: name.into(),
        }
    }

    /// Whether this is `metadata.name=name`.
    pub(super) fn is_name(&self) -> bool {
        self.equal && self.path == "metadata.name"
    }

    /// Whether an object matches. An absent field is the empty string.
    pub(super) fn matches(&self, object: &Value) -> bool {
        (field_value(object, &self.path) == self.value) == self.equal
    }
}

fn field_value(object: &Value, path: &str) -> String {
    if path == "source" {
        let from = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let component = from(&object["source"]["component"]);
        return if component.is_empty() {
            from(&object["reportingComponent"])
        } else {
            component
        };
    }
    match path.split('.').try_fold(object, |at, name| at.get(name)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(truth)) => truth.to_string(),
        _ => String::new(),
    }
}

/// Parses a selector; an unsupported field is an error.
pub(super) fn parse(resource: &Resource, text: &str) -> Result<Vec<Requirement>, String> {
    let mut requirements = Vec::new();
    for term in split(text) {
        let requirement = parse_term(&term)?;
        let path = &requirement.path;
        if !supported_fields(resource.strategy, resource.namespaced).contains(&path.as_str())
            && !resource.selectable_fields.contains(path)
        {
            return Err(unsupported(resource.strategy, &requirement.path));
        }
        requirements.push(requirement);
    }
    Ok(requirements)
}

/// Returns the name that a selector requires; `None` if it requires none.
pub(super) fn required_name(text: &str) -> Option<String> {
    let terms = split(text);
    let mut requirements = terms.iter().filter_map(|term| parse_term(term).ok());
    let name = requirements.find(Requirement::is_name)?;
    Some(name.value)
}

fn unsupported(strategy: Strategy, path: &str) -> String {
    match strategy {
        Strategy::Custom | Strategy::Secret | Strategy::Namespace | Strategy::Event => {
            format!("field label not supported: {path}")
        }
        // The conversion of kinds without one of their own: `DefaultMetaV1FieldSelectorConversion`.
        _ => {
            format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
    }
}

fn supported_fields(strategy: Strategy, namespaced: bool) -> &'static [&'static str] {
    match strategy {
        Strategy::Secret => &["metadata.name", "metadata.namespace", "type"],
        Strategy::Namespace => &["metadata.name", "status.phase", "name"],
        Strategy::Event => &[
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        Strategy::Custom if !namespaced => &["metadata.name"],
        _ => &["metadata.name", "metadata.namespace"],
    }
}

/// Splits a selector at its commas; `\,` is a comma in a value. The terms keep their escape sequences.
fn split(text: &str) -> Vec<String> {
    let (mut terms, mut term, mut escaped) = (Vec::new(), String::new(), false);
    for character in text.chars() {
        if character == ',' && !escaped {
            terms.push(std::mem::take(&mut term));
        } else {
            term.push(character);
        }
        escaped = character == '\\' && !escaped;
    }
    terms.push(term);
    terms.retain(|term| !term.is_empty());
    terms
}

fn parse_term(term: &str) -> Result<Requirement, String> {
    let at = term.find(['=', '!']).ok_or_else(|| invalid_term(term))?;
    let (path, rest) = term.split_at(at);
    let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
        (false, value)
    } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        (true, value)
    } else {
        return Err(invalid_term(term));
    };
    Ok(Requirement {
        path: path.into(),
        equal,
        value: unescape(value),
    })
}

fn invalid_term(term: &str) -> String {
    format!("invalid selector: '{term}'; can't understand '{term}'")
}

fn unescape(value: &str) -> String {
    let mut text = String::new();
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        text.push(if character == '\\' {
            characters.next().unwrap_or('\\')
        } else {
            character
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_split_and_unescaped() {
        assert_eq!(split(r"a=b\,c,d!=e"), [r"a=b\,c", "d!=e"]);
        assert_eq!(parse_term(r"a=b\,c").unwrap().value, "b,c");
        assert_eq!(
            parse_term("a!=").unwrap(),
            Requirement {
                path: "a".into(),
                equal: false,
                value: String::new()
            }
        );
        assert!(parse_term("a").is_err());
    }

    #[test]
    fn a_name_in_the_value_of_another_field_is_not_required() {
        let name = |text: &str| required_name(text).unwrap_or_default();
        assert_eq!(name("metadata.namespace=a,metadata.name=b"), "b");
        assert_eq!(name("metadata.name==b"), "b");
        assert_eq!(required_name("metadata.name!=b"), None);
        assert_eq!(required_name(r"metadata.namespace!=a\,metadata.name=b"), None);
    }
}
