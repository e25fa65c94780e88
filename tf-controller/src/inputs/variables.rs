//! `generated.auto.tfvars.json`: `vars` in order, then `varsFrom` in order; the last of a name wins.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The pairs of one Secret or ConfigMap, as bytes.
pub type Pairs = BTreeMap<String, Vec<u8>>;

/// The variables that one `varsFrom` entry gives.
pub type Selected = Vec<(String, Value)>;

/// Why a `varsFrom` entry cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairsError {
    /// A `varsKeys` item is neither `key` nor `key:name`.
    #[error("invalid rename pattern {0:?}: a key, or key:name with both parts")]
    Rename(String),
    /// A value is no text, which a variable must be.
    #[error("the value of key {0:?} is no UTF-8 text")]
    NotText(String),
}

/// Picks the variables of one `varsFrom` entry. Without keys: all; bytes that are no text, which nobody asked for by name, get
/// replacement characters, as Go's JSON writes them. A key that a Secret lacks is empty, one that a
/// ConfigMap lacks is left out. Every value is a string.
///
/// # Errors
/// [`PairsError`]; never with a value in it.
pub fn select(pairs: &Pairs, keys: &[String], missing_is_empty: bool) -> Result<Selected, PairsError> {
    let text = |key: &str, bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map_err(|_| PairsError::NotText(key.to_owned()))?;
        Ok(Value::String(text.to_owned()))
    };
    if keys.is_empty() {
        let whole = |bytes: &Vec<u8>| Value::String(String::from_utf8_lossy(bytes).into_owned());
        let all = pairs.iter().map(|(key, bytes)| (key.clone(), whole(bytes)));
        return Ok(all.collect());
    }
    let mut selected = Selected::new();
    for item in keys {
        let (key, name) = rename(item)?;
        match pairs.get(key) {
            Some(bytes) => selected.push((name.to_owned(), text(key, bytes)?)),
            None if missing_is_empty => selected.push((name.to_owned(), Value::String(String::new()))),
            None => {}
        }
    }
    Ok(selected)
}

fn rename(item: &str) -> Result<(&str, &str), PairsError> {
    let wrong = || PairsError::Rename(item.to_owned());
    match item.split_once(':') {
        None if item.is_empty() => Err(wrong()),
        None => Ok((item, item)),
        Some((key, name)) if !key.is_empty() && !name.is_empty() && !name.contains(':') => Ok((key, name)),
        Some(_) => Err(wrong()),
    }
}

/// The text of the file.
#[must_use]
pub fn generate(variables: impl IntoIterator<Item = (String, Value)>) -> String {
    let map: Map<String, Value> = variables.into_iter().collect();
    // serde_json keeps the keys sorted: equal variables give equal bytes.
    format!("{:#}\n", Value::Object(map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pairs() -> Pairs {
        [("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"two".to_vec())].into()
    }

    #[test]
    fn keys_are_picked_and_renamed() {
        let keys = |items: &[&str]| items.iter().map(|i| (*i).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            select(&pairs(), &[], true).unwrap(),
            [("a".into(), json!("1")), ("b".into(), json!("two"))]
        );
        assert_eq!(
            select(&pairs(), &keys(&["b:region"]), true).unwrap(),
            [("region".into(), json!("two"))]
        );
        assert_eq!(
            select(&pairs(), &keys(&["x"]), true).unwrap(),
            [("x".into(), json!(""))]
        );
        assert_eq!(select(&pairs(), &keys(&["x"]), false).unwrap(), []);
        for wrong in ["", ":", "a:", ":b", "a:b:c"] {
            assert_eq!(
                select(&pairs(), &keys(&[wrong]), true),
                Err(PairsError::Rename(wrong.to_owned()))
            );
        }
    }

    #[test]
    fn a_value_that_is_no_text_is_named_by_its_key() {
        let binary: Pairs = [("k".to_owned(), vec![0xff])].into();
        assert_eq!(
            select(&binary, &["k".to_owned()], true),
            Err(PairsError::NotText("k".into()))
        );
        assert_eq!(
            select(&binary, &[], true).unwrap(),
            [("k".into(), json!("\u{fffd}"))],
            "nobody asked for it"
        );
    }

    #[test]
    fn the_last_of_a_name_wins_and_order_makes_no_difference_otherwise() {
        let one = generate([
            ("b".into(), json!(1)),
            ("a".into(), json!([true])),
            ("b".into(), json!("2")),
        ]);
        let two = generate([("a".into(), json!([true])), ("b".into(), json!("2"))]);
        assert_eq!(one, two);
        assert_eq!(generate([]), "{}\n");
    }
}
