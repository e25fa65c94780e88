//! The hashes of a pack: of objects with collision detection, as in Git, of the whole file without.

use git2::{ObjectType, Oid};
use sha1_checked::{Digest as _, Sha1};

use crate::error::FormatError;

/// Incremental hash of an object.
pub(crate) struct ObjectHash(Sha1);

impl ObjectHash {
    /// Starts the hash of an object of this type and size.
    pub(crate) fn new(kind: ObjectType, size: u64) -> Self {
        let mut hash = Sha1::builder().safe_hash(false).build();
        hash.update(kind.str().as_bytes());
        hash.update(format!(" {size}\0").as_bytes());
        Self(hash)
    }

    /// Adds content.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the object name, unless collision detection reports an attack. `at` is the offset of the entry, for the
    /// error.
    pub(crate) fn finish(self, at: u64) -> Result<[u8; 20], FormatError> {
        let result = self.0.try_finalize();
        if result.has_collision() {
            return Err(FormatError::Collision(at));
        }
        Ok((*result.hash()).into())
    }
}

/// Incremental checksum of a file.
pub(crate) struct FileHash(Sha1);

impl FileHash {
    pub(crate) fn new() -> Self {
        Self(Sha1::builder().detect_collision(false).build())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> [u8; 20] {
        self.0.finalize().into()
    }
}

/// Converts to libgit2's type.
pub(crate) fn oid(id: [u8; 20]) -> Oid {
    Oid::from_bytes(&id).unwrap_or(Oid::ZERO_SHA1)
}
