//! The limit of the size of stored objects, which etcd has for kube-apiserver. The bodies of requests are limited too, but patches can
//! make an object grow beyond them.

use std::io;

use serde_json::Value;

use crate::store::state::Key;
use crate::store::watch_cache::approximate_size;

/// Maximum size of an object in bytes: the default of etcd's `--max-request-bytes`.
const MAX_OBJECT_BYTES: usize = 1536 * 1024;

/// Maximum number of bytes that a character of a text has as JSON: a control character is `\u0000`.
const MAX_ESCAPED: usize = 6;

/// Whether a write makes an object too large. An object that is too large already, for example one that a commit brought, can be
/// changed as long as it does not grow.
pub(super) fn grows_too_large(key: &Key, new: &Value, old: Option<&Value>) -> bool {
    if approximate_size(new) <= MAX_OBJECT_BYTES / MAX_ESCAPED {
        return false;
    }
    let size = stored_size(key, new);
    size > MAX_OBJECT_BYTES && old.is_none_or(|old| size > stored_size(key, old))
}

/// Returns the size of an object in bytes. kube-apiserver does not store the binary data of Secrets and ConfigMaps in base64.
fn stored_size(key: &Key, object: &Value) -> usize {
    let binary = match key.resource.as_str() {
        "secrets" => &object["data"],
        "configmaps" => &object["binaryData"],
        _ => &Value::Null,
    };
    let texts = binary.as_object().into_iter().flatten();
    let overhead: usize = texts
        .map(|(_, text)| text.as_str().map_or(0, |text| text.len() / 4))
        .sum();
    json_size(object).saturating_sub(overhead)
}

fn json_size(value: &Value) -> usize {
    let mut counter = ByteCounter::default();
    // It accepts everything.
    drop(serde_json::to_writer(&mut counter, value));
    counter.0
}

/// Counts what is written.
#[derive(Default)]
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn with_note(bytes: usize) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"note": "x".repeat(bytes)}})
    }

    #[test]
    fn an_object_grows_up_to_the_limit() {
        let key = Key::new("widgets.example.dev", "default", "a");
        let overhead = with_note(0).to_string().len();
        let largest = with_note(MAX_OBJECT_BYTES - overhead);
        let (larger, largest_of_all) = (with_note(MAX_OBJECT_BYTES), with_note(2 * MAX_OBJECT_BYTES));
        assert!(!grows_too_large(&key, &largest, None));
        assert!(grows_too_large(&key, &larger, None));
        assert!(grows_too_large(&key, &larger, Some(&largest)));
        assert!(!grows_too_large(&key, &larger, Some(&larger)));
        assert!(
            !grows_too_large(&key, &larger, Some(&largest_of_all)),
            "it shrinks"
        );
        let escaped = json!({"note": "\u{0}".repeat(MAX_OBJECT_BYTES / MAX_ESCAPED)});
        assert!(grows_too_large(&key, &escaped, None));
    }

    #[test]
    fn binary_data_counts_as_bytes() {
        // 1 MiB of data, the limit of both kinds, beside 256 KiB of annotations.
        let text = "A".repeat((1 << 20) / 3 * 4);
        let annotations = json!({"a": "x".repeat(256 << 10)});
        for (resource, field) in [("secrets", "data"), ("configmaps", "binaryData")] {
            let object = json!({"metadata": {"annotations": annotations}, field: {"a": text}});
            assert!(
                !grows_too_large(&Key::new(resource, "default", "a"), &object, None),
                "{resource}"
            );
            assert!(grows_too_large(
                &Key::new("events", "default", "a"),
                &object,
                None
            ));
        }
    }

    proptest! {
        #[test]
        fn a_value_is_at_most_six_times_its_approximate_size(text in "\\PC{0,40}|[\\x00-\\x1f]{0,40}", number in any::<f64>()) {
            let value = json!({"a": [text, number, null, true, {}], text: -1});
            prop_assert!(json_size(&value) <= MAX_ESCAPED * approximate_size(&value));
            prop_assert_eq!(json_size(&value), value.to_string().len());
        }
    }
}
