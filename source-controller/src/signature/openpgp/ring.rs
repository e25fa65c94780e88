//! Parses armored key rings into validated keys: verifies every self-signature, binding and revocation once, and drops
//! keys with an invalid one.

use pgp::armor::BlockType;
use pgp::errors::Error;
use pgp::packet::{
    Packet, PacketParser, PublicKey, PublicSubkey, RevocationCode, Signature, SignatureType, SubpacketData,
    UserId,
};
use pgp::types::{KeyDetails, KeyVersion, Tag};

use super::super::MAX_KEYS_BYTES;
use super::verifier::Verifier;
use super::{dearmor, is_acceptable, validity_error};

/// A validated primary key with its subkeys.
#[derive(Debug)]
pub(super) struct Entity {
    pub(super) primary: PublicKey,
    /// The self-signature: of the main identity, or direct for newer keys.
    pub(super) self_signature: Signature,
    subkeys: Vec<Subkey>,
    /// Revocations of the key and of its main identity.
    revocations: Vec<Signature>,
}

/// A subkey with a valid binding.
#[derive(Debug)]
pub(super) struct Subkey {
    pub(super) key: PublicSubkey,
    /// The newest binding.
    pub(super) binding: Signature,
    pub(super) revocations: Vec<Signature>,
}

/// A key named as the issuer of a signature, and permitted to sign.
pub(super) struct Candidate<'a> {
    pub(super) entity: &'a Entity,
    /// The subkey; `None` for the primary key.
    pub(super) subkey: Option<&'a Subkey>,
}

impl Entity {
    /// Returns the id of the primary key in its usual notation.
    pub(super) fn id(&self) -> String {
        self.primary.legacy_key_id().to_string().to_uppercase()
    }

    /// Returns the keys that may have issued the signature.
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

    /// Returns whether the key or its main identity is revoked.
    pub(super) fn is_revoked(&self, now: i64) -> bool {
        any_in_force(&self.revocations, now)
    }
}

impl Candidate<'_> {
    /// Verifies the signature over a payload.
    pub(super) fn check(&self, signature: &Signature, payload: &[u8]) -> Result<(), Error> {
        match self.subkey {
            Some(subkey) => signature.verify(&Verifier(&subkey.key), payload),
            None => signature.verify(&Verifier(&self.entity.primary), payload),
        }
    }
}

/// Returns whether a revocation is in force: a compromised key stays revoked forever, other revocations may expire.
pub(super) fn any_in_force(revocations: &[Signature], now: i64) -> bool {
    revocations.iter().any(|revocation| {
        revocation.revocation_reason_code() == Some(&RevocationCode::KeyCompromised)
            || validity_error(revocation, now).is_none()
    })
}

/// Returns whether a signature names the key as its issuer.
fn is_issuer(key: &impl KeyDetails, signature: &Signature) -> bool {
    let (id, fingerprint) = (key.legacy_key_id(), key.fingerprint());
    signature.issuer_key_id().contains(&&id) || signature.issuer_fingerprint().contains(&&fingerprint)
}

/// Returns whether a key may sign documents; the default without key flags is yes.
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

