//! Limit of what the aliases of a YAML document repeat: a few lines can name gigabytes, and a document must not fill the memory.
//!
//! The parser limits how many aliases it follows, and not the size of what they name.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::YamlError;

/// What the aliases of each document can repeat, in bytes: more than a written object needs, and little compared with the memory.
const MAX_REPEATED: usize = 1 << 20;

/// Refuses a document that is too large once each alias is replaced by what it names.
pub(super) fn check(document: &[u8]) -> Result<(), YamlError> {
    // Anchors and aliases begin with these. A document without them is read once.
    if !document.contains(&b'&') || !document.contains(&b'*') {
        return Ok(());
    }
    // Twice its length is more than a document has without aliases: the escape `"\L"` is three bytes for two.
    let left = Cell::new(Some(2 * document.len() + MAX_REPEATED));
    let size = Size { left: &left };
    // Any other error is one of the parser, too, which reports it.
    drop(size.deserialize(serde_yaml_ng::Deserializer::from_slice(document)));
    left.get().map(drop).ok_or(YamlError::Aliases)
}

/// Counts the bytes of a document as if it had no aliases, and one for each node.
#[derive(Clone, Copy)]
struct Size<'a> {
    /// What may follow; `None` after the limit.
    left: &'a Cell<Option<usize>>,
}

impl Size<'_> {
    fn count<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().and_then(|left| left.checked_sub(bytes + 1));
        self.left.set(left);
        left.map(drop).ok_or_else(|| E::custom(YamlError::Aliases))
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

    /// Of a value with a tag.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let ((), content) = tagged.variant_seed(self)?;
        content.newtype_variant_seed(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_aliases_is_never_too_large() {
        let escapes = format!("a: '*&'\nb: \"{}\"\n", "\\L".repeat(1 << 20));
        check(escapes.as_bytes()).unwrap();
    }

    #[test]
    fn aliases_cannot_fill_the_memory() {
        let text = "x".repeat(1 << 20);
        for before in ["", "t: !tag {n: 1}\n"] {
            let bomb = format!("{before}a: &a {text}\nb: [{}]\n", "*a, ".repeat(32));
            let error = check(bomb.as_bytes()).unwrap_err();
            assert!(matches!(error, YamlError::Aliases), "{error}");
        }
        let ordinary = "a: &a {b: 1, c: 0.5, d: null, e: true, f: -1}\ng: [*a, *a]\nh: '*.example.com'\ni:\n";
        check(ordinary.as_bytes()).unwrap();
        check(b"a: &a [\nb: *a\n").unwrap();
    }
}
