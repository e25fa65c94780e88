//! Detached OpenPGP signatures. `ring` makes keys that can be believed of a key ring; this file judges a signature by
//! them, with the rules of the library that Flux uses (go-crypto by Proton, `CheckArmoredDetachedSignature`): a
//! revoked key never counts, a key or a signature that is expired *now* does not count, whenever it was made.

mod brainpool;
mod checker;
mod ring;

use std::io::Read as _;

use pgp::armor::{BlockType, Dearmor, DearmorOptions};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Packet, PacketParser, Signature, SignatureType, Subpacket, SubpacketData};
use pgp::types::KeyDetails;

use super::LARGEST_SIGNATURE;
use super::object::Signed;
use ring::{Candidate, Entity};

/// Why no key ring confirms a signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenPgpError {
    /// No key ring can be read.
    #[error("unable to read armored key ring: {0}")]
    Ring(String),
    /// The rings hold other keys, or a key does not confirm the signature; then the text says which and why.
    #[error("unable to verify payload with any of the given key rings: no matching key{0}")]
    NoMatch(String),
}

/// Verifies a signature; answers the id of the primary key of who made it.
pub(super) fn verify<'a>(
    signed: &Signed,
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
            Ok(signatures) => match by_ring(signatures, &signed.payload, &ring, now) {
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

/// Judges by one ring: the first signature that a key of the ring claims decides. Answers nothing if none does.
fn by_ring(
    signatures: &[Packet],
    payload: &[u8],
    ring: &[Entity],
    now: i64,
) -> Result<Option<String>, String> {
    for packet in signatures {
        let Packet::Signature(signature) = packet else {
            return Err("there is something else between the signatures".into());
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
    /// Whether the key made the signature, and may have.
    fn confirms(&self, signature: &Signature, payload: &[u8], now: i64) -> Result<(), String> {
        if !matches!(signature.typ(), Some(SignatureType::Binary | SignatureType::Text)) {
            return Err("the signature is not one over a document".into());
        }
        is_acceptable(signature)?;
        self.check(signature, payload)
            .map_err(|_| "the signature does not fit the content".to_owned())?;
        self.stands(signature, now)
    }

    /// Whether key and signature are in force. What is expired or revoked now does not count, whenever it was made.
    fn stands(&self, signature: &Signature, now: i64) -> Result<(), String> {
        let Entity {
            primary,
            self_signature,
            ..
        } = self.entity;
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
            || subkey.is_some_and(|subkey| ring::are_in_force(&subkey.revocations, now))
        {
            return Err("it is revoked".into());
        }
        if is_expired(primary, self_signature, now)
            || subkey.is_some_and(|subkey| is_expired(&subkey.key, &subkey.binding, now))
        {
            return Err("it is expired".into());
        }
        relevant
            .into_iter()
            .flatten()
            .find_map(|relevant| lapse(relevant, now))
            .map_or(Ok(()), |why| Err(why.into()))
    }
}

/// Whether a key's time is over, or has not begun. How long it lasts stands in the signature that binds it.
fn is_expired(key: &impl KeyDetails, binding: &Signature, now: i64) -> bool {
    let created = i64::from(key.created_at().as_secs());
    let lasts = binding
        .key_expiration_time()
        .map_or(0, pgp::types::Duration::as_secs);
    created > now || (lasts != 0 && now > created + i64::from(lasts))
}

/// Why a signature does not count now: its time is over, or has not begun.
fn lapse(signature: &Signature, now: i64) -> Option<&'static str> {
    let created = signature
        .created()
        .map_or(i64::MAX, |time| i64::from(time.as_secs()));
    let lasts = signature
        .signature_expiration_time()
        .map_or(0, pgp::types::Duration::as_secs);
    if created > now {
        return Some("the signature is from the future");
    }
    (lasts != 0 && now > created.saturating_add(i64::from(lasts))).then_some("the signature is expired")
}

/// Whether a signature is made in a way that counts at all: a hash that is not broken (SHA-1 counts, as it does for Flux,
/// but not where the bytes show one of the known ways to make two contents collide), and nothing critical that is not
/// understood.
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
        Some(_) => Err("the signature has a critical part that is not known".into()),
    }
}

/// The packets of an armored signature. What follows the armor is not looked at.
fn signatures(text: &[u8]) -> Result<Vec<Packet>, String> {
    if text.len() > LARGEST_SIGNATURE {
        return Err(format!("it is larger than {LARGEST_SIGNATURE} bytes"));
    }
    let (kind, bytes) = dearmor(text.trim_ascii())?;
    if kind != BlockType::Signature {
        return Err(format!("its armor is that of a {kind}"));
    }
    let packets: Result<Vec<_>, _> = PacketParser::new(bytes.as_slice()).collect();
    packets.map_err(|error| error.to_string())
}

/// Takes the armor off.
fn dearmor(text: &[u8]) -> Result<(BlockType, Vec<u8>), String> {
    let options = DearmorOptions::new().set_limit(text.len().max(1024));
    let mut dearmor = Dearmor::with_options(text, options);
    dearmor.read_header().map_err(|error| error.to_string())?;
    let kind = dearmor.typ.ok_or("it has no armor")?;
    let mut bytes = Vec::new();
    dearmor
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok((kind, bytes))
}