/// Parses all keys of all armored blocks of a key ring. Drops invalid keys.
///
/// # Errors
/// No valid key; the text is the error of the last dropped key.
pub(super) fn read(text: &[u8]) -> Result<Vec<Entity>, String> {
    if text.len() > MAX_KEYS_BYTES {
        return Err(format!("the key ring is larger than {MAX_KEYS_BYTES} bytes"));
    }
    let (mut entities, mut why) = (Vec::new(), "no armored data found".to_owned());
    for block in blocks(text) {
        match dearmor(block).and_then(packets) {
            Ok(keys) => {
                for key in keys {
                    match key.validate() {
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

/// Returns the armored blocks of a text, each up to the start of the next one.
fn blocks(text: &[u8]) -> Vec<&[u8]> {
    const BEGIN: &[u8] = b"-----BEGIN PGP ";
    let mut begins: Vec<_> = (0..text.len())
        .filter(|at| text[*at..].starts_with(BEGIN))
        .collect();
    begins.push(text.len());
    begins.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// A parsed but unchecked key.
struct RawKey {
    primary: PublicKey,
    /// Signatures before any identity or subkey.
    direct: Vec<Signature>,
    revocations: Vec<Signature>,
    identities: Vec<(UserId, Vec<Signature>)>,
    subkeys: Vec<(PublicSubkey, Vec<Signature>)>,
    /// The error of an unreadable packet.
    broken: Option<String>,
    last: Section,
}

/// The component that the following signatures belong to.
enum Section {
    Key,
    Identity,
    Subkey,
    /// An ignored component, such as a photo or a subkey with an unknown algorithm.
    Other,
}

/// Groups the packets of a key ring by key. Ignores components of unknown types.
fn packets((kind, bytes): (BlockType, Vec<u8>)) -> Result<Vec<RawKey>, String> {
    if !matches!(kind, BlockType::PublicKey | BlockType::PrivateKey) {
        return Err(format!("expected public or private key block, got: {kind}"));
    }
    let mut keys: Vec<RawKey> = Vec::new();
    for packet in PacketParser::new(bytes.as_slice()) {
        let primary = match &packet {
            Ok(Packet::PublicKey(key)) => Some(key.clone()),
            Ok(Packet::SecretKey(key)) => Some(key.public_key().clone()),
            Err(Error::PacketIncomplete { .. } | Error::IO { .. }) => return Err("unexpected EOF".into()),
            _ => None,
        };
        match (primary, keys.last_mut()) {
            (Some(primary), _) => keys.push(RawKey::new(primary)),
            (None, Some(key)) => key.push_packet(packet),
            // Ignore packets before the first key.
            (None, None) => {}
        }
    }
    if keys.is_empty() {
        return Err("first packet was not a public/private key".into());
    }
    Ok(keys)
}

impl RawKey {
    const fn new(primary: PublicKey) -> Self {
        Self {
            primary,
            direct: Vec::new(),
            revocations: Vec::new(),
            identities: Vec::new(),
            subkeys: Vec::new(),
            broken: None,
            last: Section::Key,
        }
    }

    fn push_packet(&mut self, packet: Result<Packet, Error>) {
        match packet {
            Ok(Packet::Signature(signature)) => self.push_signature(signature),
            Ok(Packet::UserId(id)) => {
                self.identities.push((id, Vec::new()));
                self.last = Section::Identity;
            }
            Ok(Packet::PublicSubkey(key)) => self.push_subkey(key),
            Ok(Packet::SecretSubkey(key)) => self.push_subkey(key.public_key().clone()),
            Ok(Packet::Trust(_) | Packet::Marker(_) | Packet::Padding(_)) => {}
            Ok(_) => self.last = Section::Other,
            Err(error) if is_unsupported(&error) => self.last = Section::Other,
            Err(error) => self.broken = Some(error.to_string()),
        }
    }

    fn push_subkey(&mut self, key: PublicSubkey) {
        self.subkeys.push((key, Vec::new()));
        self.last = Section::Subkey;
    }

    fn push_signature(&mut self, signature: Signature) {
        if signature.typ() == Some(SignatureType::KeyRevocation) {
            return self.revocations.push(signature);
        }
        let target = match self.last {
            Section::Key => Some(&mut self.direct),
            Section::Identity => self.identities.last_mut().map(|(_, signatures)| signatures),
            Section::Subkey => self.subkeys.last_mut().map(|(_, signatures)| signatures),
            Section::Other => None,
        };
        if let Some(target) = target {
            target.push(signature);
        }
    }

    /// Verifies all self-signatures, bindings and revocations.
    fn validate(self) -> Result<Entity, String> {
        if let Some(why) = self.broken {
            return Err(why);
        }
        let key = Verifier(&self.primary);
        let mut revocations = self.revocations;
        for revocation in &revocations {
            revocation
                .verify_key(&key)
                .map_err(|_| "revocation signature signed by alternate key")?;
        }
        let mut main: Option<Identity> = None;
        for (id, signatures) in &self.identities {
            if let Some(identity) = Identity::validate(&self.primary, id, signatures)?
                && main.as_ref().is_none_or(|previous| identity.outranks(previous))
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
            newest(direct).ok_or("key without a direct self-signature")?
        } else {
            let main = main.ok_or("entity without any identities")?;
            revocations.extend(main.revocations);
            main.self_signature
        };
        let mut subkeys = Vec::new();
        for (subkey, signatures) in self.subkeys {
            subkeys.push(Subkey::validate(&self.primary, subkey, signatures)?);
        }
        Ok(Entity {
            primary: self.primary,
            self_signature,
            subkeys,
            revocations,
        })
    }
}

/// An identity with a valid self-signature.
struct Identity {
    self_signature: Signature,
    revocations: Vec<Signature>,
}

impl Identity {
    /// Verifies the self-signatures of an identity, ignoring those of other keys. Returns `None` without a
    /// self-signature.
    fn validate(primary: &PublicKey, id: &UserId, signatures: &[Signature]) -> Result<Option<Self>, String> {
        let (mut own, mut revocations) = (Vec::new(), Vec::new());
        for signature in signatures
            .iter()
            .filter(|signature| is_issuer(primary, signature))
        {
            is_acceptable(signature)?;
            signature
                .verify_certification(&Verifier(primary), Tag::UserId, id)
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

    /// Returns whether this identity takes precedence as the main one: not revoked, then marked as primary, then newer.
    fn outranks(&self, other: &Self) -> bool {
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
    /// Verifies the binding signatures of a subkey and, if it may sign, its cross-signature.
    fn validate(primary: &PublicKey, key: PublicSubkey, signatures: Vec<Signature>) -> Result<Self, String> {
        let (mut bindings, mut revocations) = (Vec::new(), Vec::new());
        for signature in signatures {
            is_acceptable(&signature)?;
            signature
                .verify_subkey_binding(&Verifier(primary), &key)
                .map_err(|_| "subkey signature invalid")?;
            match signature.typ() {
                Some(SignatureType::SubkeyRevocation) => revocations.push(signature),
                _ => bindings.push(signature),
            }
        }
        let binding = newest(bindings.into_iter()).ok_or("subkey packet not followed by signature")?;
        if binding.key_flags().sign() {
            let cross_signature = binding
                .embedded_signature()
                .ok_or("signing subkey is missing cross-signature")?;
            is_acceptable(cross_signature)?;
            cross_signature
                .verify_primary_key_binding(&Verifier(&key), primary)
                .map_err(|_| "cross-signature of a signing subkey invalid")?;
        }
        Ok(Self {
            key,
            binding,
            revocations,
        })
    }
}

/// Returns the newest signature; the first of several with equal times.
fn newest(signatures: impl Iterator<Item = Signature>) -> Option<Signature> {
    signatures.reduce(|previous, next| {
        if next.created() > previous.created() {
            next
        } else {
            previous
        }
    })
}

/// Returns whether a packet only has an unknown type.
fn is_unsupported(error: &Error) -> bool {
    match error {
        Error::Unsupported { .. } => true,
        Error::InvalidPacketContent { source } => is_unsupported(source),
        _ => false,
    }
}
