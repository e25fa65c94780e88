//! Digests with their algorithm, e.g. `sha256:<64 hex digits>`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::serialization::text_conversions;

/// Maximum length of a digest: `sha512:` and 128 digits.
const MAX_LENGTH: usize = 135;

/// A known digest algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// SHA-1, 160 bits.
    Sha1,
    /// SHA-256, 256 bits.
    Sha256,
    /// SHA-384, 384 bits.
    Sha384,
    /// SHA-512, 512 bits.
    Sha512,
    /// BLAKE3, 256 bits.
    Blake3,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 5] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512, Self::Blake3];

    /// Returns the name before the colon.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
            Self::Blake3 => "blake3",
        }
    }

    /// Returns the number of hex digits of a digest.
    #[must_use]
    pub const fn digits(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 | Self::Blake3 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Algorithm {
    type Err = DigestError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name);
        known.ok_or_else(|| DigestError::UnknownAlgorithm(name.chars().take(32).collect()))
    }
}

/// Content address: the algorithm, a colon and lowercase hex digits. Form: OCI image-spec "digest".
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

/// A text is not a valid [`Digest`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Longer than any known digest.
    #[error("a digest has at most {MAX_LENGTH} characters")]
    TooLong,
    /// The colon is missing.
    #[error("a digest has the form <algorithm>:<hex digits>")]
    MissingAlgorithm,
    /// The algorithm is not one of sha1, sha256, sha384, sha512, blake3.
    #[error("unknown digest algorithm {0:?}")]
    UnknownAlgorithm(String),
    /// The number of digits does not match the algorithm, or they are not lowercase hex.
    #[error("a {0} digest has {len} lowercase hex digits", len = .0.digits())]
    InvalidDigits(Algorithm),
}

impl Digest {
    /// Creates a digest from its algorithm and hex digits.
    ///
    /// # Errors
    /// The number of digits does not match the algorithm, or they are not lowercase hex.
    pub fn new(algorithm: Algorithm, hex: impl Into<String>) -> Result<Self, DigestError> {
        let hex = hex.into();
        let good =
            hex.len() == algorithm.digits() && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if good {
            Ok(Self { algorithm, hex })
        } else {
            Err(DigestError::InvalidDigits(algorithm))
        }
    }

    /// Creates a digest from 32 bytes of SHA-256 output.
    #[must_use]
    pub fn sha256(output: [u8; 32]) -> Self {
        Self {
            algorithm: Algorithm::Sha256,
            hex: hex::encode(output),
        }
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns whether this is its text. Unlike a comparison with the printed digest, this allocates nothing.
    #[must_use]
    pub fn is_written_as(&self, text: &str) -> bool {
        let digits = text
            .strip_prefix(self.algorithm.as_str())
            .and_then(|rest| rest.strip_prefix(':'));
        digits == Some(self.hex.as_str())
    }

    /// The hex digits behind the colon.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.hex)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_LENGTH {
            return Err(DigestError::TooLong);
        }
        let (algorithm, hex) = text.split_once(':').ok_or(DigestError::MissingAlgorithm)?;
        Self::new(algorithm.parse()?, hex)
    }
}

text_conversions!(Digest, DigestError);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_algorithm_is_parsed_and_printed() {
        for algorithm in Algorithm::ALL {
            let text = format!("{algorithm}:{}", "0a".repeat(algorithm.digits() / 2));
            let digest: Digest = text.parse().unwrap();
            assert_eq!(digest.algorithm(), algorithm);
            assert_eq!(digest.to_string(), text);
            assert_eq!(serde_json::to_value(&digest).unwrap(), serde_json::json!(text));
        }
    }

    #[test]
    fn a_digest_is_written_in_one_way() {
        let digest = Digest::sha256([0x0a; 32]);
        let text = digest.to_string();
        assert!(digest.is_written_as(&text));
        for other in [
            String::new(),
            digest.hex().to_owned(),
            text.to_uppercase(),
            text.replace("sha256", "blake3"),
            text.replace(':', "::"),
            format!("{text}0"),
            text[..70].to_owned(),
            Digest::sha256([0x0b; 32]).to_string(),
        ] {
            assert!(!digest.is_written_as(&other), "{other}");
        }
    }

    #[test]
    fn other_forms_are_rejected() {
        let wrong = |algorithm| Err(DigestError::InvalidDigits(algorithm));
        for (text, error) in [
            (String::new(), Err(DigestError::MissingAlgorithm)),
            ("a".repeat(64), Err(DigestError::MissingAlgorithm)),
            (
                format!("md5:{}", "a".repeat(32)),
                Err(DigestError::UnknownAlgorithm("md5".into())),
            ),
            (
                format!("SHA256:{}", "a".repeat(64)),
                Err(DigestError::UnknownAlgorithm("SHA256".into())),
            ),
            (format!("sha256:{}", "a".repeat(63)), wrong(Algorithm::Sha256)),
            (format!("sha256:{}", "A".repeat(64)), wrong(Algorithm::Sha256)),
            (format!("sha1:{}", "g".repeat(40)), wrong(Algorithm::Sha1)),
            ("sha256:".to_owned() + &"a".repeat(500), Err(DigestError::TooLong)),
        ] {
            assert_eq!(text.parse::<Digest>(), error, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,160}") {
            if let Ok(digest) = text.parse::<Digest>() {
                prop_assert_eq!(digest.to_string(), text);
            }
        }

        #[test]
        fn sha256_output_keeps_its_bytes(output in any::<[u8; 32]>()) {
            let digest = Digest::sha256(output);
            prop_assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        }
    }
}
