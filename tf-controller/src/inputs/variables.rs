//! The variables of `varsFrom` and the file `generated.auto.tfvars.json`. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The key-value pairs of one Secret or ConfigMap.
pub(crate) type Pairs = BTreeMap<String, Vec<u8>>;

/// Variables in order; the last of a name wins.
pub(crate) type Variables = Vec<(String, Value)>;

/// Why a `varsFrom` entry cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PairsError {
    /// An item of `varsKeys` is neither `key` nor `key:name`.
    #[error("invalid rename pattern {0:?}: a key, or key:name with both parts")]
    Rename(String),
    /// A value is not text.
    #[error("the value of key {0:?} is not UTF-8 text")]
    NotText(String),
}

/// Selects the variables of one `varsFrom` entry; all without keys. All values are strings. In a value that is not UTF-8, replacement
/// characters are used if no key selects it, as by Go's JSON. A key that a Secret lacks is empty; one that a ConfigMap lacks is
/// omitted. The error contains no value.
pub(crate) fn select_variables(
    pairs: &Pairs,
    keys: &[String],
    missing_is_empty: bool,
) -> Result<Variables, PairsError> {
    let text = |key: &str, bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map_err(|_| PairsError::NotText(key.to_owned()))?;
        Ok(Value::String(text.to_owned()))
    };
    if keys.is_empty() {
        let lossy = |bytes: &Vec<u8>| Value::String(String::from_utf8_lossy(bytes).into_owned());
        let all = pairs.iter().map(|(key, bytes)| (key.clone(), lossy(bytes)));
        return Ok(all.collect());
    }
    let mut selected = Variables::new();
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
    let invalid = || PairsError::Rename(item.to_owned());
    match item.split_once(':') {
        None if item.is_empty() => Err(invalid()),
        None => Ok((item, item)),
        Some((key, name)) if !key.is_empty() && !name.is_empty() && !name.contains(':') => Ok((key, name)),
        Some(_) => Err(invalid()),
    }
}

/// Returns the text of the file.
pub(crate) fn variables_file(variables: impl IntoIterator<Item = (String, Value)>) -> String {
    let map: Map<String, Value> = variables.into_iter().collect();
    // The map is sorted by key: equal variables give equal bytes.
    format!("{:#}\n", Value::Object(map))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pairs() -> Pairs {
        [("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"two".to_vec())].into()
    }

    #[test]
    fn keys_are_picked_and_renamed() {
        let keys = |items: &[&str]| items.iter().map(|i| (*i).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            select_variables(&pairs(), &[], true).unwrap(),
            [("a".into(), json!("1")), ("b".into(), json!("two"))]
        );
        assert_eq!(
            select_variables(&pairs(), &keys(&["b:region"]), true).unwrap(),
            [("region".into(), json!("two"))]
        );
        assert_eq!(
            select_variables(&pairs(), &keys(&["x"]), true).unwrap(),
            [("x".into(), json!(""))]
        );
        assert_eq!(select_variables(&pairs(), &keys(&["x"]), false).unwrap(), []);
        for wrong in ["", ":", "a:", ":b", "a:b:c"] {
            assert_eq!(
                select_variables(&pairs(), &keys(&[wrong]), true),
                Err(PairsError::Rename(wrong.to_owned()))
            );
        }
    }

    #[test]
    fn a_value_that_is_not_text_is_reported_by_key() {
        let binary: Pairs = [("k".to_owned(), vec![0xff])].into();
        assert_eq!(
            select_variables(&binary, &["k".to_owned()], true),
            Err(PairsError::NotText("k".into()))
        );
        assert_eq!(
            select_variables(&binary, &[], true).unwrap(),
            [("k".into(), json!("\u{fffd}"))],
            "not selected by its key"
        );
    }

    #[test]
    fn the_last_of_equal_names_wins_and_other_order_is_irrelevant() {
        let one = variables_file([
            ("b".into(), json!(1)),
            ("a".into(), json!([true])),
            ("b".into(), json!("2")),
        ]);
        let two = variables_file([("a".into(), json!([true])), ("b".into(), json!("2"))]);
        assert_eq!(one, two);
        assert_eq!(variables_file([]), "{}\n");
    }
}
