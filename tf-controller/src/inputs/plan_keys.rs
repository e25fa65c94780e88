//! The keys that seal stored plans, last applied records and state copies, derived from the Secret of `--plan-encryption-secret`:
//! per stack, and per namespace for the files that its stacks share. Pure.
//!
//! A run gets only the keys of its own stack, so its reader cannot open plans of other stacks. The Secret itself stays in the
//! controller's namespace.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use sluice_api::reference::ObjectName;
use sluice_tf_core::bundle::{PlanKey, Stack};

use super::Pairs;

/// Number of bytes of a key.
const LENGTH: usize = 32;
/// HKDF salt of the keys of a stack.
const STACK_SALT: &[u8] = b"sluice.plan-key/1";
/// HKDF salt of the keys of a namespace.
const FILES_SALT: &[u8] = b"sluice.file-key/1";
/// HKDF salt of the keys of the state copies of a stack.
const COPIES_SALT: &[u8] = b"sluice.state-copy-key/1";
/// Maximum number of keys in the Secret: each is in the bundle of each run.
const MAX_KEYS: usize = 16;

/// Why the keys cannot be used. Contains no byte of a key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum PlanKeyError {
    /// The Secret is empty.
    #[error("it has no key: add 32 random bytes, raw, in hex or in base64")]
    None,
    /// It has too many keys.
    #[error("it has {found} keys, more than {MAX_KEYS}: remove keys that no pending plan uses")]
    TooMany {
        /// Keys found.
        found: usize,
    },
    /// An entry is not a key.
    #[error(
        "its entry {entry:?} is not a key: expected 32 random bytes, raw, in hex (64 digits) or in base64 (44 characters)"
    )]
    InvalidKey {
        /// Its name.
        entry: String,
    },
}

