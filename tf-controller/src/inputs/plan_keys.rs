//! The keys that stored plans, and what was applied, are sealed with (pure): read from the Secret of `--plan-encryption-secret`,
//! derived per stack, and per namespace for the files that its stacks share.
//!
//! A run is given keys of its own stack alone: whoever reads one stack's runs opens no other stack's plans, and nobody outside
//! the controller's namespace holds what the Secret holds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use sluice_tf_core::bundle::PlanKey;
use std::{collections::BTreeMap, fmt};

/// Bytes of a key.
const LENGTH: usize = 32;
/// Names the derivation of the keys of a stack.
const FORM: &[u8] = b"sluice.plan-key/1";
/// Names the derivation of the keys of a namespace.
const FILES_FORM: &[u8] = b"sluice.file-key/1";
/// Most keys in the Secret: each goes into the bundle of each run.
const MOST: usize = 16;

/// Why the Secret holds no usable keys. No byte of a key is part of it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanKeyError {
    /// It is empty.
    #[error("it holds no key: add one, 32 random bytes as they are, in hex or in base64")]
    None,
    /// It holds too many.
    #[error("it holds {found} keys, more than {MOST}: remove those that no waiting plan is sealed with")]
    TooMany {
        /// Keys found.
        found: usize,
    },
    /// One is no key.
    #[error(
        "its entry {entry:?} is no key: 32 random bytes as they are, in hex (64 digits) or in base64 (44 letters)"
    )]
    NoKey {
        /// Its name.
        entry: String,
    },
}

/// The Secret of `--plan-encryption-secret`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPlace {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl SecretPlace {
    /// Of `name`, in the controller's own namespace, or `namespace/name`; `None` when no namespace is known.
    #[must_use]
    pub fn of_flag(text: &str, own_namespace: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/').unwrap_or((own_namespace, text));
        (!namespace.is_empty() && !name.is_empty()).then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Which stack a key is for.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

/// The keys for one stack: the one whose name sorts last comes first, since it seals new plans.
///
/// # Errors
/// When the entries are not all keys.
pub fn plan_keys(
    entries: &BTreeMap<String, Vec<u8>>,
    holder: Holder<'_>,
) -> Result<Vec<PlanKey>, PlanKeyError> {
    derive(entries, FORM, &[holder.namespace, holder.name, holder.uid])
}

/// The keys for the files that stacks of a namespace share, in the same order.
///
/// # Errors
/// When the entries are not all keys.
pub fn file_keys(entries: &BTreeMap<String, Vec<u8>>, namespace: &str) -> Result<Vec<PlanKey>, PlanKeyError> {
    derive(entries, FILES_FORM, &[namespace])
}

fn derive(
    entries: &BTreeMap<String, Vec<u8>>,
    form: &[u8],
    words: &[&str],
) -> Result<Vec<PlanKey>, PlanKeyError> {
    if entries.is_empty() {
        return Err(PlanKeyError::None);
    }
    if entries.len() > MOST {
        return Err(PlanKeyError::TooMany { found: entries.len() });
    }
    let derive = |(entry, bytes): (&String, &Vec<u8>)| {
        let key = key(bytes).and_then(|key| derived(&key, form, words));
        let key = key.ok_or_else(|| PlanKeyError::NoKey { entry: entry.clone() })?;
        Ok(PlanKey {
            id: entry.clone(),
            key: hex::encode(key),
        })
    };
    entries.iter().rev().map(derive).collect()
}

/// 32 bytes as they are, in hex or in base64; white space around a text does not count.
fn key(bytes: &[u8]) -> Option<[u8; LENGTH]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let decoded = hex::decode(text).or_else(|_| STANDARD.decode(text)).ok()?;
    decoded.try_into().ok()
}

