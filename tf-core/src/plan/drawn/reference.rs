//! What the references of an expression lead to (pure).

use serde_json::Value;

/// What a reference may begin with that is known by the inputs or the address, or not before the resource itself.
const KNOWN: [&str; 5] = ["count", "path", "self", "terraform", "tofu"];

/// Where an expression stands: it decides what the words stand for that others give their values.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    /// Whether this variable is more than an input.
    pub(super) variable: &'p dyn Fn(&str) -> bool,
    /// Whether the values of `each` are more than inputs. Its keys stand in addresses.
    pub(super) each: bool,
}

impl Place<'_> {
    /// Inside of what is repeated for each of these.
    pub(super) fn repeated(self, for_each: &Value) -> Self {
        Self {
            each: self.leads_out(for_each),
            ..self
        }
    }

    /// Whether a reference in here leads to more than inputs do.
    pub(super) fn leads_out(&self, expressions: &Value) -> bool {
        any(expressions, &|reference| self.is_outside(reference))
    }

    fn is_outside(&self, reference: &str) -> bool {
        let mut words = reference.split(['.', '[']).skip(1);
        let second = words.next().unwrap_or_default();
        match first(reference) {
            "each" => self.each && second != "key",
            "var" => (self.variable)(second),
            first => !KNOWN.contains(&first),
        }
    }
}

/// The word that a reference begins with.
pub(super) fn first(reference: &str) -> &str {
    reference.split(['.', '[']).next().unwrap_or_default()
}

/// Whether a reference in here is such a one.
pub(super) fn any(expressions: &Value, is_such: &dyn Fn(&str) -> bool) -> bool {
    match expressions {
        Value::Object(members) => {
            let references = members.get("references").and_then(Value::as_array);
            let mut texts = references.into_iter().flatten().filter_map(Value::as_str);
            texts.any(is_such) || members.values().any(|inner| any(inner, is_such))
        }
        Value::Array(elements) => elements.iter().any(|inner| any(inner, is_such)),
        _ => false,
    }
}