/// Parses the value of `--plan-encryption-secret`: `name` in the controller's namespace, or `namespace/name`. `None` without a
/// namespace or name.
pub(crate) fn key_secret(flag: &str, own_namespace: &str) -> Option<ObjectName> {
    let (namespace, name) = flag.split_once('/').unwrap_or((own_namespace, flag));
    (!namespace.is_empty() && !name.is_empty()).then(|| ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Derives the keys of one stack. The key whose name sorts last comes first: it seals new plans.
pub(crate) fn plan_keys(entries: &Pairs, stack: &Stack) -> Result<Vec<PlanKey>, PlanKeyError> {
    derive_all(entries, STACK_SALT, &[&stack.namespace, &stack.name, &stack.uid])
}

/// Derives the keys of the files that stacks of a namespace share, in the same order.
pub(crate) fn file_keys(entries: &Pairs, namespace: &str) -> Result<Vec<PlanKey>, PlanKeyError> {
    derive_all(entries, FILES_SALT, &[namespace])
}

/// Derives the keys of the state copies of a stack, in the same order. The uid does not count: copies outlive the object.
pub(crate) fn state_copy_keys(entries: &Pairs, stack: &Stack) -> Result<Vec<PlanKey>, PlanKeyError> {
    derive_all(entries, COPIES_SALT, &[&stack.namespace, &stack.name])
}

fn derive_all(entries: &Pairs, salt: &[u8], info: &[&str]) -> Result<Vec<PlanKey>, PlanKeyError> {
    if entries.is_empty() {
        return Err(PlanKeyError::None);
    }
    if entries.len() > MAX_KEYS {
        return Err(PlanKeyError::TooMany { found: entries.len() });
    }
    let derive_one = |(entry, bytes): (&String, &Vec<u8>)| {
        let key = parse_key(bytes).and_then(|key| derive(&key, salt, info));
        let key = key.ok_or_else(|| PlanKeyError::InvalidKey { entry: entry.clone() })?;
        Ok(PlanKey {
            id: entry.clone(),
            key: hex::encode(key),
        })
    };
    entries.iter().rev().map(derive_one).collect()
}

/// Parses a key: 32 bytes, or their hex or base64 text with optional white space around it.
fn parse_key(bytes: &[u8]) -> Option<[u8; LENGTH]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let decoded = hex::decode(text).or_else(|_| STANDARD.decode(text)).ok()?;
    decoded.try_into().ok()
}

/// Derives a key with HKDF.
fn derive(key: &[u8; LENGTH], salt: &[u8], info: &[&str]) -> Option<[u8; LENGTH]> {
    struct Length;
    impl KeyType for Length {
        fn len(&self) -> usize {
            LENGTH
        }
    }
    let info = info.iter().map(|word| {
        let mut bytes = (word.len() as u64).to_be_bytes().to_vec();
        bytes.extend_from_slice(word.as_bytes());
        bytes
    });
    let info: Vec<_> = info.collect();
    let info: Vec<_> = info.iter().map(Vec::as_slice).collect();
    let mut out = [0; LENGTH];
    let extracted = Salt::new(HKDF_SHA256, salt).extract(key);
    extracted
        .expand(&info, Length)
        .and_then(|okm| okm.fill(&mut out))
        .ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stack(namespace: &str, name: &str, uid: &str) -> Stack {
        Stack {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
        }
    }

    fn entries(list: &[(&str, &[u8])]) -> Pairs {
        list.iter()
            .map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()))
            .collect()
    }

    #[test]
    fn a_key_is_independent_of_its_encoding_and_different_for_each_stack() {
        let raw = [7; LENGTH];
        let hex = format!("{}\n", hex::encode(raw));
        let base64 = STANDARD.encode(raw);
        let of = |bytes: &[u8], stack: &Stack| {
            plan_keys(&entries(&[("a", bytes)]), stack).unwrap()[0]
                .key
                .clone()
        };
        let net = stack("team", "net", "u");
        let first = of(&raw, &net);
        assert_eq!(of(hex.as_bytes(), &net), first);
        assert_eq!(of(base64.as_bytes(), &net), first);
        assert_ne!(first, hex::encode(raw), "the Secret's key is not passed on");
        assert_ne!(of(&[8; LENGTH], &net), first);
        assert_ne!(of(&raw, &stack("team", "net", "v")), first);
        assert_ne!(of(&raw, &stack("teamn", "et", "u")), first);
    }

    #[test]
    fn file_keys_are_shared_only_within_a_namespace() {
        let entries = entries(&[("a", &[7; LENGTH])]);
        let of = |namespace| file_keys(&entries, namespace).unwrap()[0].key.clone();
        assert_eq!(of("team"), of("team"));
        assert_ne!(of("team"), of("other"));
        let unnamed = stack("team", "", "");
        assert_ne!(of("team"), plan_keys(&entries, &unnamed).unwrap()[0].key);
    }

    #[test]
    fn state_copy_keys_outlive_the_object_and_belong_to_one_name() {
        let entries = entries(&[("a", &[7; LENGTH])]);
        let of = |stack: &Stack| state_copy_keys(&entries, stack).unwrap()[0].key.clone();
        let net = stack("team", "net", "u");
        assert_eq!(of(&net), of(&stack("team", "net", "v")));
        assert_ne!(of(&net), of(&stack("team", "other", "u")));
        assert_ne!(of(&net), of(&stack("teamn", "et", "u")));
        assert_ne!(of(&net), plan_keys(&entries, &net).unwrap()[0].key);
    }

    #[test]
    fn the_secret_is_in_the_controllers_namespace_unless_another_is_named() {
        let of = |text, own| key_secret(text, own).map(|secret| secret.to_string());
        assert_eq!(of("keys", "flux-system").as_deref(), Some("flux-system/keys"));
        assert_eq!(of("ops/keys", "").as_deref(), Some("ops/keys"));
        assert_eq!((of("keys", ""), of("", "x"), of("x/", "x")), (None, None, None));
    }

    #[test]
    fn the_last_key_by_name_encrypts() {
        let keys = plan_keys(
            &entries(&[
                ("2026-01", &[1; 32]),
                ("2026-02", &[2; 32]),
                ("2025-12", &[3; 32]),
            ]),
            &stack("team", "net", "u"),
        );
        let ids: Vec<_> = keys.unwrap().into_iter().map(|key| key.id).collect();
        assert_eq!(ids, ["2026-02", "2026-01", "2025-12"]);
    }

    #[test]
    fn an_invalid_key_is_reported_by_name_without_its_value() {
        let net = stack("team", "net", "u");
        let error = plan_keys(&entries(&[("a", &[1; 32]), ("b", b"hunter2")]), &net).unwrap_err();
        assert_eq!(error, PlanKeyError::InvalidKey { entry: "b".into() });
        assert!(!error.to_string().contains("hunter2"));
        assert_eq!(plan_keys(&entries(&[]), &net).unwrap_err(), PlanKeyError::None);
        let many: Pairs = (0..17).map(|n| (n.to_string(), vec![0; 32])).collect();
        assert_eq!(
            plan_keys(&many, &net).unwrap_err(),
            PlanKeyError::TooMany { found: 17 }
        );
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = plan_keys(&entries(&[("a", &bytes)]), &stack("team", "net", "u"));
        }
    }
}
