//! Why a record is not signed or refused, and why a key cannot be used.

use sluice_api::run::Phase;

/// Length limit of a foreign text in a message, in characters.
const EXCERPT: usize = 200;

/// Returns the beginning of a foreign text without control characters, for a message.
pub(super) fn excerpt(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_control())
        .take(EXCERPT)
        .collect()
}

/// The run has not ended, so there is nothing to record yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has not ended (phase {})", .0.as_str())]
pub struct NotEnded(pub Phase);

/// Why a key cannot be used. Contains no bytes of the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is longer than any key.
    #[error("it is longer than any key")]
    TooLong,
    /// There is no PEM block.
    #[error("it contains no PEM block")]
    NoPem,
    /// The PEM block is incomplete or not base64.
    #[error("its PEM block is damaged: {0}")]
    Damaged(&'static str),
    /// The key is encrypted.
    #[error("the key is encrypted: `openssl pkey -in FILE` decrypts one in PKCS#8")]
    Encrypted,
    /// The PEM block is not of the expected kind.
    #[error(
        "it has a PEM block {found:?} instead of {expected:?}: `openssl pkey` writes PKCS#8, with -pubout the public key"
    )]
    WrongLabel {
        /// The label of the block.
        found: String,
        /// The label that is needed.
        expected: &'static str,
    },
    /// The key is damaged, or of another algorithm.
    #[error("it is not a valid key of Ed25519 or ECDSA P-256")]
    Unsupported,
}

/// Why a record cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The run has no digest that a statement could name.
    #[error("the run records neither a commit nor the digest of an artifact, a plan or a bundle")]
    NoSubject,
    /// The record is longer than a verifier accepts.
    #[error("the record has {0} bytes, more than 1 MiB")]
    TooLong(usize),
    /// The system provides no random numbers.
    #[error("the system provides no random numbers")]
    NoRandom,
    /// A value that cannot be written as JSON: a bug.
    #[error("cannot format the record: {0}")]
    Format(String),
}

/// Why a signed record is refused. Foreign texts in messages are short and have no control characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Longer than a record can be.
    #[error("it is longer than 1 MiB")]
    TooLong,
    /// Not the JSON of an envelope.
    #[error("it is not a DSSE envelope: {0}")]
    Envelope(String),
    /// A field of the envelope is not base64.
    #[error("the field {0} of the envelope is not base64")]
    Base64(String),
    /// It has no signature.
    #[error("the field signatures of the envelope is empty")]
    Unsigned,
    /// More signatures than are checked.
    #[error("the envelope has {0} signatures, more than 16")]
    TooManySignatures(usize),
    /// The key is a given one, and its signature is not valid.
    #[error(
        "the signature of the key {key_id} is not valid: the record was changed, or the signature is of something else"
    )]
    InvalidSignature {
        /// Id of the key.
        key_id: String,
    },
    /// No given key has signed it.
    #[error("no given key has signed it: it names the keys [{named}], and the given keys are [{given}]")]
    OtherKey {
        /// Ids of keys in the envelope.
        named: String,
        /// Ids of the given keys.
        given: String,
    },
    /// The payload is of another type.
    #[error("the field payloadType is {0:?}, and only {expected:?} is known", expected = super::PAYLOAD_TYPE)]
    PayloadType(String),
    /// The payload is not the JSON of a statement.
    #[error("the payload is not an in-toto statement: {0}")]
    Statement(String),
    /// The statement has another version.
    #[error(
        "the field _type of the statement is {0:?}, and only \"https://in-toto.io/Statement/v1\" is known"
    )]
    StatementType(String),
    /// The statement has another predicate.
    #[error("the field predicateType of the statement is {found:?}, and only {known:?} is known")]
    PredicateType {
        /// The value.
        found: String,
        /// The value that this version knows.
        known: &'static str,
    },
    /// The predicate lacks a field, or has a wrong value.
    #[error("the statement is not a record of a run: {0}")]
    Record(String),
    /// The statement names nothing that it is about.
    #[error("the field subject of the statement is empty")]
    NoSubject,
}
