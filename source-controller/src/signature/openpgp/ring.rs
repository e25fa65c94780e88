//! Armored key rings, read into keys that can be believed: every self-signature, binding and revocation is checked here,
//! once, and a key with one that does not hold is no key.

use pgp::armor::BlockType;
use pgp::errors::Error;
use pgp::packet::{
    Packet, PacketParser, PublicKey, PublicSubkey, RevocationCode, Signature, SignatureType, SubpacketData,
    UserId,
};
use pgp::types::{KeyDetails, KeyVersion, Tag};

use super::super::LARGEST_KEYS;
use super::checker::Checker;
use super::{dearmor, is_acceptable, lapse};

/// A primary key with all that it says of itself.
#[derive(Debug)]
pub(super) struct Entity {
    pub(super) primary: PublicKey,
    /// What binds the primary key to itself: on its main identity, or for newer keys directly.
    pub(super) self_signature: Signature,
    subkeys: Vec<Subkey>,
    /// Revocations of the key, and of its main identity.
    revocations: Vec<Signature>,
}

/// A subkey that its primary key has bound.
#[derive(Debug)]
pub(super) struct Subkey {
    pub(super) key: PublicSubkey,
    /// The newest binding.
    pub(super) binding: Signature,
    pub(super) revocations: Vec<Signature>,
}

/// A key that a signature claims to be made by, and that may sign.
pub(super) struct Candidate<'a> {
    pub(super) entity: &'a Entity,
    /// The subkey; none if it is the primary key itself.
    pub(super) subkey: Option<&'a Subkey>,
}

impl Entity {
    /// The id of the primary key, as users see it.
    pub(super) fn id(&self) -> String {
        self.primary.legacy_key_id().to_string().to_uppercase()
    }

    /// The keys that may have made the signature.
    pub(super) fn candidates<'a>(&'a self, signature: &Signature) -> Vec<Candidate<'a>> {
        let primary =
            (is_issuer(&self.primary, signature) && may_sign(&self.self_signature)).then_some(Candidate {
                entity: self,
                subkey: None,
            });
        let bound = self
            .subkeys
            .iter()
            .filter(|subkey| is_issuer(&subkey.key, signature) && may_sign(&subkey.binding))
            .map(|subkey| Candidate {
                entity: self,
                subkey: Some(subkey),
            });
        primary.into_iter().chain(bound).collect()
    }

    /// Whether the key, or its main identity, is revoked.
    pub(super) fn is_revoked(&self, now: i64) -> bool {
        are_in_force(&self.revocations, now)
    }
}

impl Candidate<'_> {
    /// Whether the key made the signature over this content.
    pub(super) fn check(&self, signature: &Signature, payload: &[u8]) -> Result<(), Error> {
        match self.subkey {
            Some(subkey) => signature.verify(&Checker(&subkey.key), payload),
            None => signature.verify(&Checker(&self.entity.primary), payload),
        }
    }
}

/// Whether one of these revocations is in force: a compromised key is revoked for all time, any other revocation holds
/// within its own time.
pub(super) fn are_in_force(revocations: &[Signature], now: i64) -> bool {
    revocations.iter().any(|revocation| {
        revocation.revocation_reason_code() == Some(&RevocationCode::KeyCompromised)
            || lapse(revocation, now).is_none()
    })
}

/// Whether a signature names the key as its maker. One that names nobody is nobody's.
fn is_issuer(key: &impl KeyDetails, signature: &Signature) -> bool {
    let (id, fingerprint) = (key.legacy_key_id(), key.fingerprint());
    signature.issuer_key_id().contains(&&id) || signature.issuer_fingerprint().contains(&&fingerprint)
}

/// Whether a key may sign documents: where a binding says nothing of it, it may.
fn may_sign(binding: &Signature) -> bool {
    let flags = binding.config().and_then(|config| {
        config
            .hashed_subpackets()
            .find_map(|subpacket| match &subpacket.data {
                SubpacketData::KeyFlags(flags) => Some(flags.sign()),
                _ => None,
            })
    });
    flags.unwrap_or(true)
}

