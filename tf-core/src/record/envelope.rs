//! The DSSE envelope, version 1: a payload, its type, and signatures of both.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::{Deserialize, Serialize};

use super::error::{RecordError, SignError, excerpt};
use super::key::{PublicKey, SigningKey};

/// The longest accepted envelope in bytes.
pub const LIMIT: usize = 1024 * 1024;
/// The highest accepted number of signatures: each costs a verification with each key.
const MAX_SIGNATURES: usize = 16;

/// Returns the bytes that a signature is of: the pre-authentication encoding (PAE) of DSSE's `protocol.md`.
#[must_use]
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let front = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [front.as_bytes(), payload].concat()
}

/// A payload with its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Type of the payload.
    pub payload_type: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// Signatures of [`pae`] of both.
    pub signatures: Vec<EnvelopeSignature>,
}

/// A signature in an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeSignature {
    /// Id of the key as the signer wrote it: not signed, and only for messages. Empty: not named.
    pub key_id: String,
    /// The signature.
    pub bytes: Vec<u8>,
}

/// The JSON of an envelope. Unknown fields are ignored, as DSSE requires.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EncodedEnvelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EncodedSignature>,
}

#[derive(Serialize, Deserialize)]
struct EncodedSignature {
    #[serde(default)]
    keyid: String,
    sig: String,
}

impl Envelope {
    /// Signs a payload.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn sign(payload_type: &str, payload: Vec<u8>, key: &SigningKey) -> Result<Self, SignError> {
        let signature = EnvelopeSignature {
            key_id: key.public().id(),
            bytes: key.sign(&pae(payload_type, &payload))?,
        };
        Ok(Self {
            payload_type: payload_type.to_owned(),
            payload,
            signatures: vec![signature],
        })
    }

    /// Parses the JSON of an envelope. It says nothing about who wrote it: see [`Self::verify`].
    ///
    /// # Errors
    /// It is too long, is not JSON, lacks a field, or has a field that is not base64.
    pub fn parse(file: &[u8]) -> Result<Self, RecordError> {
        if file.len() > LIMIT {
            return Err(RecordError::TooLong);
        }
        let encoded: EncodedEnvelope = serde_json::from_slice(file)
            .map_err(|error| RecordError::Envelope(excerpt(&error.to_string())))?;
        match encoded.signatures.len() {
            0 => return Err(RecordError::Unsigned),
            1..=MAX_SIGNATURES => {}
            count => return Err(RecordError::TooManySignatures(count)),
        }
        let mut signatures = Vec::new();
        for (index, signature) in encoded.signatures.into_iter().enumerate() {
            signatures.push(EnvelopeSignature {
                key_id: signature.keyid,
                bytes: decode(&signature.sig, || format!("signatures[{index}].sig"))?,
            });
        }
        Ok(Self {
            payload: decode(&encoded.payload, || "payload".to_owned())?,
            payload_type: encoded.payload_type,
            signatures,
        })
    }

    /// Returns the first of the keys that has signed payload and type. The ids in the envelope do not decide: they are not signed.
    ///
    /// # Errors
    /// None has: [`RecordError::InvalidSignature`] if the envelope names one of them, else [`RecordError::OtherKey`].
    pub fn verify<'k>(&self, keys: &'k [PublicKey]) -> Result<&'k PublicKey, RecordError> {
        let message = pae(&self.payload_type, &self.payload);
        let has_signed = |key: &PublicKey| {
            let mut signatures = self.signatures.iter();
            signatures.any(|signature| key.verifies(&message, &signature.bytes))
        };
        if let Some(key) = keys.iter().find(|key| has_signed(key)) {
            return Ok(key);
        }
        let given: Vec<String> = keys.iter().map(PublicKey::id).collect();
        let ids = self.signatures.iter().map(|signature| &signature.key_id);
        if let Some(id) = ids.clone().find(|id| given.contains(id)) {
            return Err(RecordError::InvalidSignature { key_id: id.clone() });
        }
        let named: Vec<&str> = ids.map(String::as_str).collect();
        Err(RecordError::OtherKey {
            named: excerpt(&named.join(", ")),
            given: given.join(", "),
        })
    }

    /// Returns the JSON of the envelope.
    ///
    /// # Errors
    /// It is longer than [`LIMIT`].
    pub fn to_json(&self) -> Result<String, SignError> {
        let signatures = self.signatures.iter().map(|signature| EncodedSignature {
            keyid: signature.key_id.clone(),
            sig: STANDARD.encode(&signature.bytes),
        });
        let encoded = EncodedEnvelope {
            payload: STANDARD.encode(&self.payload),
            payload_type: self.payload_type.clone(),
            signatures: signatures.collect(),
        };
        let text = serde_json::to_string(&encoded).map_err(|error| SignError::Format(error.to_string()))?;
        if text.len() > LIMIT {
            return Err(SignError::TooLong(text.len()));
        }
        Ok(text)
    }
}

/// Decodes base64 in either alphabet, both of which DSSE permits.
fn decode(text: &str, field: impl Fn() -> String) -> Result<Vec<u8>, RecordError> {
    let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text));
    decoded.map_err(|_| RecordError::Base64(field()))
}
