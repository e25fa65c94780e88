//! Signed records of runs: what a run did, as an in-toto statement in a DSSE envelope, which anyone can verify without an API.
//!
//! * Statement: <https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md>
//! * Envelope: <https://github.com/secure-systems-lab/dsse/blob/master/envelope.md>, signature over the PAE of its `protocol.md`.
//! * Keys: Ed25519 and ECDSA P-256 with SHA-256, in PEM. The signature of ECDSA is in DER (X9.62), as cosign writes it.
//!
//! [`verify`] checks the signature over the bytes of the payload before it parses them. `docs/guides/run-records.md` describes the
//! fields.

mod content;
mod envelope;
mod error;
mod key;
mod statement;

pub use content::{RecordedObjects, record_of};
pub use envelope::{Envelope, EnvelopeSignature, LIMIT, pae};
pub use error::{KeyError, NotEnded, RecordError, SignError};
pub use key::{PublicKey, SigningKey};
pub use statement::{
    CommitSignature, PREDICATE_TYPE, RecordedApproval, RecordedInputs, RecordedPlan, RecordedResult,
    RecordedRun, RecordedSource, RecordedStack, RecordedState, RunRecord, SignatureStatus, Statement,
    Subject,
};

/// The payload type of an in-toto statement.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// A record whose signature is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedRecord {
    /// Id of the key that verifies it.
    pub key_id: String,
    /// The statement.
    pub statement: Statement,
    /// The bytes that are signed: the JSON of the statement, with fields that this version does not know.
    pub payload: Vec<u8>,
}

/// Signs a record. Returns the JSON of the envelope, one line without a newline.
///
/// # Errors
/// The record has no digest, it is longer than [`LIMIT`], or the system has no random numbers.
pub fn sign(record: RunRecord, key: &SigningKey) -> Result<String, SignError> {
    let statement = Statement::new(record)?;
    let payload = serde_json::to_vec(&statement).map_err(|error| SignError::Format(error.to_string()))?;
    Envelope::sign(PAYLOAD_TYPE, payload, key)?.to_json()
}

/// Verifies a signed record: one of its signatures is by one of these keys.
///
/// # Errors
/// It is too long, is not an envelope, has no signature by one of the keys, or its payload is not a record of this version.
pub fn verify(file: &[u8], keys: &[PublicKey]) -> Result<VerifiedRecord, RecordError> {
    let envelope = Envelope::parse(file)?;
    let key_id = envelope.verify(keys)?.id();
    // From here on the bytes are those that the owner of the key has signed.
    if envelope.payload_type != PAYLOAD_TYPE {
        return Err(RecordError::PayloadType(error::excerpt(&envelope.payload_type)));
    }
    let statement = Statement::parse(&envelope.payload)?;
    Ok(VerifiedRecord {
        key_id,
        statement,
        payload: envelope.payload,
    })
}

#[cfg(test)]
mod tests;