/// Reads a key ring: every armored block in it, every key in each. Keys that cannot be believed are left out.
///
/// # Errors
/// No key is left; the text is the reason of the last one that was left out.
pub(super) fn read(text: &[u8]) -> Result<Vec<Entity>, String> {
    if text.len() > LARGEST_KEYS {
        return Err(format!("it is larger than {LARGEST_KEYS} bytes"));
    }
    let (mut entities, mut why) = (Vec::new(), "no armored data found".to_owned());
    for block in blocks(text) {
        match dearmor(block).and_then(packets) {
            Ok(keys) => {
                for key in keys {
                    match key.believe() {
                        Ok(entity) => entities.push(entity),
                        Err(reason) => why = reason,
                    }
                }
            }
            Err(reason) => why = reason,
        }
    }
    if entities.is_empty() {
        Err(why)
    } else {
        Ok(entities)
    }
}

/// The armored blocks of a text, each from its first line to where the next one begins.
fn blocks(text: &[u8]) -> Vec<&[u8]> {
    const BEGIN: &[u8] = b"-----BEGIN PGP ";
    let mut begins: Vec<_> = (0..text.len())
        .filter(|at| text[*at..].starts_with(BEGIN))
        .collect();
    begins.push(text.len());
    begins.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// A key as it is written, nothing of it checked yet.
struct Written {
    primary: PublicKey,
    /// Signatures that stand before anything else.
    direct: Vec<Signature>,
    revocations: Vec<Signature>,
    identities: Vec<(UserId, Vec<Signature>)>,
    subkeys: Vec<(PublicSubkey, Vec<Signature>)>,
    /// A packet that could not be read.
    broken: Option<String>,
    last: Last,
}

/// What the signatures that follow are about.
enum Last {
    Key,
    Identity,
    Subkey,
    /// A part that is not looked at, such as a photo or a subkey for an algorithm of the future.
    Other,
}

/// Sorts the packets of a ring by keys. Parts of kinds that are not known are left out.
fn packets((kind, bytes): (BlockType, Vec<u8>)) -> Result<Vec<Written>, String> {
    if !matches!(kind, BlockType::PublicKey | BlockType::PrivateKey) {
        return Err(format!("expected public or private key block, got: {kind}"));
    }
    let mut keys: Vec<Written> = Vec::new();
    for packet in PacketParser::new(bytes.as_slice()) {
        let primary = match &packet {
            Ok(Packet::PublicKey(key)) => Some(key.clone()),
            Ok(Packet::SecretKey(key)) => Some(key.public_key().clone()),
            Err(Error::PacketIncomplete { .. } | Error::IO { .. }) => return Err("unexpected EOF".into()),
            _ => None,
        };
        match (primary, keys.last_mut()) {
            (Some(primary), _) => keys.push(Written::new(primary)),
            (None, Some(key)) => key.take(packet),
            // What stands before the first key belongs to none.
            (None, None) => {}
        }
    }
    if keys.is_empty() {
        return Err("first packet was not a public/private key".into());
    }
    Ok(keys)
}

impl Written {
    const fn new(primary: PublicKey) -> Self {
        Self {
            primary,
            direct: Vec::new(),
            revocations: Vec::new(),
            identities: Vec::new(),
            subkeys: Vec::new(),
            broken: None,
            last: Last::Key,
        }
    }

    fn take(&mut self, packet: Result<Packet, Error>) {
        match packet {
            Ok(Packet::Signature(signature)) => self.take_signature(signature),
            Ok(Packet::UserId(id)) => {
                self.identities.push((id, Vec::new()));
                self.last = Last::Identity;
            }
            Ok(Packet::PublicSubkey(key)) => self.take_subkey(key),
            Ok(Packet::SecretSubkey(key)) => self.take_subkey(key.public_key().clone()),
            Ok(Packet::Trust(_) | Packet::Marker(_) | Packet::Padding(_)) => {}
            Ok(_) => self.last = Last::Other,
            Err(error) if is_unsupported(&error) => self.last = Last::Other,
            Err(error) => self.broken = Some(error.to_string()),
        }
    }

    fn take_subkey(&mut self, key: PublicSubkey) {
        self.subkeys.push((key, Vec::new()));
        self.last = Last::Subkey;
    }

    fn take_signature(&mut self, signature: Signature) {
        if signature.typ() == Some(SignatureType::KeyRevocation) {
            return self.revocations.push(signature);
        }
        let place = match self.last {
            Last::Key => Some(&mut self.direct),
            Last::Identity => self.identities.last_mut().map(|(_, signatures)| signatures),
            Last::Subkey => self.subkeys.last_mut().map(|(_, signatures)| signatures),
            Last::Other => None,
        };
        if let Some(place) = place {
            place.push(signature);
        }
    }

    /// Checks everything that the key says of itself.
    fn believe(self) -> Result<Entity, String> {
        if let Some(why) = self.broken {
            return Err(why);
        }
        let key = Checker(&self.primary);
        let mut revocations = self.revocations;
        for revocation in &revocations {
            revocation
                .verify_key(&key)
                .map_err(|_| "revocation signature signed by alternate key")?;
        }
        let mut main: Option<Identity> = None;
        for (id, signatures) in &self.identities {
            if let Some(identity) = Identity::believe(&self.primary, id, signatures)?
                && main.as_ref().is_none_or(|held| identity.goes_before(held))
            {
                main = Some(identity);
            }
        }
        let self_signature = if self.primary.version() == KeyVersion::V6 {
            let direct = self.direct.into_iter().filter(|signature| {
                is_issuer(&self.primary, signature)
                    && is_acceptable(signature).is_ok()
                    && signature.verify_key(&key).is_ok()
            });
            newest(direct).ok_or("a key without a signature of its own")?
        } else {
            let main = main.ok_or("entity without any identities")?;
            revocations.extend(main.revocations);
            main.self_signature
        };
        let mut subkeys = Vec::new();
        for (subkey, signatures) in self.subkeys {
            subkeys.push(Subkey::believe(&self.primary, subkey, signatures)?);
        }
        Ok(Entity {
            primary: self.primary,
            self_signature,
            subkeys,
            revocations,
        })
    }
}

/// An identity that its key has signed.
struct Identity {
    self_signature: Signature,
    revocations: Vec<Signature>,
}

impl Identity {
    /// Checks the key's own signatures on an identity; those of others do not count. Nothing if there is none.
    fn believe(primary: &PublicKey, id: &UserId, signatures: &[Signature]) -> Result<Option<Self>, String> {
        let (mut own, mut revocations) = (Vec::new(), Vec::new());
        for signature in signatures
            .iter()
            .filter(|signature| is_issuer(primary, signature))
        {
            is_acceptable(signature)?;
            signature
                .verify_certification(&Checker(primary), Tag::UserId, id)
                .map_err(|_| "user ID self-signature invalid")?;
            match signature.typ() {
                Some(SignatureType::CertRevocation) => revocations.push(signature.clone()),
                _ => own.push(signature.clone()),
            }
        }
        Ok(newest(own.into_iter()).map(|self_signature| Self {
            self_signature,
            revocations,
        }))
    }

    /// Whether this one is the main identity rather than the other: not revoked, then marked as such, then newer.
    fn goes_before(&self, other: &Self) -> bool {
        let rank = |identity: &Self| {
            (
                identity.revocations.is_empty(),
                identity.self_signature.is_primary(),
                identity.self_signature.created(),
            )
        };
        rank(self) > rank(other)
    }
}

impl Subkey {
    /// Checks the signatures that bind a subkey, and, if it may sign, that it has agreed.
    fn believe(primary: &PublicKey, key: PublicSubkey, signatures: Vec<Signature>) -> Result<Self, String> {
        let (mut bindings, mut revocations) = (Vec::new(), Vec::new());
        for signature in signatures {
            is_acceptable(&signature)?;
            signature
                .verify_subkey_binding(&Checker(primary), &key)
                .map_err(|_| "subkey signature invalid")?;
            match signature.typ() {
                Some(SignatureType::SubkeyRevocation) => revocations.push(signature),
                _ => bindings.push(signature),
            }
        }
        let binding = newest(bindings.into_iter()).ok_or("subkey packet not followed by signature")?;
        if binding.key_flags().sign() {
            let agreed = binding
                .embedded_signature()
                .ok_or("signing subkey is missing cross-signature")?;
            is_acceptable(agreed)?;
            agreed
                .verify_primary_key_binding(&Checker(&key), primary)
                .map_err(|_| "cross-signature of a signing subkey invalid")?;
        }
        Ok(Self {
            key,
            binding,
            revocations,
        })
    }
}

/// The newest of these signatures; of several of one second the first.
fn newest(signatures: impl Iterator<Item = Signature>) -> Option<Signature> {
    signatures.reduce(|held, next| {
        if next.created() > held.created() {
            next
        } else {
            held
        }
    })
}

/// Whether a packet is merely of a kind that is not known.
fn is_unsupported(error: &Error) -> bool {
    match error {
        Error::Unsupported { .. } => true,
        Error::InvalidPacketContent { source } => is_unsupported(source),
        _ => false,
    }
}
