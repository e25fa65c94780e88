//! Object names: RFC 1123 subdomains, RFC 1123 labels for namespaces, and generated names.

use rand::seq::IndexedRandom;
use serde_json::Value;

use crate::cause::Cause;
use crate::resource::{Resource, Strategy};
use crate::{meta, names};

/// Letters without vowels and digits without 0, 1 and 3, so that suffixes form no words: the alphabet of apimachinery's `rand.String`.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Generates a name: the first 58 characters of `generateName` and five random ones.
pub(crate) fn generate(base: &str) -> String {
    let mut random = rand::rng();
    let suffix = (0..5).filter_map(|_| SUFFIX_ALPHABET.choose(&mut random).copied().map(char::from));
    base.chars().take(58).chain(suffix).collect()
}

/// Validates the name of an object.
pub(super) fn validate(resource: &Resource, object: &Value) -> Vec<Cause> {
    let name = meta::name(object);
    if name.is_empty() {
        return vec![Cause::required(
            "metadata.name",
            "name or generateName is required",
        )];
    }
    let mut causes = Vec::new();
    let (limit, well_formed, text) = match resource.strategy {
        Strategy::Namespace => (63, names::is_label(name), names::LABEL),
        _ => (253, names::is_subdomain(name), names::SUBDOMAIN),
    };
    if name.len() > limit {
        causes.push(Cause::invalid(
            "metadata.name",
            name,
            &format!("must be no more than {limit} characters"),
        ));
    }
    if !well_formed {
        let dotted = resource.strategy == Strategy::Namespace && names::is_subdomain(name);
        let text = if dotted { "must not contain dots" } else { text };
        causes.push(Cause::invalid("metadata.name", name, text));
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_keeps_its_base() {
        let name = generate("run-");
        assert!(name.starts_with("run-") && name.len() == 9, "{name}");
        assert_eq!(generate(&"x".repeat(100)).len(), 63);
        assert_ne!(generate("a"), generate("a"));
    }
}
