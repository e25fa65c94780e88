//! The canonical text of a JSON value. Digests use it, so that they depend on the value only.
//!
//! Members are sorted by the bytes of their names. There is no white space. Strings are UTF-8, and only the mandatory characters
//! are escaped: `"` and `\` by a backslash, control characters as `\b`, `\t`, `\n`, `\f`, `\r` or lower-case `\u00xx`.
//! `docs/reference/plan-id.md` has the same definition for other implementations.

use serde_json::Value;

/// Returns the canonical text.
#[must_use]
pub fn json(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                separate(index, text);
                write(element, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_str());
            text.push('{');
            for (index, (name, member)) in sorted.into_iter().enumerate() {
                separate(index, text);
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(member, text);
            }
            text.push('}');
        }
        leaf => text.push_str(&leaf.to_string()),
    }
}

fn separate(index: usize, text: &mut String) {
    if index > 0 {
        text.push(',');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_json_matches_the_specification() {
        let value =
            json!({ "b": [1, -2, 1.5, true, null], "a": { "é": "\u{1}\n\"\\/\u{7f}é", "Z": {} }, "": [] });
        assert_eq!(
            super::json(&value),
            "{\"\":[],\"a\":{\"Z\":{},\"é\":\"\\u0001\\n\\\"\\\\/\u{7f}é\"},\"b\":[1,-2,1.5,true,null]}"
        );
    }

    proptest! {
        #[test]
        fn it_is_json_of_the_same_value(names in proptest::collection::vec("\\PC{0,4}", 0..5), text in "\\PC*") {
            let value = json!(names.iter().map(|name| (name.clone(), json!([text]))).collect::<std::collections::HashMap<_, _>>());
            prop_assert_eq!(serde_json::from_str::<Value>(&super::json(&value)).unwrap(), value);
        }
    }
}
