//! Verifies detached OpenPGP signatures. `ring` parses and validates the keys. The rules are those of the library that
//! Flux uses (go-crypto by Proton, `CheckArmoredDetachedSignature`): revoked keys are never accepted, and keys and
//! signatures must not be expired *now*, whenever the signature was made.

mod brainpool;
mod ring;
mod verifier;

use std::io::Read as _;

use pgp::armor::{BlockType, Dearmor, DearmorOptions};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Packet, PacketParser, Signature, SignatureType, Subpacket, SubpacketData};
use pgp::types::KeyDetails;
use ring::{Candidate, Entity};

use super::MAX_SIGNATURE_BYTES;
use super::object::SignedObject;

/// An error that prevents the verification by any key ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenPgpError {
    /// No key ring can be parsed.
    #[error("unable to read armored key ring: {0}")]
    Ring(String),
    /// No key matches, or a matching key does not verify the signature; the text then names the key and the cause.
    #[error("unable to verify payload with any of the given key rings: no matching key{0}")]
    NoMatch(String),
}

/// Verifies a signature; returns the id of the signer's primary key.
pub(super) fn verify<'a>(
    signed: &SignedObject,
    rings: impl Iterator<Item = &'a [u8]>,
    now: i64,
) -> Result<String, OpenPgpError> {
    let signatures = signatures(&signed.signature);
    let (mut unreadable, mut readable) = (None, false);
    let mut refused = None;
    for text in rings {
        let ring = match ring::read(text) {
            Ok(ring) => ring,
            Err(why) => {
                unreadable.get_or_insert(why);
                continue;
            }
        };
        readable = true;
        match &signatures {
            Ok(signatures) => match verify_with_ring(signatures, &signed.payload, &ring, now) {
                Ok(Some(id)) => return Ok(id),
                Ok(None) => {}
                Err(why) => {
                    refused.get_or_insert(why);
                }
            },
            Err(why) => {
                refused.get_or_insert_with(|| format!("the signature cannot be read: {why}"));
            }
        }
    }
    match unreadable {
        Some(why) if !readable => Err(OpenPgpError::Ring(why)),
        _ => Err(OpenPgpError::NoMatch(
            refused.map_or_else(String::new, |why| format!(" ({why})")),
        )),
    }
}

/// Verifies with one key ring: the first signature issued by a key of the ring decides. Returns `None` if there is
/// none.
fn verify_with_ring(
    signatures: &[Packet],
    payload: &[u8],
    ring: &[Entity],
    now: i64,
) -> Result<Option<String>, String> {
    for packet in signatures {
        let Packet::Signature(signature) = packet else {
            return Err("unexpected packet between the signatures".into());
        };
        let candidates: Vec<_> = ring
            .iter()
            .flat_map(|entity| entity.candidates(signature))
            .collect();
        let mut refused = None;
        for candidate in &candidates {
            match candidate.confirms(signature, payload, now) {
                Ok(()) => return Ok(Some(candidate.entity.id())),
                Err(why) => {
                    refused.get_or_insert_with(|| format!("key '{}': {why}", candidate.entity.id()));
                }
            }
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
    }
    Ok(None)
}

impl Candidate<'_> {
    /// Verifies that the key made the signature and was allowed to.
    fn confirms(&self, signature: &Signature, payload: &[u8], now: i64) -> Result<(), String> {
        if !matches!(signature.typ(), Some(SignatureType::Binary | SignatureType::Text)) {
            return Err("not a signature over a document".into());
        }
        is_acceptable(signature)?;
        self.check(signature, payload)
            .map_err(|_| "the signature does not match the content".to_owned())?;
        self.check_validity(signature, now)
    }

    /// Checks that key and signature are neither revoked nor expired now, whenever the signature was made.
    fn check_validity(&self, signature: &Signature, now: i64) -> Result<(), String> {
        let (primary, self_signature) = (&self.entity.primary, &self.entity.self_signature);
        let subkey = self.subkey;
        let binding = subkey.map(|subkey| &subkey.binding);
        let relevant = [
            Some(signature),
            Some(self_signature),
            binding,
            binding.and_then(Signature::embedded_signature),
        ];
        for relevant in relevant.into_iter().flatten() {
            is_acceptable(relevant)?;
        }
        if self.entity.is_revoked(now)
            || subkey.is_some_and(|subkey| ring::any_in_force(&subkey.revocations, now))
        {
            return Err("the key is revoked".into());
        }
        if is_expired(primary, self_signature, now)
            || subkey.is_some_and(|subkey| is_expired(&subkey.key, &subkey.binding, now))
        {
            return Err("the key is expired".into());
        }
        relevant
            .into_iter()
            .flatten()
            .find_map(|relevant| validity_error(relevant, now))
            .map_or(Ok(()), |why| Err(why.into()))
    }
}

