//! Digests of artifact files.

use std::io::{self, Read};

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use sha2::digest::common::hazmat::SerializableState as _;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use sluice_api::digest::{Algorithm, Digest};

/// The state of a SHA-256 after some bytes, as `sha2` 0.11 encodes it. With another version of `sha2`, read the note of [`Hasher::resume`].
pub(super) type Checkpoint = [u8; 104];

/// An incremental digest.
pub struct Hasher(State);

enum State {
    Sha1(Context),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// Starts a digest.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha1 => State::Sha1(Context::new(&SHA1_FOR_LEGACY_USE_ONLY)),
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha384 => State::Sha384(Sha384::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
            Algorithm::Blake3 => State::Blake3(Box::default()),
        })
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha1(state) => state.update(bytes),
            State::Sha256(state) => state.update(bytes),
            State::Sha384(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
            State::Blake3(state) => drop(state.update(bytes)),
        }
    }

    /// Returns the state after the bytes that were added; `None` for algorithms other than SHA-256.
    pub(super) fn checkpoint(&self) -> Option<Checkpoint> {
        match &self.0 {
            State::Sha256(state) => Some(state.serialize().into()),
            _ => None,
        }
    }

    /// Returns the SHA-256 that has this state; `None` if it is none. Versions `0.11` of `sha2` have one encoding. Its test fails with
    /// another one: then the version of the index of an artifact has to change.
    pub(super) fn resume(checkpoint: &Checkpoint) -> Option<Self> {
        let state = Sha256::deserialize(&(*checkpoint).into());
        state.ok().map(|state| Self(State::Sha256(state)))
    }

    /// Returns the digest of all added bytes.
    #[must_use]
    pub fn finish(self) -> Digest {
        match self.0 {
            State::Sha1(state) => digest_of(Algorithm::Sha1, state.finish().as_ref()),
            State::Sha256(state) => Digest::sha256(state.finalize().into()),
            State::Sha384(state) => digest_of(Algorithm::Sha384, &state.finalize()),
            State::Sha512(state) => digest_of(Algorithm::Sha512, &state.finalize()),
            State::Blake3(state) => digest_of(Algorithm::Blake3, state.finalize().as_bytes()),
        }
    }

    /// Returns the digest of everything that `input` yields.
    ///
    /// # Errors
    /// `input` cannot be read.
    pub fn of(algorithm: Algorithm, mut input: impl Read) -> io::Result<Digest> {
        let mut hasher = Self::new(algorithm);
        let mut buffer = vec![0; 128 * 1024];
        loop {
            match input.read(&mut buffer)? {
                0 => return Ok(hasher.finish()),
                read => hasher.update(&buffer[..read]),
            }
        }
    }
}

fn digest_of(algorithm: Algorithm, output: &[u8]) -> Digest {
    // The lengths match by construction; the fallback avoids a panic and is never used.
    Digest::new(algorithm, hex::encode(output)).unwrap_or_else(|_| Digest::sha256([0; 32]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_its_published_digest_of_empty_input() {
        for known in [
            "sha1:da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha384:38b060a751ac96384cd9327eb1b1e36a21fdb71114be07434c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b",
            "sha512:cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
            "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        ] {
            let known: Digest = known.parse().unwrap();
            assert_eq!(Hasher::of(known.algorithm(), &b""[..]).unwrap(), known);
            assert_ne!(Hasher::of(known.algorithm(), &b"x"[..]).unwrap(), known);
        }
    }

    /// Stored checkpoints have this encoding: the state of FIPS 180-4 as little-endian words, the number of blocks, and the bytes of the
    /// block that is not complete.
    #[test]
    fn a_checkpoint_has_the_encoding_that_is_stored() {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        let initial = "67e6096a85ae67bb72f36e3c3af54fa57f520e518c68059babd9831f19cde05b";
        let empty = hex::encode(hasher.checkpoint().unwrap());
        assert_eq!(empty, format!("{initial}{}", "00".repeat(8 + 64)));
        hasher.update(&[b'a'; 64]);
        let block = hex::encode(hasher.checkpoint().unwrap());
        assert_eq!(block[64..], format!("01{}", "00".repeat(7 + 64)));
        hasher.update(b"bc");
        let checkpoint = hasher.checkpoint().unwrap();
        let resumed = Hasher::resume(&checkpoint).unwrap();
        assert_eq!(resumed.checkpoint(), Some(checkpoint));
        assert_eq!(resumed.finish(), hasher.finish());
    }
}