fn derived(key: &[u8; LENGTH], form: &[u8], words: &[&str]) -> Option<[u8; LENGTH]> {
    struct Length;
    impl KeyType for Length {
        fn len(&self) -> usize {
            LENGTH
        }
    }
    let info = words.iter().map(|word| {
        let mut bytes = (word.len() as u64).to_be_bytes().to_vec();
        bytes.extend_from_slice(word.as_bytes());
        bytes
    });
    let info: Vec<_> = info.collect();
    let info: Vec<_> = info.iter().map(Vec::as_slice).collect();
    let mut out = [0; LENGTH];
    let extracted = Salt::new(HKDF_SHA256, form).extract(key);
    extracted
        .expand(&info, Length)
        .and_then(|okm| okm.fill(&mut out))
        .ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STACK: Holder<'_> = Holder {
        namespace: "team",
        name: "net",
        uid: "u",
    };

    fn entries(list: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
        list.iter()
            .map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()))
            .collect()
    }

    #[test]
    fn a_key_is_the_same_in_each_spelling_and_another_for_each_stack() {
        let raw = [7; LENGTH];
        let hex = format!("{}\n", hex::encode(raw));
        let base64 = STANDARD.encode(raw);
        let of = |bytes: &[u8], holder| {
            plan_keys(&entries(&[("a", bytes)]), holder).unwrap()[0]
                .key
                .clone()
        };
        let first = of(&raw, STACK);
        assert_eq!(of(hex.as_bytes(), STACK), first);
        assert_eq!(of(base64.as_bytes(), STACK), first);
        assert_ne!(first, hex::encode(raw), "the Secret's key goes nowhere");
        assert_ne!(of(&[8; LENGTH], STACK), first);
        assert_ne!(of(&raw, Holder { uid: "v", ..STACK }), first);
        assert_ne!(
            of(
                &raw,
                Holder {
                    namespace: "teamn",
                    name: "et",
                    ..STACK
                }
            ),
            first
        );
    }

    #[test]
    fn stacks_of_a_namespace_share_the_keys_of_files_and_nobody_else_does() {
        let entries = entries(&[("a", &[7; LENGTH])]);
        let of = |namespace| file_keys(&entries, namespace).unwrap()[0].key.clone();
        assert_eq!(of("team"), of("team"));
        assert_ne!(of("team"), of("other"));
        let named = Holder {
            namespace: "team",
            name: "",
            uid: "",
        };
        assert_ne!(of("team"), plan_keys(&entries, named).unwrap()[0].key);
    }

    #[test]
    fn the_secret_is_in_the_controllers_namespace_unless_another_is_named() {
        let of = |text, own| SecretPlace::of_flag(text, own).map(|place| place.to_string());
        assert_eq!(of("keys", "flux-system").as_deref(), Some("flux-system/keys"));
        assert_eq!(of("ops/keys", "").as_deref(), Some("ops/keys"));
        assert_eq!((of("keys", ""), of("", "x"), of("x/", "x")), (None, None, None));
    }

    #[test]
    fn the_last_by_name_seals() {
        let keys = plan_keys(
            &entries(&[
                ("2026-01", &[1; 32]),
                ("2026-02", &[2; 32]),
                ("2025-12", &[3; 32]),
            ]),
            STACK,
        );
        let ids: Vec<_> = keys.unwrap().into_iter().map(|key| key.id).collect();
        assert_eq!(ids, ["2026-02", "2026-01", "2025-12"]);
    }

    #[test]
    fn what_is_no_key_is_named_and_not_shown() {
        let error = plan_keys(&entries(&[("a", &[1; 32]), ("b", b"hunter2")]), STACK).unwrap_err();
        assert_eq!(error, PlanKeyError::NoKey { entry: "b".into() });
        assert!(!error.to_string().contains("hunter2"));
        assert_eq!(plan_keys(&entries(&[]), STACK).unwrap_err(), PlanKeyError::None);
        let many: BTreeMap<_, _> = (0..17).map(|n| (n.to_string(), vec![0; 32])).collect();
        assert_eq!(
            plan_keys(&many, STACK).unwrap_err(),
            PlanKeyError::TooMany { found: 17 }
        );
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = plan_keys(&entries(&[("a", &bytes)]), STACK);
        }
    }
}
