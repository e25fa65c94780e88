//! Limit of what the aliases of a YAML document repeat: a few lines can name gigabytes, and a push must not fill the memory.
//!
//! The parser limits how many aliases it follows, and not the size of what they name.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// What the aliases of each document can repeat, in bytes: more than an object of a person needs, and little beside the memory.
const MAX_REPEATED: usize = 4 << 20;

/// Refuses a document that is too large once each alias is replaced by what it names. The error is the reason.
pub(super) fn check(document: &str) -> Result<(), String> {
    // An alias begins with it. A document without one is read once.
    if !document.contains('*') {
        return Ok(());
    }
    // Twice its length is more than a document has without aliases: `"\L"` is the longest of the short escapes, with three bytes.
    let left = Cell::new(2 * document.len() + MAX_REPEATED);
    Size { left: &left }
        .deserialize(serde_yaml_ng::Deserializer::from_str(document))
        .map_err(|error| error.to_string())
}

/// Counts the bytes of a document as if it had no aliases, and one for each node.
#[derive(Clone, Copy)]
struct Size<'a> {
    left: &'a Cell<usize>,
}

impl Size<'_> {
    fn count<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes + 1);
        let left = left.ok_or_else(|| E::custom("its aliases repeat too much"))?;
        self.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Size<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Size<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.count(0)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.count(0)
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<(), E> {
        self.count(0)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.count(0)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<(), E> {
        self.count(0)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.count(0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.count(text.len())
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.count(0)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.count(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.count::<A::Error>(0)?;
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        self.count::<A::Error>(0)?;
        while fields.next_key_seed(self)?.is_some() {
            fields.next_value_seed(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_aliases_is_never_too_large() {
        let escapes = format!("a: '*'\nb: \"{}\"\n", "\\L".repeat(5 << 20));
        check(&escapes).unwrap();
    }
}
