//! The depth of objects. `serde_json` refuses more than 127 levels, so that a deeper object could not be read from the store again, and
//! functions that descend without a limit would overflow the stack. Pure.

use serde_json::Value;

/// Maximum number of lists and maps within each other in an object. Lists and watch events add levels.
pub(crate) const MAX_DEPTH: usize = 120;

/// Whether a value has at most this number of lists and maps within each other.
pub(crate) fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| is_within(field, levels - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_and_maps_are_levels() {
        assert!(is_within(&json!("a"), 0));
        assert!(!is_within(&json!({}), 0));
        let value = json!([{"a": [1]}, 2]);
        assert!(is_within(&value, 3));
        assert!(!is_within(&value, 2));
    }
}
