//! The expected digest of an artifact, computed while it is downloaded.

use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// The digest is not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest of sha256, sha384, sha512 or blake3")]
pub struct ChecksumError(String);

/// Computes a digest and compares it with the expected one.
#[derive(Clone, Debug)]
pub struct Checksum {
    state: State,
    wanted: Vec<u8>,
}

#[derive(Clone, Debug)]
enum State {
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
    Blake3(Box<blake3::Hasher>),
}

impl Checksum {
    /// Parses `algorithm:hex`, or bare hex for SHA-256. Rejects SHA-1, as other consumers do.
    ///
    /// # Errors
    /// Unknown algorithm, wrong length, not hex.
    pub fn parse(text: &str) -> Result<Self, ChecksumError> {
        let invalid = || ChecksumError(text.chars().take(160).collect());
        let (state, hex, length) = match text.split_once(':') {
            None => (State::Sha256(Sha256::new()), text, 32),
            Some(("sha256", hex)) => (State::Sha256(Sha256::new()), hex, 32),
            Some(("sha384", hex)) => (State::Sha384(Sha384::new()), hex, 48),
            Some(("sha512", hex)) => (State::Sha512(Sha512::new()), hex, 64),
            Some(("blake3", hex)) => (State::Blake3(Box::default()), hex, 32),
            Some(_) => return Err(invalid()),
        };
        let wanted = hex::decode(hex)
            .ok()
            .filter(|bytes| bytes.len() == length)
            .ok_or_else(invalid)?;
        Ok(Self { state, wanted })
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Sha256(state) => state.update(bytes),
            State::Sha384(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
            State::Blake3(state) => drop(state.update(bytes)),
        }
    }

    /// Compares the digests; `Err` contains the actual one in hex.
    ///
    /// # Errors
    /// The digests differ.
    pub fn finish(self) -> Result<(), String> {
        let computed: Vec<u8> = match self.state {
            State::Sha256(state) => state.finalize().to_vec(),
            State::Sha384(state) => state.finalize().to_vec(),
            State::Sha512(state) => state.finalize().to_vec(),
            State::Blake3(state) => state.finalize().as_bytes().to_vec(),
        };
        if computed == self.wanted {
            Ok(())
        } else {
            Err(hex::encode(computed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests_of_the_empty_input() {
        for digest in [
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha384:38b060a751ac96384cd9327eb1b1e36a21fdb71114be07434c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b",
            "sha512:cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
            "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        ] {
            assert_eq!(Checksum::parse(digest).unwrap().finish(), Ok(()));
            let mut other = Checksum::parse(digest).unwrap();
            other.update(b"x");
            assert!(other.finish().is_err());
        }
    }

    #[test]
    fn unsupported_digests_are_rejected() {
        for text in [
            "",
            "sha1:da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "sha256:",
            "sha256:xyz",
            "md5:00",
            ":",
            "sha512:00",
        ] {
            assert!(Checksum::parse(text).is_err(), "{text}");
        }
    }
}
