//! The hashes of a pack: of objects with a look for collision attacks, as Git does, of the file as a whole without.

use git2::{ObjectType, Oid};
use sha1_checked::{Digest as _, Sha1};

use super::error::Flaw;

/// The name of an object in the making.
pub(super) struct ObjectHash(Sha1);

impl ObjectHash {
    /// Of an object of this kind and size.
    pub(super) fn new(kind: ObjectType, size: u64) -> Self {
        let mut hash = Sha1::builder().safe_hash(false).build();
        hash.update(kind.str().as_bytes());
        hash.update(format!(" {size}\0").as_bytes());
        Self(hash)
    }

    /// Further bytes of it.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The name, unless the bytes are those of a collision attack. `at` is where the entry is, for the error.
    pub(super) fn finish(self, at: u64) -> Result<[u8; 20], Flaw> {
        let result = self.0.try_finalize();
        if result.has_collision() {
            return Err(Flaw::Collision(at));
        }
        Ok((*result.hash()).into())
    }
}

/// The checksum of a file in the making.
pub(super) struct FileHash(Sha1);

impl FileHash {
    pub(super) fn new() -> Self {
        Self(Sha1::builder().detect_collision(false).build())
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> [u8; 20] {
        self.0.finalize().into()
    }
}

/// As libgit2 has it.
pub(super) fn oid(id: [u8; 20]) -> Oid {
    Oid::from_bytes(&id).unwrap_or(Oid::ZERO_SHA1)
}
