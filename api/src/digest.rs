//! Checksums with their algorithm: `sha256:<64 hex digits>` and its kin.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest text that is looked at: `sha512:` and 128 digits.
const LONGEST: usize = 135;

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
    /// Every algorithm.
    pub const ALL: [Self; 5] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512, Self::Blake3];

    /// The name before the colon.
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

    /// Number of hex digits of a digest.
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

/// Why a text is no [`Digest`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Longer than any known digest.
    #[error("a digest has at most {LONGEST} characters")]
    TooLong,
    /// There is no colon.
    #[error("a digest has the form <algorithm>:<hex digits>")]
    NoAlgorithm,
    /// The algorithm is not one of sha1, sha256, sha384, sha512, blake3.
    #[error("digest algorithm {0:?} is not known")]
    UnknownAlgorithm(String),
    /// The digits are not as many as the algorithm gives, or not lowercase hex.
    #[error("a {0} digest has {len} lowercase hex digits", len = .0.digits())]
    WrongDigits(Algorithm),
}

impl Digest {
    /// A digest from its algorithm and hex digits.
    ///
    /// # Errors
    /// When the digits are not lowercase hex or not as many as the algorithm gives.
    pub fn new(algorithm: Algorithm, hex: impl Into<String>) -> Result<Self, DigestError> {
        let hex = hex.into();
        let good =
            hex.len() == algorithm.digits() && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if good {
            Ok(Self { algorithm, hex })
        } else {
            Err(DigestError::WrongDigits(algorithm))
        }
    }

    /// The digest of these 32 bytes of SHA-256 output.
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
        if text.len() > LONGEST {
            return Err(DigestError::TooLong);
        }
        let (algorithm, hex) = text.split_once(':').ok_or(DigestError::NoAlgorithm)?;
        Self::new(algorithm.parse()?, hex)
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_algorithm_is_read_and_printed() {
        for algorithm in Algorithm::ALL {
            let text = format!("{algorithm}:{}", "0a".repeat(algorithm.digits() / 2));
            let digest: Digest = text.parse().unwrap();
            assert_eq!(digest.algorithm(), algorithm);
            assert_eq!(digest.to_string(), text);
            assert_eq!(serde_json::to_value(&digest).unwrap(), serde_json::json!(text));
        }
    }

    #[test]
    fn other_forms_are_refused_by_name() {
        let wrong = |algorithm| Err(DigestError::WrongDigits(algorithm));
        for (text, error) in [
            (String::new(), Err(DigestError::NoAlgorithm)),
            ("a".repeat(64), Err(DigestError::NoAlgorithm)),
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
        fn no_text_makes_it_panic(text in "\\PC{0,160}") {
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
