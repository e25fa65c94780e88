//! Label selectors: `a`, `!a`, `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a>1`, `a<1`, joined by commas.

use serde_json::Value;

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    DoesNotExist,
    In(Vec<String>),
    NotIn(Vec<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl Requirement {
    /// Whether an object matches. An absent label matches `!=` and `notin`.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let actual = object["metadata"]["labels"]
            .get(&self.key)
            .and_then(Value::as_str);
        let number = || actual.and_then(|text| text.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => actual.is_some(),
            Operator::DoesNotExist => actual.is_none(),
            Operator::In(values) => actual.is_some_and(|actual| values.iter().any(|value| value == actual)),
            Operator::NotIn(values) => {
                !actual.is_some_and(|actual| values.iter().any(|value| value == actual))
            }
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Parses a selector; empty text selects everything.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    split_terms(text)?.into_iter().map(parse_term).collect()
}

/// Splits a selector at the commas outside of parentheses.
fn split_terms(text: &str) -> Result<Vec<&str>, String> {
    let (mut terms, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err(format!("found unexpected '{character}'"));
        }
    }
    if depth != 0 {
        return Err("found '', expected: ',', or ')'".into());
    }
    let last = text[start..].trim();
    if terms.is_empty() && last.is_empty() {
        return Ok(terms);
    }
    terms.push(last);
    Ok(terms)
}

fn parse_term(text: &str) -> Result<Requirement, String> {
    if let Some(key) = text.strip_prefix('!') {
        return requirement(key, Operator::DoesNotExist);
    }
    if let Some((left, list)) = text.split_once('(') {
        return parse_set(left.trim(), list);
    }
    for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = text.split_once(sign) {
            let values = vec![parse_value(value.trim())?];
            return requirement(
                key,
                if equal {
                    Operator::In(values)
                } else {
                    Operator::NotIn(values)
                },
            );
        }
    }
    for (sign, above) in [('>', true), ('<', false)] {
        if let Some((key, value)) = text.split_once(sign) {
            let bound = value
                .trim()
                .parse()
                .map_err(|_| format!("values[0][{key}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"))?;
            return requirement(
                key,
                if above {
                    Operator::GreaterThan(bound)
                } else {
                    Operator::LessThan(bound)
                },
            );
        }
    }
    if let Some(operator) = text.split_whitespace().nth(1) {
        return Err(operator_error(operator));
    }
    requirement(text, Operator::Exists)
}

fn operator_error(found: &str) -> String {
    format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")
}

fn parse_set(left: &str, list: &str) -> Result<Requirement, String> {
    let list = list
        .strip_suffix(')')
        .ok_or_else(|| format!("found '{list}', expected: ')'"))?;
    let values = list
        .split(',')
        .map(|value| parse_value(value.trim()))
        .collect::<Result<_, _>>()?;
    let (key, operator) = left.rsplit_once(char::is_whitespace).unwrap_or((left, ""));
    match operator {
        "in" => requirement(key, Operator::In(values)),
        "notin" => requirement(key, Operator::NotIn(values)),
        other => Err(operator_error(other)),
    }
}

fn requirement(key: &str, operator: Operator) -> Result<Requirement, String> {
    let key = key.trim();
    let (prefix, name) = key.split_once('/').unwrap_or(("", key));
    let well_formed = |text: &str, limit: usize| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= limit
            && ends(text.chars().next())
            && ends(text.chars().next_back())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if !well_formed(name, 63) || !(prefix.is_empty() || well_formed(prefix, 253)) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    Ok(Requirement {
        key: key.into(),
        operator,
    })
}

/// Parses a label value: at most 63 of `[A-Za-z0-9-_.]`, alphanumeric at both ends, or empty.
fn parse_value(value: &str) -> Result<String, String> {
    let inner = value
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let edges = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    if value.len() <= 63 && inner && edges(value.chars().next()) && edges(value.chars().next_back()) {
        Ok(value.into())
    } else {
        Err(format!("found '{value}', expected: identifier"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn selects(selector: &str) -> bool {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front", "n": "5", "a.b/c": "", "index": "x"}}});
        parse(selector)
            .unwrap()
            .iter()
            .all(|requirement| requirement.matches(&object))
    }

    #[test]
    fn all_operators_select() {
        for selector in [
            "",
            "app",
            "app=web",
            "app==web",
            "app = web , tier",
            "app!=db",
            "x!=y",
            "!x",
            "app in (web, db)",
            "app in (web),tier notin (back,data)",
            "x notin (a)",
            "n>4",
            "n<6",
            "a.b/c=",
            "a.b/c in ()",
            "index=x",
        ] {
            assert!(selects(selector), "{selector}");
        }
        for selector in [
            "x",
            "app=db",
            "app!=web",
            "!app",
            "app in (db)",
            "app notin (web)",
            "n>5",
            "n<5",
            "x in (a)",
        ] {
            assert!(!selects(selector), "{selector}");
        }
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        for selector in [
            "a in",
            "a in (b",
            "a within (b)",
            "=b",
            "a=b c",
            "a>x",
            ",",
            "a,,b",
            "a in (b))",
            "a b",
        ] {
            assert!(parse(selector).is_err(), "{selector}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(selector in "[a-z0-9=!(),<> /._-]{0,40}|\\PC{0,20}") {
            drop(parse(&selector));
        }
    }
}
