//! Digests of artifact files, by the algorithm that a flag names.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256, Sha384, Sha512};
use sluice_api::digest::{self, Digest};

/// An algorithm that new artifacts can be given a digest of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256, what every consumer reads.
    #[default]
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// The algorithm cannot be computed here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("digest algorithm {0} is not supported: use sha256, sha384 or sha512")]
pub struct UnsupportedAlgorithm(pub String);

impl TryFrom<digest::Algorithm> for Algorithm {
    type Error = UnsupportedAlgorithm;

    fn try_from(algorithm: digest::Algorithm) -> Result<Self, Self::Error> {
        match algorithm {
            digest::Algorithm::Sha256 => Ok(Self::Sha256),
            digest::Algorithm::Sha384 => Ok(Self::Sha384),
            digest::Algorithm::Sha512 => Ok(Self::Sha512),
            other => Err(UnsupportedAlgorithm(other.to_string())),
        }
    }
}

impl std::str::FromStr for Algorithm {
    type Err = UnsupportedAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "sha256" => Ok(Self::Sha256),
            "sha384" => Ok(Self::Sha384),
            "sha512" => Ok(Self::Sha512),
            other => Err(UnsupportedAlgorithm(other.to_owned())),
        }
    }
}

/// A digest in the making.
pub struct Hasher(State);

enum State {
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hasher {
    /// Begins a digest.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha384 => State::Sha384(Sha384::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
        })
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(state) => state.update(bytes),
            State::Sha384(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
        }
    }

    /// The digest of all that was taken in.
    #[must_use]
    pub fn finish(self) -> Digest {
        match self.0 {
            State::Sha256(state) => Digest::sha256(state.finalize().into()),
            State::Sha384(state) => of(digest::Algorithm::Sha384, &state.finalize()),
            State::Sha512(state) => of(digest::Algorithm::Sha512, &state.finalize()),
        }
    }

    /// The digest of everything that `input` gives.
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

fn of(algorithm: digest::Algorithm, output: &[u8]) -> Digest {
    // The lengths agree by construction, so the fallback is never taken; it only spares a panic.
    Digest::new(algorithm, hex::encode(output)).unwrap_or_else(|_| Digest::sha256([0; 32]))
}
