//! Duplicate fields of JSON objects. The decoder takes the last one; strict validation reports them.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::schema::path;

/// Maximum number of reported fields, as in kube-apiserver.
const MAX_REPORTED: usize = 100;

/// Returns the paths of duplicate fields, each once, in document order. Invalid JSON has none: the decoder rejects it.
pub(super) fn find(bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let visitor = DuplicateVisitor {
        path: String::new(),
        found: &mut found,
    };
    match visitor.deserialize(&mut json) {
        Ok(()) => found,
        Err(_) => Vec::new(),
    }
}

/// Visits one value.
struct DuplicateVisitor<'a> {
    path: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for DuplicateVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = path::child(&self.path, &name);
            if !names.insert(name) && self.found.len() < MAX_REPORTED && !self.found.contains(&path) {
                self.found.push(path.clone());
            }
            let found = &mut *self.found;
            map.next_value_seed(DuplicateVisitor { path, found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut at = 0_usize;
        loop {
            let path = path::index(&self.path, at);
            let found = &mut *self.found;
            if list
                .next_element_seed(DuplicateVisitor { path, found })?
                .is_none()
            {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_some<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn duplicate_fields_are_reported_by_path() {
        let table: [(&str, &[&str]); 6] = [
            (r#"{"a":1,"b":{"a":2},"c":[{"a":1},{"a":null}]}"#, &[]),
            (r#"{"a":1,"a":2,"a":3}"#, &["a"]),
            (r#"{"s":{"x":true,"x":"y"}}"#, &["s.x"]),
            (r#"{"l":[1,{"x":1.5,"x":-1}]}"#, &["l[1].x"]),
            (r#"{"a":{"b":1},"a":{"b":2}}"#, &["a"]),
            (r#"{"a":1,"a":"#, &[]),
        ];
        for (text, paths) in table {
            assert_eq!(find(text.as_bytes()), paths, "{text}");
        }
    }

    #[test]
    fn excessive_nesting_ends_the_visit() {
        assert!(find("[".repeat(100_000).as_bytes()).is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in "[\\[\\]{}:,\"a1 ]{0,60}|\\PC{0,20}") {
            drop(find(bytes.as_bytes()));
        }
    }
}