/// Returns whether a key is expired or not valid yet, according to the lifetime in its binding signature.
fn is_expired(key: &impl KeyDetails, binding: &Signature, now: i64) -> bool {
    let created = i64::from(key.created_at().as_secs());
    let lifetime = binding
        .key_expiration_time()
        .map_or(0, pgp::types::Duration::as_secs);
    created > now || (lifetime != 0 && now > created + i64::from(lifetime))
}

/// Returns why a signature is not valid now, if it is not.
fn validity_error(signature: &Signature, now: i64) -> Option<&'static str> {
    let created = signature
        .created()
        .map_or(i64::MAX, |time| i64::from(time.as_secs()));
    let lifetime = signature
        .signature_expiration_time()
        .map_or(0, pgp::types::Duration::as_secs);
    if created > now {
        return Some("the signature is from the future");
    }
    (lifetime != 0 && now > created.saturating_add(i64::from(lifetime))).then_some("the signature is expired")
}

/// Checks that a signature uses a secure hash and has no unknown critical subpacket. SHA-1 is accepted, as in Flux,
/// except with bytes that indicate a known collision attack.
fn is_acceptable(signature: &Signature) -> Result<(), String> {
    use HashAlgorithm::{Sha1, Sha3_256, Sha3_512, Sha224, Sha256, Sha384, Sha512};
    let config = signature
        .config()
        .ok_or("the signature is of an unknown version")?;
    if !matches!(
        config.hash_alg,
        Sha1 | Sha224 | Sha256 | Sha384 | Sha512 | Sha3_256 | Sha3_512
    ) {
        return Err(format!("the hash {} is too weak", config.hash_alg));
    }
    let unknown = |subpacket: &&Subpacket| {
        subpacket.is_critical
            && matches!(
                subpacket.data,
                SubpacketData::Notation(_) | SubpacketData::Experimental(..) | SubpacketData::Other(..)
            )
    };
    match config.hashed_subpackets().find(unknown) {
        None => Ok(()),
        Some(_) => Err("the signature has an unknown critical subpacket".into()),
    }
}

/// Parses the packets of an armored signature. Ignores what follows the armor.
fn signatures(text: &[u8]) -> Result<Vec<Packet>, String> {
    if text.len() > MAX_SIGNATURE_BYTES {
        return Err(format!(
            "the signature is larger than {MAX_SIGNATURE_BYTES} bytes"
        ));
    }
    let (kind, bytes) = dearmor(text.trim_ascii())?;
    if kind != BlockType::Signature {
        return Err(format!("unexpected armor type: {kind}"));
    }
    let packets: Result<Vec<_>, _> = PacketParser::new(bytes.as_slice()).collect();
    packets.map_err(|error| error.to_string())
}

/// Decodes the armor.
fn dearmor(text: &[u8]) -> Result<(BlockType, Vec<u8>), String> {
    let options = DearmorOptions::new().set_limit(text.len().max(1024));
    let mut dearmor = Dearmor::with_options(text, options);
    dearmor.read_header().map_err(|error| error.to_string())?;
    let kind = dearmor.typ.ok_or("no armor found")?;
    let mut bytes = Vec::new();
    dearmor
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok((kind, bytes))
}
