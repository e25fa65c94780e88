//! Fields that a JSON object gives twice. The decoder takes the last one; a strict client wants to know.

use std::{collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// As many as kube-apiserver tells.
const LIMIT: usize = 100;

/// The paths of fields that are given more than once, each once, in the order of the text. What is no JSON has none:
/// its decoder refuses it.
pub(super) fn fields(bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let walk = Walk {
        path: String::new(),
        found: &mut found,
    };
    match walk.deserialize(&mut json) {
        Ok(()) => found,
        Err(_) => Vec::new(),
    }
}

/// Goes through one value.
struct Walk<'a> {
    path: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = if self.path.is_empty() {
                name.clone()
            } else {
                format!("{}.{name}", self.path)
            };
            if !seen.insert(name) && self.found.len() < LIMIT && !self.found.contains(&path) {
                self.found.push(path.clone());
            }
            map.next_value_seed(Walk {
                path,
                found: &mut *self.found,
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut at = 0_usize;
        while list
            .next_element_seed(Walk {
                path: format!("{}[{at}]", self.path),
                found: &mut *self.found,
            })?
            .is_some()
        {
            at += 1;
        }
        Ok(())
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
    fn paths_name_what_is_given_twice() {
        let table: [(&str, &[&str]); 6] = [
            (r#"{"a":1,"b":{"a":2},"c":[{"a":1},{"a":null}]}"#, &[]),
            (r#"{"a":1,"a":2,"a":3}"#, &["a"]),
            (r#"{"s":{"x":true,"x":"y"}}"#, &["s.x"]),
            (r#"{"l":[1,{"x":1.5,"x":-1}]}"#, &["l[1].x"]),
            (r#"{"a":{"b":1},"a":{"b":2}}"#, &["a"]),
            (r#"{"a":1,"a":"#, &[]),
        ];
        for (text, paths) in table {
            assert_eq!(fields(text.as_bytes()), paths, "{text}");
        }
    }

    #[test]
    fn deep_nesting_ends_the_walk() {
        assert!(fields("[".repeat(100_000).as_bytes()).is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in "[\\[\\]{}:,\"a1 ]{0,60}|\\PC{0,20}") {
            drop(fields(bytes.as_bytes()));
        }
    }
}
