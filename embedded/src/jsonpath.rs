//! The subset of Kubernetes' JSONPath that printer columns use: `.a.b`, `['a']`, `[0]`, `[*]`, `[?(@.a=="b")]`.

use serde_json::Value;

/// A compiled path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Wildcard,
    Filter {
        path: Vec<String>,
        equal: bool,
        value: Value,
    },
}

/// The error of a path that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("JSONPath {path:?}: {reason}")]
pub(crate) struct PathError {
    path: String,
    reason: &'static str,
}

impl Path {
    /// Parses a path relative to the object root.
    pub(crate) fn parse(path: &str) -> Result<Self, PathError> {
        parse(path).map(Self).map_err(|reason| PathError {
            path: path.into(),
            reason,
        })
    }

    /// Returns all values that the path reaches.
    pub(crate) fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![object];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => item(value, *index).into_iter().collect(),
            Self::Wildcard => children(value),
            Self::Filter {
                path,
                equal,
                value: expected,
            } => children(value)
                .into_iter()
                .filter(|child| {
                    let actual = path.iter().try_fold(*child, |at, name| at.get(name));
                    actual.is_some_and(|actual| (actual == expected) == *equal)
                })
                .collect(),
        }
    }
}

fn item(value: &Value, index: i64) -> Option<&Value> {
    let list = value.as_array()?;
    let position = if index < 0 {
        index + i64::try_from(list.len()).ok()?
    } else {
        index
    };
    list.get(usize::try_from(position).ok()?)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn parse(text: &str) -> Result<Vec<Step>, &'static str> {
    let mut steps = Vec::new();
    let mut rest = text.strip_prefix('$').unwrap_or(text);
    if !rest.starts_with(['.', '[']) {
        return Err("must start with a dot or a bracket");
    }
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (inside, after) = split_bracket(after)?;
            steps.push(parse_subscript(inside)?);
            rest = after;
        } else {
            let after = rest.strip_prefix('.').ok_or("expected a dot or a bracket")?;
            let (name, after) = split_field(after);
            match name.as_str() {
                "" if after.starts_with('[') || (after.is_empty() && steps.is_empty()) => {}
                "" => return Err("a field has no name"),
                "*" => steps.push(Step::Wildcard),
                _ => steps.push(Step::Field(name)),
            }
            rest = after;
        }
    }
    Ok(steps)
}

/// Splits off a field name, in which `\.` is a literal dot.
fn split_field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => name.push(character),
        }
    }
    (name, "")
}

/// Splits at the closing bracket, ignoring brackets in quotes.
fn split_bracket(text: &str) -> Result<(&str, &str), &'static str> {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, ']') => return Ok((&text[..at], &text[at + 1..])),
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    Err("a bracket is not closed")
}

fn parse_subscript(text: &str) -> Result<Step, &'static str> {
    let text = text.trim();
    if let Some(condition) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return parse_filter(condition);
    }
    if text == "*" {
        return Ok(Step::Wildcard);
    }
    if let Some(name) = unquote(text) {
        return Ok(Step::Field(name.into()));
    }
    text.parse()
        .map(Step::Index)
        .map_err(|_| "a subscript is neither a number, a name nor a filter")
}

fn parse_filter(condition: &str) -> Result<Step, &'static str> {
    let (left, equal, right) = match (condition.split_once("=="), condition.split_once("!=")) {
        (Some((left, right)), _) => (left, true, right),
        (None, Some((left, right))) => (left, false, right),
        (None, None) => return Err("a filter must compare with == or !="),
    };
    let path = left
        .trim()
        .strip_prefix("@.")
        .ok_or("the left side of a filter must start with @.")?;
    let right = right.trim();
    let value = match unquote(right) {
        Some(text) => text.into(),
        None => serde_json::from_str(right).map_err(|_| "the right side of a filter is not a literal")?,
    };
    Ok(Step::Filter {
        path: path.split('.').map(str::to_owned).collect(),
        equal,
        value,
    })
}

fn unquote(text: &str) -> Option<&str> {
    ['"', '\'']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn found(path: &str) -> Vec<Value> {
        let object = json!({
            "spec": {"url": "https://a", "a.b": 1, "list": [1, 2, 3]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "n": 1},
                {"type": "Stalled", "status": "False", "n": 2},
            ]},
        });
        Path::parse(path)
            .unwrap()
            .find(&object)
            .into_iter()
            .cloned()
            .collect()
    }

    #[test]
    fn paths_of_printer_columns_are_evaluated() {
        assert_eq!(found(".spec.url"), [json!("https://a")]);
        assert_eq!(found(r".spec.a\.b"), [json!(1)]);
        assert_eq!(found(".spec['a.b']"), [json!(1)]);
        assert_eq!(found(".spec.list[1]"), [json!(2)]);
        assert_eq!(found(".spec.list[-1]"), [json!(3)]);
        assert_eq!(found(".spec.list[*]"), [json!(1), json!(2), json!(3)]);
        assert_eq!(
            found(r#".status.conditions[?(@.type=="Ready")].status"#),
            [json!("True")]
        );
        assert_eq!(
            found(".status.conditions[?(@.type == 'Stalled')].status"),
            [json!("False")]
        );
        assert_eq!(found(r#".status.conditions[?(@.type!="Ready")].n"#), [json!(2)]);
        assert_eq!(found(".status.conditions[?(@.n==2)].type"), [json!("Stalled")]);
        assert!(found(".status.artifact.revision").is_empty());
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for path in ["", "spec", ".a[", ".a[x]", ".a[?(@.b)]", ".a..b", ".a[?(b==1)]"] {
            assert!(Path::parse(path).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(path in "[.\\[\\]?()@='\"\\\\a-z0-9*-]{0,40}") {
            if let Ok(path) = Path::parse(&path) {
                path.find(&json!({"a": [{"b": 1}]}));
            }
        }
    }
}
