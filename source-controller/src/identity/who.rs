//! Who an identity is, as a digest: of the token that is kept for it, and of the mirror that it may read.

use sha2::{Digest as _, Sha256};

/// Everything that decides an identity, each part with its length before it, so that no two lists of parts are alike.
pub(super) struct Who(Sha256);

impl Who {
    /// Of this provider.
    pub(super) fn new(provider: &str) -> Self {
        Self(Sha256::new()).and(provider)
    }

    /// And of this. Secrets may be among the parts: only the digest is kept.
    pub(super) fn and(self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        Self(self.0.chain_update(part.len().to_be_bytes()).chain_update(part))
    }

    /// As a digest.
    pub(super) fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}
