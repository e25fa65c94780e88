//! Keys that sign and verify records: Ed25519 (RFC 8032) and ECDSA on P-256 with SHA-256 (FIPS 186-4), in PEM (RFC 7468) as
//! PKCS#8 (RFC 5208) and `SubjectPublicKeyInfo` (RFC 5280).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest as _, Sha256};

use super::error::{KeyError, SignError, excerpt};

/// The longest accepted text of a key in bytes, with comments around its PEM block.
const LIMIT: usize = 64 * 1024;

/// The `SubjectPublicKeyInfo` of an Ed25519 key before its 32 bytes (RFC 8410).
const ED25519_FRONT: &[u8] = &[
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// The `SubjectPublicKeyInfo` of a P-256 key before the 65 bytes of its uncompressed point (RFC 5480).
const P256_FRONT: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// First byte of an uncompressed point (SEC 1, 2.3.3).
const UNCOMPRESSED: u8 = 0x04;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Ed25519,
    EcdsaP256,
}

impl Algorithm {
    const fn front(self) -> &'static [u8] {
        match self {
            Self::Ed25519 => ED25519_FRONT,
            Self::EcdsaP256 => P256_FRONT,
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Ed25519 => &ED25519,
            Self::EcdsaP256 => &ECDSA_P256_SHA256_ASN1,
        }
    }
}

/// A key that verifies records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    algorithm: Algorithm,
    /// The key without its front.
    bytes: Vec<u8>,
}

impl PublicKey {
    /// Reads the first PEM block of a text, a `PUBLIC KEY` as `openssl pkey -pubout` and cosign write it.
    ///
    /// # Errors
    /// There is none, or it is of another kind or algorithm.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let content = pem_block(text, "PUBLIC KEY")?;
        let key = |algorithm: Algorithm| {
            let bytes = content.strip_prefix(algorithm.front())?.to_vec();
            Some(Self { algorithm, bytes })
        };
        let found = key(Algorithm::Ed25519).or_else(|| key(Algorithm::EcdsaP256));
        found.filter(Self::has_valid_form).ok_or(KeyError::Unsupported)
    }

    fn has_valid_form(&self) -> bool {
        match self.algorithm {
            Algorithm::Ed25519 => self.bytes.len() == 32,
            Algorithm::EcdsaP256 => self.bytes.len() == 65 && self.bytes.first() == Some(&UNCOMPRESSED),
        }
    }

    /// Returns the id of the key: the SHA-256 of its `SubjectPublicKeyInfo` in hex, which
    /// `openssl pkey -pubin -outform DER | sha256sum` prints too.
    #[must_use]
    pub fn id(&self) -> String {
        hex::encode(Sha256::digest([self.algorithm.front(), &self.bytes].concat()))
    }

    /// Returns whether this key has signed the message.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(self.algorithm.verification(), &self.bytes);
        key.verify(message, signature).is_ok()
    }
}

/// A key that signs records. `Debug` shows only its public half.
#[derive(Debug)]
pub struct SigningKey {
    pair: Pair,
    public: PublicKey,
}

#[derive(Debug)]
enum Pair {
    Ed25519(Ed25519KeyPair),
    EcdsaP256(EcdsaKeyPair),
}

impl SigningKey {
    /// Reads the first PEM block of a text, a `PRIVATE KEY` in PKCS#8 as `openssl genpkey` writes it.
    ///
    /// # Errors
    /// There is none, or it is encrypted, damaged, or of another kind or algorithm.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let content = pem_block(text, "PRIVATE KEY")?;
        // The form without the public half, which OpenSSL writes, is accepted.
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&content) {
            return Ok(Self::of_pair(Pair::Ed25519(pair)));
        }
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &content, &random);
        let pair = pair.map_err(|_| KeyError::Unsupported)?;
        Ok(Self::of_pair(Pair::EcdsaP256(pair)))
    }

    fn of_pair(pair: Pair) -> Self {
        let (algorithm, bytes) = match &pair {
            Pair::Ed25519(pair) => (Algorithm::Ed25519, pair.public_key().as_ref().to_vec()),
            Pair::EcdsaP256(pair) => (Algorithm::EcdsaP256, pair.public_key().as_ref().to_vec()),
        };
        Self {
            pair,
            public: PublicKey { algorithm, bytes },
        }
    }

    /// Returns the public half.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        match &self.pair {
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Pair::EcdsaP256(pair) => {
                let signature = pair.sign(&SystemRandom::new(), message);
                let signature = signature.map_err(|_| SignError::NoRandom)?;
                Ok(signature.as_ref().to_vec())
            }
        }
    }
}

/// Returns the content of the first PEM block of a text, which must have this label. Text around it is ignored.
fn pem_block(text: &[u8], expected: &'static str) -> Result<Vec<u8>, KeyError> {
    if text.len() > LIMIT {
        return Err(KeyError::TooLong);
    }
    let text = std::str::from_utf8(text).map_err(|_| KeyError::NoPem)?;
    let mut lines = text.lines().map(str::trim);
    let label = lines.find_map(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    let label = label.ok_or(KeyError::NoPem)?;
    if label.starts_with("ENCRYPTED ") {
        return Err(KeyError::Encrypted);
    }
    if label != expected {
        let found = excerpt(label);
        return Err(KeyError::WrongLabel { found, expected });
    }
    let mut base64 = String::new();
    for line in lines {
        if line.starts_with("-----END ") {
            let content = STANDARD.decode(base64);
            return content.map_err(|_| KeyError::Damaged("its content is not base64"));
        }
        base64.push_str(line);
    }
    Err(KeyError::Damaged("its END line is missing"))
}
