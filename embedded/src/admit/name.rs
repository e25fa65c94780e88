//! Names: RFC 1123 subdomains, labels for namespaces, and generated ones.

use rand::seq::IndexedRandom;
use serde_json::Value;

use crate::{
    meta,
    resource::{Family, Resource},
    service::Cause,
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Letters without vowels and digits without 0, 1, 3: no words by accident. The set of apimachinery's `rand.String`.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A name made from `generateName`: its first 58 characters and five random ones.
pub(crate) fn generated(base: &str) -> String {
    let mut random = rand::rng();
    let suffix = (0..5).filter_map(|_| SUFFIX.choose(&mut random).copied().map(char::from));
    base.chars().take(58).chain(suffix).collect()
}

/// What is wrong with the name of an object.
pub(super) fn check(resource: &Resource, object: &Value) -> Vec<Cause> {
    let name = meta::name(object);
    if name.is_empty() {
        return vec![Cause::required(
            "metadata.name",
            "name or generateName is required",
        )];
    }
    let mut causes = Vec::new();
    let (limit, well_formed, text) = match resource.family {
        Family::Namespace => (63, is_label(name), LABEL),
        _ => (253, name.split('.').all(is_label), SUBDOMAIN),
    };
    if name.len() > limit {
        causes.push(Cause::invalid(
            "metadata.name",
            name,
            &format!("must be no more than {limit} characters"),
        ));
    }
    if !well_formed {
        let dotted = resource.family == Family::Namespace && name.split('.').all(is_label);
        let text = if dotted { "must not contain dots" } else { text };
        causes.push(Cause::invalid("metadata.name", name, text));
    }
    causes
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_keeps_its_base() {
        let name = generated("run-");
        assert!(name.starts_with("run-") && name.len() == 9, "{name}");
        assert_eq!(generated(&"x".repeat(100)).len(), 63);
        assert_ne!(generated("a"), generated("a"));
    }

    #[test]
    fn labels_follow_rfc_1123() {
        for good in ["a", "a-b", "1a"] {
            assert!(is_label(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "ä", "a.b"] {
            assert!(!is_label(bad), "{bad}");
        }
    }
}
